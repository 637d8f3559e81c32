"""TF_CONFIG as values: the tasks of the job with their addresses, and which of them this process is. Pure.

The launcher and the trainer both use this parser, so that both refuse the same values. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

from .rendezvous import Peer
from .world import ADDRESS, COUNTS, indexes_of


class TfConfigError(ValueError):
    """TF_CONFIG, DTJ_ROLE or DTJ_INDEX cannot be used; the message has the variable, the value, and what to do."""


@dataclass(frozen=True)
class TfConfig:
    """The cluster as TF_CONFIG lists it, and the task of this process."""

    role: str
    index: int
    cluster: Mapping[str, Tuple[Peer, ...]]  # noqa: UP006
    """Role -> the addresses of its tasks, by index; empty without TF_CONFIG."""


def parse(environ: Mapping[str, str]) -> TfConfig:
    """Reads TF_CONFIG. If it names no task, DTJ_ROLE and DTJ_INDEX do; else the task is worker 0.

    A task of a role that the cluster does not list is valid: TensorFlow lists no evaluator.

    Raises:
        TfConfigError: TF_CONFIG is malformed, contradicts DTJ_ROLE or DTJ_INDEX, or lists the role of this task
            without its index.
    """
    raw = (written_out(environ) or environ.get("TF_CONFIG", "")).strip()
    config = _object(raw) if raw else {}
    cluster = _cluster(config.get("cluster", {}))
    role, index = _task(config.get("task", {}), environ)
    if role in cluster and index >= len(cluster[role]):
        raise TfConfigError(
            f"TF_CONFIG: task is {role} {index}, but cluster lists no such task; list its address there"
        )
    return TfConfig(role=role, index=index, cluster=cluster)


def written_out(environ: Mapping[str, str]) -> str | None:
    """TF_CONFIG of a job with more addresses than fit into one variable; None if the environment has all of it.

    The operator gives a pod of such a job the number of tasks of each role and a pattern of their addresses; the
    launcher gives the program of an elastic job the indexes of the members, as 0-1,3.

    Raises:
        TfConfigError: DTJ_CLUSTER_COUNTS or DTJ_CLUSTER_ADDRESS cannot be used.
    """
    counts = environ.get(COUNTS)
    if not counts:
        return None
    pattern = environ.get(ADDRESS, "")
    try:
        cluster = {
            str(role): [
                pattern.format(role=role, index=index)
                for index in (indexes_of(count) if isinstance(count, str) else range(count))
            ]
            for role, count in json.loads(counts).items()
        }
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise TfConfigError(
            f"DTJ_CLUSTER_COUNTS={short(counts)} with DTJ_CLUSTER_ADDRESS={short(pattern)}: not a number of tasks for "
            "each role with a pattern of their addresses; leave both to the operator, or unset both"
        ) from None
    given = environ.get("TF_CONFIG", "").strip()
    task = _object(given).get("task", {}) if given else {}
    return json.dumps({"cluster": cluster, "task": task}, separators=(",", ":"))


def write_out(environ: MutableMapping[str, str]) -> None:
    """Sets TF_CONFIG to all of it where the environment has only numbers: TensorFlow, and scripts, read that.

    A process can have a longer variable than it can pass to the programs that it starts.

    Raises:
        TfConfigError: DTJ_CLUSTER_COUNTS or DTJ_CLUSTER_ADDRESS cannot be used.
    """
    whole = written_out(environ)
    if whole is not None:
        environ["TF_CONFIG"] = whole
        for name in (COUNTS, ADDRESS):
            environ.pop(name, None)


def likely_strategy(config: TfConfig) -> str | None:
    """The strategy that such a cluster is for, if the job names none; None for a process without peers."""
    if config.cluster.get("ps"):
        return "ParameterServer"
    collective = sum(len(config.cluster.get(role, ())) for role in ("chief", "worker"))
    return "MultiWorkerMirrored" if collective > 1 else None


def _object(raw: str) -> Mapping[str, object]:
    try:
        config = json.loads(raw)
    except ValueError as error:
        raise TfConfigError(f"TF_CONFIG={short(raw)}: not JSON ({error}); {_REMEDY}") from None
    if not isinstance(config, dict):
        raise TfConfigError(f"TF_CONFIG={short(raw)}: not a JSON object; {_REMEDY}")
    return config


def _cluster(cluster: object) -> Mapping[str, Tuple[Peer, ...]]:  # noqa: UP006
    if not isinstance(cluster, dict):
        raise TfConfigError(f"TF_CONFIG: cluster is {short(cluster)}, not an object; {_REMEDY}")
    found = {}
    for role, listed in cluster.items():
        if not isinstance(listed, list):
            raise TfConfigError(f"TF_CONFIG: cluster.{role} is {short(listed)}, not a list; {_REMEDY}")
        found[str(role)] = tuple(_address(f"cluster.{role}[{index}]", text) for index, text in enumerate(listed))
    return found


def _address(path: str, text: object) -> Peer:
    host, _, port = str(text).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise TfConfigError(f"TF_CONFIG: {path} is {short(text)}, not host:port; {_REMEDY}")
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host, int(port))


def _task(task: object, environ: Mapping[str, str]) -> tuple[str, int]:
    if not isinstance(task, dict):
        raise TfConfigError(f"TF_CONFIG: task is {short(task)}, not an object; {_REMEDY}")
    role = task.get("type", environ.get("DTJ_ROLE") or "worker")
    index = str(task.get("index", environ.get("DTJ_INDEX") or "0"))
    for name, seen, variable in (("type", role, "DTJ_ROLE"), ("index", index, "DTJ_INDEX")):
        if environ.get(variable, "") not in ("", seen):
            raise TfConfigError(
                f"{variable}={environ[variable]}: TF_CONFIG says task.{name} {short(seen)}; unset one of the two"
            )
    if not isinstance(role, str):
        raise TfConfigError(f"TF_CONFIG: task.type is {short(role)}, not a name; {_REMEDY}")
    if not index.isdecimal():
        raise TfConfigError(f"task index {short(index)}: not a whole number; {_REMEDY}")
    return role, int(index)


def short(value: object) -> str:
    """A value as a message shows it, at most 60 characters long."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


_REMEDY = 'give e.g. {"cluster": {"worker": ["host:2222"]}, "task": {"type": "worker", "index": 0}}'
