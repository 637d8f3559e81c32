"""Following the logs of a job: what there is, by time, and then each line as it comes, until the job has ended.

New pods (restarts, new attempts, more workers) join as they start. A connection that breaks is made again, also when
that takes long; only a missing right ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, Final, TypeAlias

from dtj.api.job import Job
from dtj.client.diagnosis import how_job_ended
from dtj.client.logs import (
    ContainerLog,
    LogLine,
    LogNote,
    LogSelection,
    has_log,
    log_of,
    merged,
    select,
    silence,
    unreadable,
)
from dtj.client.pods import JobPod, pods_of, selector_of
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Forbidden, NotFound
from dtj.kube.gateway import PODS
from dtj.kube.informer import Change, Informer
from dtj.kube.pod_logs import LogQuery
from dtj.kube.records import PodRecord, decode_pod
from dtj.kube.waiting import Backoff

_LINES_AHEAD: Final = 1000
"""How many lines wait to be shown before no more are read."""

_LAST_ATTEMPTS: Final = 3
"""How often the log of a pod that has ended is asked for in vain."""


_Item: TypeAlias = LogLine | LogNote | Exception | None
"""An error ends the following, and so does None."""


class LogFollower:
    """The logs of a job; ``changes`` follows the job, see :meth:`dtj.client.AsyncClient.follow`."""

    def __init__(
        self, gateway: KubeGateway, job: Job, selection: LogSelection, changes: Callable[[], AsyncGenerator[Job, None]]
    ) -> None:
        self._gateway = gateway
        self._job = job
        self._selection = selection
        self._changes = changes
        self._queue: asyncio.Queue[_Item] = asyncio.Queue(_LINES_AHEAD)
        self._pods: dict[str, JobPod] = {}
        self._begun: dict[str, ContainerLog] = {}  # what was read of the pods that were there at first
        self._changed = asyncio.Event()  # a new one after each change of a pod
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._noted: set[tuple[str, str]] = set()
        self._backoff = Backoff(base=0.5, cap=10.0)
        self._tasks: set[asyncio.Task[None]] = set()

    async def lines(self) -> AsyncGenerator[LogLine | LogNote, None]:
        """What :func:`~dtj.client.logs.read_logs` gives, and then what comes, until the job has ended or is deleted.

        Raises what :func:`~dtj.client.logs.select` raises, and Forbidden.
        """
        there = await select(self._gateway, self._job, self._selection)
        if not there and not self._job.status.terminal:
            yield LogNote(silence(there, self._job, self._selection))
        begun = [each for each in there if has_log(each, self._selection)]
        self._begun = {each.uid: log_of(self._gateway, each, self._selection.query(each)) for each in begun}
        async with aclosing(merged((each, self._begun[each.uid]) for each in begun)) as lines:
            async for line in lines:
                yield line
        self._spawn(self._watch_pods(), name="pods of the job")
        self._spawn(self._watch_job(), name="end of the job")
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> asyncio.Task[None]:
        """Do something next to the others; an error of it ends the following."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._spawn(self._queue.put(error), name="failure")

    # -- what there is -----------------------------------------------------------------------------------------

    async def _watch_pods(self) -> None:
        """Have a stream for each pod that is meant."""
        informer: Informer[PodRecord, JobPod] = Informer(
            self._gateway,
            PODS,
            namespace=self._job.namespace,
            selector=selector_of(self._job),
            decode=decode_pod,
            convert=partial(JobPod.of, form=self._job.form),
            on_change=self._on_change,
        )
        await informer.run()

    def _on_change(self, change: Change[JobPod]) -> None:
        if change.after is not None:
            self._see(change.after)
        elif change.before is not None:
            self._pods.pop(change.before.uid, None)
        self._stir()

    def _stir(self) -> None:
        """Have those look who wait for a pod to change."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _see(self, each: JobPod) -> None:
        """Take note of a pod, and follow it as soon as it has a log."""
        if not self._job.owns(each.pod) or not self._selection.selects(each):
            return
        self._pods[each.uid] = each
        if each.uid in self._streams:
            return
        if has_log(each, self._selection):
            self._streams[each.uid] = self._spawn(self._stream(each), name=f"log of {each.pod.name}")
        elif each.pod.blocker is not None:
            self._note(each, f"has not started: {each.pod.blocker.message}")
        elif each.pod.main_container_ended:
            self._note(each, f"ended before it started ({each.pod.message or each.pod.reason or each.pod.phase})")

    def _note(self, each: JobPod, words: str) -> None:
        """Say something of a pod, once. It is dropped where nobody reads fast enough."""
        if (each.uid, words) not in self._noted and not self._queue.full():
            self._noted.add((each.uid, words))
            self._queue.put_nowait(LogNote(f"{each.pod.name} {words}"))

    # -- one pod -----------------------------------------------------------------------------------------------

    async def _stream(self, each: JobPod) -> None:
        """Pass on a pod's lines that were not read yet, until its container has ended."""
        log = self._begun.get(each.uid)
        failures, whole = 0, False
        if log is None:
            log = log_of(self._gateway, each, LogQuery(container=self._selection.container_of(each)))
            which = f", attempt {each.pod.attempt}" if each.pod.attempt > 1 else ""
            await self._queue.put(LogNote(f"{each.pod.name} has started{which}"))
        while True:
            over, changed = self._is_over(each), self._changed
            try:
                async with aclosing(log.read(follow=not over)) as lines:
                    async for line in lines:
                        failures = 0
                        await self._queue.put(LogLine(each.title, each.pod.role, line))
                if over:
                    return
                failures, whole = 0, True
            except Forbidden:
                raise
            except ApiError as error:
                failures += 1
                if over and (isinstance(error, NotFound) or failures >= _LAST_ATTEMPTS):
                    # After a reading that came to its end there was nothing more, as a rule.
                    if not whole:
                        await self._queue.put(unreadable(each, error))
                    return
                whole = whole and isinstance(error, NotFound)
            with suppress(TimeoutError):  # the pod is soon seen to have ended, most likely
                await asyncio.wait_for(changed.wait(), self._backoff.delay(failures + 1))

    def _is_over(self, each: JobPod) -> bool:
        """Whether the container is known to have ended: the next read is the last."""
        now = self._pods.get(each.uid)
        return (
            now is None
            or now.pod.all_containers_ended
            or now.record.termination(self._selection.container_of(now)) is not None
        )

    # -- the job -----------------------------------------------------------------------------------------------

    async def _watch_job(self) -> None:
        """Wait for the job's end, and until all is read of the pods that have ended with it.

        Some may be left to run, by ``runPolicy.cleanPodPolicy``: those would never end.
        """
        words = await self._end_of_job()
        with suppress(ApiError):  # what the watch has shown must do
            for each in await pods_of(self._gateway, self._job):
                self._see(each)
        self._stir()
        for uid, stream in self._streams.items():
            known = self._pods.get(uid)
            if known is not None and not self._is_over(known):
                stream.cancel()
        await asyncio.gather(*self._streams.values(), return_exceptions=True)
        await self._queue.put(LogNote(words))
        await self._queue.put(None)

    async def _end_of_job(self) -> str:
        """How the job ended, once it has."""
        for delay in self._backoff:
            try:
                async with aclosing(self._changes()) as changes:
                    async for job in changes:
                        if job.uid != self._job.uid:
                            break
                        if job.status.terminal:
                            return how_job_ended(job)
                break
            except NotFound:
                break
            except ApiError:
                await asyncio.sleep(delay)
        return f"{self._job.name} was deleted"
