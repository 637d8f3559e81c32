"""The world of an elastic job: the tasks that train together now. The operator changes it while the pods live.

`DTJ_WORLD_FILE` names a file with an annotation of the pod, as JSON, which the kubelet keeps up to date:

    {"generation": 3, "members": {"worker": "0-1,3"}, "address": "{role}-{index}.job.namespace.svc:2222"}

In place of the pattern there may be `addresses`, a list for each role. The place of a member in the list is its task
index. A task that is no member waits with all that is imported.

A server, a worker of ParameterServer, serves whoever connects, under any index. So its program goes on when others come
or go, and only the coordinator starts again: it connects to the servers of the new list. Standard library only.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

from .errors import Unavailable, UsageError

log = logging.getLogger(__name__)

FILE, GENERATION = "DTJ_WORLD_FILE", "DTJ_WORLD"
COUNTS, ADDRESS = "DTJ_CLUSTER_COUNTS", "DTJ_CLUSTER_ADDRESS"
"""What TF_CONFIG is made of where it is too long for one variable, see `tf_config.written_out`."""
LOOK_SECONDS = 0.2
_LONGEST = 131_072 - len("TF_CONFIG=") - 1
"""What Linux passes to a program in one variable."""
_MOST = 100_000
_GATE_PATIENCE_SECONDS = 100.0
"""For how long a peer that answers no handshake may still wait for other members: a kubelet that has overlooked the
change writes it with its next sync of the pod, after 60 to 90 s."""


@dataclass(frozen=True)
class World:
    """One list of members. A higher generation takes the place of a lower one."""

    generation: int
    indexes: Mapping[str, Tuple[int, ...]]  # noqa: UP006
    addresses: Mapping[str, Tuple[str, ...]]  # noqa: UP006
    pattern: str = ""
    """That the addresses follow, where they follow one."""

    def place(self, role: str, index: int) -> int | None:
        """The task index of a replica; None if it is no member."""
        indexes = self.indexes.get(role, ())
        return indexes.index(index) if index in indexes else None


def parse(text: str) -> World:
    """Reads what the operator writes.

    Raises:
        ValueError: it is something else.
    """
    content: Any = json.loads(text)
    try:
        indexes = {str(role): indexes_of(ranges) for role, ranges in content["members"].items()}
        if "address" in content:
            addresses = {
                role: tuple(content["address"].format(role=role, index=index) for index in members)
                for role, members in indexes.items()
            }
        else:
            addresses = {role: tuple(map(str, content["addresses"][role])) for role in indexes}
        world = World(int(content["generation"]), indexes, addresses, content.get("address", ""))
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from None
    if any(len(world.addresses[role]) != len(members) for role, members in indexes.items()):
        raise ValueError("another number of addresses than of members")
    return world


def indexes_of(ranges: str) -> Tuple[int, ...]:  # noqa: UP006
    """The numbers of `0-1,3`."""
    found: list[int] = []
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), min(int(last or first), _MOST) + 1)
    return tuple(found)


class Membership:
    """This task in the world of its job: the file is looked at again and again."""

    def __init__(self, path: str, role: str, index: int) -> None:
        """Raises:
        Unavailable: the file cannot be read.
        """
        self._path, self._role, self._index = path, role, index
        self._seen: str | None = None
        self._next = 0.0
        self.latest = self._read()
        """The newest world that is known."""
        self.joined: World | None = None
        """The world that the program was started for."""

    @property
    def place(self) -> int | None:
        """The task index in the newest world; None if this task waits."""
        return self.latest.place(self._role, self._index)

    @property
    def changed(self) -> bool:
        """Whether there is another world than the one that the program was started for."""
        return self.joined is not None and self.latest.indexes != self.joined.indexes

    @property
    def outdated(self) -> bool:
        """Whether there is a newer world than the one that this task has joined, be it of the same members: tasks meet
        at their gates under one generation."""
        return self.joined is not None and self.latest.generation > self.joined.generation

    @property
    def left(self) -> bool:
        """Whether this task is no member any more of the world that the program was started for."""
        return self.joined is not None and self.place is None

    def look(self) -> float:
        """Reads the file if it is time to. Returns in how many seconds to come again."""
        left = self._next - time.monotonic()
        if left > 0:
            return left
        self._next = time.monotonic() + LOOK_SECONDS
        try:
            world = self._read()
        except Unavailable as error:  # what is known holds until there is something that can be read
            log.warning(str(error))
        else:
            if world.generation > self.latest.generation:
                self.latest = world
        return LOOK_SECONDS

    def join(self) -> Mapping[str, str]:
        """Notes that the program starts for the newest world. Returns the variables that tell it of that."""
        assert self.place is not None
        self.joined = self.latest
        return self._variables(self.place)

    def pod_of(self, task: str) -> str:
        """`worker-3`, a pod of the world that the program was started for, where that calls it `worker-2`."""
        role, _, place = task.rpartition("-")
        indexes = self.joined.indexes.get(role, ()) if self.joined is not None else ()
        return f"{role}-{indexes[int(place)]}" if place.isdecimal() and int(place) < len(indexes) else task

    def pretend(self) -> Mapping[str, str]:
        """The variables of the last member, as which a task that waits has its arguments judged: the TF_CONFIG of a
        spare lists no such task."""
        return self._variables(max(len(self.latest.indexes.get(self._role, ())) - 1, 0))

    def _variables(self, place: int) -> Mapping[str, str]:
        world, task = self.latest, {"type": self._role, "index": place}
        whole = json.dumps({"cluster": world.addresses, "task": task}, separators=(",", ":"))
        variables = {"TF_CONFIG": whole, "DTJ_INDEX": str(place), GENERATION: str(world.generation), COUNTS: ""}
        if len(whole) > _LONGEST and world.pattern:
            # The program's own Python makes TF_CONFIG of it.
            ranges = {role: ",".join(map(str, members)) for role, members in world.indexes.items()}
            variables.update({COUNTS: json.dumps(ranges), ADDRESS: world.pattern})
            variables["TF_CONFIG"] = json.dumps({"cluster": "too long for one variable", "task": task})
        return variables

    def _read(self) -> World:
        text = ""
        try:
            with open(self._path, encoding="utf-8") as file:
                text = file.read()
            if text == self._seen:
                return self.latest
            self._seen = text
            return parse(text)
        except (OSError, ValueError) as error:
            raise Unavailable(
                f"{FILE}={self._path}: holds no list of members ({error}): leave it to the operator, or unset it"
            ) from None


def membership(environ: Mapping[str, str]) -> Membership | None:
    """This task in the world of its job; None where the job has none.

    Raises:
        Unavailable: the file that DTJ_WORLD_FILE names cannot be read.
        UsageError: DTJ_INDEX is no number.
    """
    path = environ.get(FILE)
    if not path:
        return None
    index = environ.get("DTJ_INDEX") or "0"
    if not index.isdecimal():
        raise UsageError(f"DTJ_INDEX={index}: not a whole number; leave it to the operator, or unset it")
    return Membership(path, environ.get("DTJ_ROLE") or "worker", int(index))


def gate_key(environ: Mapping[str, str]) -> str:
    """What only the tasks of this job know that start for the same world; empty if there is nothing."""
    uid, generation = environ.get("DTJ_JOB_UID", ""), environ.get(GENERATION, "")
    return f"{uid} {generation}" if uid and generation else uid


def gate_patience(environ: Mapping[str, str]) -> float | None:
    """For how long a peer that answers no handshake is taken for one that still ends; None for as long as elsewhere.

    In an elastic job it may be at its gate with the members of before, and all of them answer handshakes.
    """
    return _GATE_PATIENCE_SECONDS if environ.get(GENERATION) else None
