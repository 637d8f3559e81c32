"""What the replicas of a job print: one log, all of them merged by time, and the first error of the one that failed.

No line is given twice, and none is left out because a connection broke: reading continues where it stopped. Kubelets
find a position in a log by whole seconds. Therefore the lines of the newest seconds are remembered, and are not
returned a second time.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import Job, parse_time
from dtj.api.spec import as_role
from dtj.api.status import RootCause
from dtj.client.diagnosis import explaining_condition
from dtj.client.errors import ClientError
from dtj.client.pods import JobPod, pods_of
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden, NotFound
from dtj.kube.pod_logs import LogQuery, StampedLine

MAX_AT_ONCE: Final = 200
"""Logs that are read at the same time: each takes a connection."""

_BEGINNING: Final = datetime.min.replace(tzinfo=UTC)


class NothingToRead(ClientError):
    """No log fits what was asked for; the message says why, and what there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """Whose lines, and which of them. What is None, or empty, is not asked for."""

    role: str | None = None
    index: int | None = None
    container: str | None = None
    """Else the container that trains."""

    previous: bool = False
    """Whether of each replica the pod before its newest is meant."""

    tail: int | None = None
    """This many of the last lines of each pod."""

    since: float | None = None
    """Not what is older than this many seconds."""

    def selects(self, each: JobPod) -> bool:
        """Whether the pod's replica is meant."""
        if self.role is None and as_role(each.pod.role) is None:
            return False
        return self.role in (None, each.pod.role) and self.index in (None, each.pod.index)

    def query(self, each: JobPod) -> LogQuery:
        """What is asked of the pod's kubelet."""
        since = max(1, round(self.since)) if self.since is not None else None
        return LogQuery(container=self.container_of(each), tail=self.tail, since_seconds=since)

    def container_of(self, each: JobPod) -> str:
        """The container that is meant."""
        return self.container or each.record.main_container


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a pod. ``title`` is the pod's name without the job's."""

    title: str
    role: str
    line: StampedLine

    def __str__(self) -> str:
        return f"{self.title} | {self.line.text}"


@dataclass(frozen=True, slots=True)
class LogNote:
    """Something that is no line of any log, but explains what comes next or does not."""

    words: str

    def __str__(self) -> str:
        return self.words


def log_of(gateway: KubeGateway, each: JobPod, query: LogQuery) -> ContainerLog:
    """The log of a container of a pod."""
    return ContainerLog(gateway, query, namespace=each.pod.namespace, pod=each.pod.name)


async def select(gateway: KubeGateway, job: Job, selection: LogSelection) -> tuple[JobPod, ...]:
    """The pods that are meant, those without a log yet too.

    Raises ApiError, and NothingToRead where a role, an index or a container is none of the job's.
    """
    pods = tuple(each for each in await pods_of(gateway, job) if selection.selects(each))
    if not pods:
        check_replica(job, selection)
    if selection.previous:
        pods = _before_newest(pods)
    _check_container(pods, selection)
    if len(pods) > MAX_AT_ONCE:
        raise NothingToRead(
            f"{len(pods)} pods are more than can be read at once ({MAX_AT_ONCE}): choose some with --role and --index"
        )
    return pods


def _check_container(pods: Iterable[JobPod], selection: LogSelection) -> None:
    named = dict.fromkeys(name for each in pods for name in each.containers)
    if selection.container and named and selection.container not in named:
        raise NothingToRead(f'--container: no container "{selection.container}": there are {", ".join(named)}')


def check_replica(job: Job, selection: LogSelection) -> None:
    """Raises NothingToRead where the job, as it is now, wants no such replica."""
    counts = {str(role): job.spec.pods(role) for role in job.spec.roles()} if job.spec is not None else {}
    role, index = selection.role, selection.index
    if counts and role is not None and role not in counts:
        raise NothingToRead(f'--role: {job.name} has no role "{role}": it has {", ".join(counts)}')
    most = counts.get(role, 0) if role is not None else max(counts.values(), default=0)
    if counts and index is not None and index >= most:
        raise NothingToRead(f"--index: {job.name} has no {role or 'replica'} {index}: the last one is {most - 1}")


def _before_newest(pods: Iterable[JobPod]) -> tuple[JobPod, ...]:
    """Of each replica the pod before its newest."""
    by_replica: dict[tuple[str, int], list[JobPod]] = {}
    for each in pods:
        by_replica.setdefault(each.replica, []).append(each)
    return tuple(incarnations[-2] for incarnations in by_replica.values() if len(incarnations) > 1)


def read_logs(
    gateway: KubeGateway, pods: Iterable[JobPod], selection: LogSelection
) -> AsyncGenerator[LogLine | LogNote, None]:
    """All lines that there are now, by time. What cannot be read is explained by a note. Raises Forbidden."""
    return merged((each, log_of(gateway, each, selection.query(each))) for each in pods if has_log(each, selection))


async def merged(logs: Iterable[tuple[JobPod, ContainerLog]]) -> AsyncGenerator[LogLine | LogNote, None]:
    """The unread lines of several logs by time; of each log they stay in their order. Raises Forbidden."""
    streams = [_dated(each, log) for each, log in logs]
    try:
        # All of them have answered before one of them is closed: a reading cannot be closed while it is awaited.
        first = await asyncio.gather(*(anext(stream, None) for stream in streams), return_exceptions=True)
        heads: list[tuple[datetime, int, LogLine | LogNote]] = []
        for place, found in enumerate(first):
            if isinstance(found, BaseException):
                raise found
            if found is not None:
                heapq.heappush(heads, (found[0], place, found[1]))
        while heads:
            _, place, item = heads[0]
            yield item
            found = await anext(streams[place], None)
            if found is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (found[0], place, found[1]))
    finally:
        for stream in streams:
            await stream.aclose()


async def _dated(owner: JobPod, log: ContainerLog) -> AsyncGenerator[tuple[datetime, LogLine | LogNote], None]:
    """The unread lines of a log, each with the newest time until then, and why no more can be read. Raises
    Forbidden."""
    at = _BEGINNING
    try:
        async with aclosing(log.read(follow=False)) as lines:
            async for line in lines:
                at = line.at or at
                yield at, LogLine(owner.title, owner.pod.role, line)
    except Forbidden:
        raise
    except ApiError as error:
        yield at, unreadable(owner, error)


def unreadable(owner: JobPod, error: ApiError) -> LogNote:
    """That a log cannot be read, and why."""
    if isinstance(error, NotFound):
        return LogNote(f"{owner.pod.name}: its log is gone")
    return LogNote(f"{owner.pod.name}: its log cannot be read: {error.message}")


def has_log(each: JobPod, selection: LogSelection) -> bool:
    """Whether the container that is meant has begun."""
    return each.record.has_begun(selection.container_of(each))


def silence(pods: Iterable[JobPod], job: Job, selection: LogSelection) -> str:
    """Why there is nothing to read, in one line; empty where there is something."""
    pods = tuple(pods)
    if any(has_log(each, selection) for each in pods):
        return ""
    if selection.previous and not pods:
        return f"{job.name}: no earlier pod exists: only failed pods are kept (runPolicy.cleanPodPolicy)"
    blocked = next((each for each in pods if each.pod.blocker is not None), None)
    if blocked is not None and blocked.pod.blocker is not None:
        return f"{blocked.pod.name} has not started: {blocked.pod.blocker.message}"
    if pods:
        return f"{job.name}: {', '.join(each.pod.name for each in pods)} has not started yet"
    return f"{job.name} has no such pods at present: {_state(job)}"


def _state(job: Job) -> str:
    """The job's state, with the message of the condition that explains it."""
    because = explaining_condition(job)
    state = job.status.state or "no operator has seen it yet"
    return f"{state} ({because.message})" if because is not None else state


# -- one log, read in several requests --------------------------------------------------------------------------

_OVERLAP_SECONDS: Final = 1
"""How long before the newest line a reading begins again: output and errors are not written in perfect order."""


_LOST: Final = ("unable to retrieve container logs for ", "failed to try resolving symlinks in path ")
"""What a kubelet says, without a timestamp, in place of a log that it has no more (kubernetes, pkg/kubelet)."""


class ContainerLog:
    """``query`` says what is wanted the first time."""

    def __init__(self, gateway: KubeGateway, query: LogQuery, *, namespace: str, pod: str) -> None:
        self._gateway = gateway
        self._query = query
        self._namespace = namespace
        self._pod = pod
        self._newest: int | None = None
        self._passed_on: dict[int, Counter[bytes]] = {}

    async def read(self, *, follow: bool) -> AsyncGenerator[StampedLine, None]:
        """The lines that were not read yet; with ``follow`` until the container ends.

        Raises ApiError, NotFound where pod or log are gone.
        """
        repeated = sum(self._passed_on.values(), Counter[bytes]())
        async with aclosing(self._gateway.log(self._next(follow), namespace=self._namespace, pod=self._pod)) as lines:
            async for raw in lines:
                if repeated[raw]:
                    repeated[raw] -= 1
                    continue
                line = parse_line(raw)
                if line.at is None and line.text.startswith(_LOST):
                    raise NotFound(line.text)
                self._remember(line, raw)
                yield line

    def _next(self, follow: bool) -> LogQuery:
        if self._newest is None:
            return replace(self._query, follow=follow)
        since = datetime.fromtimestamp(self._newest - _OVERLAP_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return replace(self._query, follow=follow, tail=None, since_time=since)

    def _remember(self, line: StampedLine, raw: bytes) -> None:
        if line.at is None:
            return
        second = int(line.at.timestamp())
        if self._newest is None or second > self._newest:
            self._newest = second
            for old in [old for old in self._passed_on if old < second - _OVERLAP_SECONDS]:
                del self._passed_on[old]
        self._passed_on.setdefault(second, Counter())[raw] += 1


def parse_line(raw: bytes) -> StampedLine:
    """A line as the kubelet gives it: a timestamp, a space, and what the container has written."""
    whole = raw.decode(errors="replace")
    stamp, _, text = whole.partition(" ")
    at = parse_time(stamp) if stamp[:1].isdecimal() else None
    return StampedLine(stamp, at, text) if at is not None else StampedLine("", None, whole)


# -- where the trouble began ------------------------------------------------------------------------------------

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

    def __init__(self, cause: RootCause) -> None:
        self._cause = cause
        self._message = cause.message.strip()
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

    def result(self, *, note: str = "") -> FirstError:
        """The first error; where there is none, the last lines, with the last of them as its place."""
        if self._found:
            return FirstError(self._cause, tuple(self._found), self._at, self._left, note)
        return FirstError(self._cause, tuple(self._last), max(0, len(self._last) - 1), 0, note)

    def _is_likely(self, line: str) -> bool:
        return _LIKELY.search(line) is not None or bool(self._message and self._message in line)


async def first_error(gateway: KubeGateway, job: Job, selection: LogSelection) -> FirstError:
    """The first error of a job. Raises ApiError, and NothingToRead where nothing has failed.

    Where the pod's log is gone, the last lines that the job's status has are taken.
    """
    cause = cause_of(job)
    pods = await pods_of(gateway, job)
    each = next((each for each in pods if each.pod.name == cause.pod), None)
    if each is None:
        return _remembered(cause, f"pod {cause.pod} is gone, and its log with it")
    _check_container((each,), selection)
    end = each.pod.termination
    if selection.container is None and end is not None and end.init_container:
        selection = replace(selection, container=end.init_container)
    if not has_log(each, selection):
        return _remembered(cause, f"container {selection.container_of(each)} of pod {cause.pod} has no log")
    finder = ErrorFinder(cause)
    try:
        async with aclosing(log_of(gateway, each, selection.query(each)).read(follow=False)) as lines:
            async for line in lines:
                finder.take(line.text)
    except Forbidden:
        raise
    except ApiError as error:
        return _remembered(cause, f"the log of pod {cause.pod} cannot be read: {error.message}")
    return finder.result()


def cause_of(job: Job) -> RootCause:
    """Which replica failed first. Raises NothingToRead where none has failed."""
    if job.status.root_cause is None:
        raise NothingToRead(f"{job.name}: no replica has failed: its state is {job.status.state or 'not known yet'}")
    return job.status.root_cause


def _remembered(cause: RootCause, why: str) -> FirstError:
    finder = ErrorFinder(cause)
    for line in cause.log_tail.splitlines():
        finder.take(line)
    return finder.result(note=f"{why}; these are the last lines that the job's status has")
