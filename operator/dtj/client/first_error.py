"""Where the trouble began: the first error in the log of the replica that failed first."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from dtj.api.job import Job
from dtj.api.status import RootCause
from dtj.client.logs import LogSelection, NothingToRead, has_log, log_of
from dtj.client.pods import pods_of
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden

CONTEXT_LINES: Final = 5
"""Lines before the error that are shown, too."""

ERROR_LINES: Final = 60
"""Lines from the error on that are shown: a traceback of TensorFlow's is about so long."""

_CERTAIN: Final = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^\s*(\w+\.)*\w*(Error|Exception)(: |$)"
    r"|^Fatal Python error|^Segmentation fault|^Aborted|^Killed"
    r"|\bF (external|tensorflow)/|^F\d{4} "
)
"""What only a failure prints: Python's traceback and errors, the shell's words for signals, TensorFlow's last lines."""

_LIKELY: Final = re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|\berror:|\bE (external|tensorflow)/|^E\d{4} ")
"""What healthy programs print at times, too."""


@dataclass(frozen=True, slots=True)
class FirstError:
    """``lines`` of the log of the pod that ``cause`` names, ``at`` the place of the error among them, ``left`` how many
    lines come after. ``note`` says why the lines are not from the log."""

    cause: RootCause
    lines: tuple[str, ...]
    at: int
    left: int = 0
    note: str = ""


class ErrorFinder:
    """Takes the lines of a log one by one, and keeps those around the first error; of all others it forgets."""

    def __init__(self, message: str = "") -> None:
        self._message = message
        self._before: deque[str] = deque(maxlen=CONTEXT_LINES)
        self._last: deque[str] = deque(maxlen=ERROR_LINES)
        self._found: list[str] = []
        self._at = 0
        self._left = 0
        self._certain = False

    def take(self, line: str) -> None:
        """The next line."""
        certain = not self._certain and _CERTAIN.search(line) is not None
        if certain or (not self._found and self._is_likely(line)):
            self._found, self._at, self._left, self._certain = [*self._before, line], len(self._before), 0, certain
        elif self._found and len(self._found) - self._at < ERROR_LINES:
            self._found.append(line)
        elif self._found:
            self._left += 1
        self._before.append(line)
        self._last.append(line)

    def result(self) -> tuple[tuple[str, ...], int, int]:
        """Lines, the place of the error among them, and how many come after; the last lines where there is no error."""
        if self._found:
            return tuple(self._found), self._at, self._left
        return tuple(self._last), max(0, len(self._last) - 1), 0

    def _is_likely(self, line: str) -> bool:
        return _LIKELY.search(line) is not None or bool(self._message and self._message in line)


async def find_error(lines: AsyncIterable[str], cause: RootCause, *, note: str = "") -> FirstError:
    """The first error of a log."""
    finder = ErrorFinder(cause.message.strip())
    async for line in lines:
        finder.take(line)
    found, at, left = finder.result()
    return FirstError(cause, found, at, left, note)


async def first_error(gateway: KubeGateway, job: Job, selection: LogSelection) -> FirstError:
    """The first error of a job. Raises ApiError, and NothingToRead where nothing has failed.

    Where the pod's log is gone, the last lines that the job's status has are taken.
    """
    cause = job.status.root_cause
    if cause is None:
        raise no_failure(job)
    pods = await pods_of(gateway, job)
    each = next((each for each in pods if each.pod.name == cause.pod), None)
    if each is None or not has_log(each, selection):
        return await _remembered(cause, f"pod {cause.pod} is gone, and its log with it")
    try:
        async with aclosing(log_of(gateway, each, selection.query(each)).read(follow=False)) as lines:
            return await find_error((line.text async for line in lines), cause)
    except Forbidden:
        raise
    except ApiError as error:
        return await _remembered(cause, f"the log of pod {cause.pod} cannot be read: {error.message}")


def no_failure(job: Job) -> NothingToRead:
    """The refusal of a job of which no replica has failed."""
    return NothingToRead(f"{job.name}: no replica has failed: its state is {job.status.state or 'not known yet'}")


async def _remembered(cause: RootCause, why: str) -> FirstError:
    async def tail() -> AsyncIterable[str]:
        for line in cause.log_tail.splitlines():
            yield line

    return await find_error(tail(), cause, note=f"{why}; these are the last lines that the job's status has")
