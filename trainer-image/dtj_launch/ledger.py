"""What the time of a training went into, in seconds, over all starts of its program in one container.

The launcher makes a small file in memory, which needs no folder to write to, and gives it to each start of its program:
the variable `DTJ_LEDGER` says where, as DESCRIPTOR:INODE:SECONDS, with the moment of the start by the monotonic clock.
The program notes in it each step that is done and each change of what it does, so that the next start knows which steps
it repeats. What a step, a save or a validation took that did not end is lost with it: it belongs to the recovery.
Without such a file, or with one that cannot be read, the sums are those of this process. Standard library only.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

VARIABLE = "DTJ_LEDGER"
_STARTS = "DTJ_RESTARTS_IN_PLACE"
_MOMENT = struct.Struct("<qd")
"""The last step, -1 for none, and the time of it or of the last change."""
_MOST_BYTES = 8192
_MOST_MARKS = 64


class Doing(Enum):
    """What a training does; it does one of these at a time."""

    STARTING = "starting"
    """Until its first step is done."""
    TRAINING = "training"
    """It takes steps; with what comes between them and is none of the others, such as to show the progress."""
    CHECKPOINTING = "checkpointing"
    """It waits for a checkpoint: the values are looked at and read, or the one before is still being written."""
    VALIDATING = "validating"
    RECOVERING = "recovering"
    """From the last step of the start before to the first one that is done after it."""
    REPEATED = "repeated"
    """It took steps that a later start has taken again."""
    OTHER = "other"
    """Anything else, such as exporting; it is not shown."""


@dataclass(frozen=True)
class _Account:
    """One moment, as the file holds it."""

    doing: Doing
    since: float
    """By the monotonic clock, which goes on from process to process."""
    start: str
    """Which start of the launcher's it is of."""
    seconds: Mapping[Doing, float] = field(default_factory=dict)
    """Up to `since`."""
    first_step: int | None = None
    step: int | None = None
    """The last one that is done."""
    repeated_steps: int = 0
    marks: Tuple[Tuple[int, float], ...] = ()  # noqa: UP006
    """The seconds of training up to a step, of those where it began and where a checkpoint was saved."""

    def until(self, now: float) -> Mapping[Doing, float]:
        """The sums at this moment."""
        return {**self.seconds, self.doing: self.seconds.get(self.doing, 0.0) + max(0.0, now - self.since)}

    def training_up_to(self, step: int) -> float:
        """The seconds of training up to a step: as a checkpoint has marked it, else by its share of the steps."""
        total, last = self.seconds.get(Doing.TRAINING, 0.0), self.step or 0
        reached = max((mark for mark in self.marks if mark[0] <= step), default=(step, 0.0))
        following = min((mark for mark in self.marks if mark[0] > step), default=(max(last, step + 1), total))
        share = (step - reached[0]) / (following[0] - reached[0])
        return min(total, reached[1] + share * (following[1] - reached[1]))

    def resumed(self, step: int) -> _Account:
        """What it is for a start that begins at this step, where the one before was further."""
        assert self.step is not None
        kept = self.training_up_to(step)
        repeated = self.seconds.get(Doing.TRAINING, 0.0) - kept
        before = self.seconds.get(Doing.REPEATED, 0.0)
        return replace(
            self,
            seconds={**self.seconds, Doing.TRAINING: kept, Doing.REPEATED: before + repeated},
            repeated_steps=self.repeated_steps + self.step - step,
            marks=(*(mark for mark in self.marks if mark[0] < step), (step, kept)),
        )


class Ledger:
    """One training's. One thread writes; any may read."""

    def __init__(
        self,
        file: int | None = None,
        *,
        began: float | None = None,
        start: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args:
        file: descriptor of the file that outlives this process; None where there is none.
        began: when this process did.
        start: which start of the launcher's this is.
        """
        self._file, self._clock = file, clock
        found = None if file is None else _read(file, now=clock())
        self._restarted = found is not None and found.start != start
        began = clock() if began is None else began
        # One reference to one frozen value: replacing it is atomic, so the reader needs no lock.
        self._account = found or _Account(Doing.STARTING, began, start)
        self._step, self._begun = self._account.step, False
        self.told = False
        """Whether this process says what it does: a script may not."""
        if found is None:
            self._write()
        else:
            recovers = self._restarted and found.first_step is not None
            self._change(Doing.RECOVERING if recovers else Doing.STARTING, now=found.since, start=start)

    @classmethod
    def kept(cls, environ: Mapping[str, str]) -> Ledger:
        """The one that the launcher keeps over the starts of this program; a new one where there is no launcher."""
        with suppress(OSError, ValueError, OverflowError):
            file, inode, began = environ[VARIABLE].split(":") if VARIABLE in environ else ("", "", "")
            if os.fstat(int(file)).st_ino == int(inode):  # else a program in between has closed it
                return cls(int(file), began=float(began), start=environ.get(_STARTS, ""))
        return cls()

    def resumed(self, step: int | None) -> None:
        """The training goes on after this step, 0 for a new start, None if it is not known; the first call counts."""
        known, self.told = self.told, True
        if known or step is None:
            return
        account = self._account
        if account.first_step is None:
            account = replace(account, first_step=step)
        elif self._restarted and account.step is not None and account.step > step:
            account = account.resumed(step)
        self._step, self._account = step, account
        if self._restarted and account.marks:
            self._change(account.doing)
        else:
            self._count_from(step)

    def took(self, before: int, step: int) -> None:
        """The steps after `before`, up to `step`, are done."""
        self.resumed(before)
        if before < (self._step or 0):
            self._count_from(before)
        if step == self._step:
            return
        self._step, self._begun = step, True
        if self._account.doing is not Doing.TRAINING:
            self._change(Doing.TRAINING)
        elif self._file is not None:
            self._put(_MOMENT.pack(step, self._clock()))

    def goes_on(self) -> None:
        """Steps follow, the first of which does not count as the start unless it is this process's first."""
        if self._begun:
            self._change(Doing.TRAINING)

    def enter(self, doing: Doing) -> Doing:
        """From now on it does this; returns what it did."""
        before = self._account.doing
        self._change(doing)
        return before

    @contextmanager
    def state(self, doing: Doing) -> Iterator[None]:
        """Within this, it does this; then what it did before."""
        before = self.enter(doing)
        try:
            yield
        finally:
            self.enter(before)

    @property
    def seconds(self) -> float:
        """All so far, over all starts."""
        return sum(self._account.until(self._clock()).values())

    def document(self) -> dict[str, Any]:
        """The fields of GET /status; nothing for what is not known yet."""
        account = self._account
        rounded = {doing: round(seconds, 1) for doing, seconds in account.until(self._clock()).items()}
        found = {"seconds": {each.value: rounded[each] for each in Doing if rounded.get(each) and each != Doing.OTHER}}
        if account.first_step is None:
            return found
        return {**found, "firstStep": account.first_step, "repeatedSteps": account.repeated_steps}

    def _count_from(self, step: int) -> None:
        """The steps are counted from this one on: a script may train again and again, each time from 0."""
        now = self._clock()
        self._step = step
        training = self._account.until(now).get(Doing.TRAINING, 0.0)
        self._change(self._account.doing, now=now, marks=((step, training),))

    def _change(self, doing: Doing, *, now: float | None = None, **changes: Any) -> None:
        account, now = self._account, self._clock() if now is None else now
        seconds, step, marks = account.until(now), self._step, changes.pop("marks", account.marks)
        if doing is Doing.CHECKPOINTING and marks and step is not None and step > marks[-1][0]:
            marks = (*marks[:1], *marks[1:][1 - _MOST_MARKS :], (step, seconds.get(Doing.TRAINING, 0.0)))
        self._account = replace(account, doing=doing, since=now, seconds=seconds, step=step, marks=marks, **changes)
        self._write()

    def _write(self) -> None:
        if self._file is None:
            return
        account = self._account
        names = {"doing": account.doing.value, "seconds": {each.value: s for each, s in account.seconds.items()}}
        line = json.dumps({**account.__dict__, **names}).encode()
        self._put(_MOMENT.pack(-1 if self._step is None else self._step, account.since) + line + b"\n")

    def _put(self, content: bytes) -> None:
        """One call that writes less than a page: the kernel does it as a whole, or not at all."""
        assert self._file is not None
        try:
            os.pwrite(self._file, content, 0)
        except OSError:  # the sums of this process stay
            self._file = None


def make_file() -> int | None:
    """A file for the programs of one launcher, which they inherit; None where there can be none."""
    with suppress(OSError):
        if hasattr(os, "memfd_create"):
            return os.memfd_create("dtj-ledger", 0)
        with tempfile.TemporaryFile() as file:
            made = os.dup(file.fileno())
        os.set_inheritable(made, True)
        return made
    return None


def variables(file: int | None) -> Mapping[str, str]:
    """How a program that starts now finds the file."""
    return {} if file is None else {VARIABLE: f"{file}:{os.fstat(file).st_ino}:{time.monotonic()}"}


def _read(file: int, *, now: float) -> _Account | None:
    """What the start before has left, up to the last that it wrote; None if there is nothing that can be used."""
    try:
        content = os.pread(file, _MOST_BYTES, 0)
        step, at = _MOMENT.unpack_from(content)
        document = json.loads(content[_MOMENT.size :].partition(b"\n")[0])
        first, number = document["first_step"], float(document["since"])
        account = _Account(
            Doing(document["doing"]),
            number,
            str(document["start"]),
            {Doing(name): float(seconds) for name, seconds in document["seconds"].items()},
            None if first is None else int(first),
            None if step < 0 else int(step),
            int(document["repeated_steps"]),
            tuple((int(mark), float(seconds)) for mark, seconds in document["marks"]),
        )
    except (OSError, ValueError, OverflowError, LookupError, TypeError, AttributeError, struct.error):
        return None
    numbers = [number, *account.seconds.values(), *(seconds for _, seconds in account.marks)]
    if not (number <= at <= now and all(0 <= each < math.inf for each in numbers)):
        return None
    return replace(account, seconds=account.until(at), since=at)
