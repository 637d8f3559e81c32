"""``dtj run --cluster``: submits manifests and follows them on a screen, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import Job
from dtj.api.names import Condition, Reason
from dtj.api.spec import JobSpec
from dtj.api.status import Progress
from dtj.cli.common.connection import commands_in, format_api_error, with_client
from dtj.cli.common.console import Console, Screen, Text
from dtj.cli.common.formatting import listed
from dtj.cli.common.job_view import lasted, strategy_words
from dtj.cli.common.options import Place
from dtj.cli.common.submission import create_or_report, with_code_of
from dtj.cli.common.terminal import Exit, say
from dtj.cli.run.live import screen, stamped
from dtj.cli.run.summary import CommandLine, end_of_job, next_commands, print_summary, width_of
from dtj.client import ApiError, AsyncClient, Forbidden, JobGone, Pod
from dtj.client.checks import Manifest, check, sound
from dtj.core.replicas import deciding_replica, replicas
from dtj.local.view import RunView, newest_pods, run_view

TICK: Final = 1.0
"""Seconds between two looks at a job that does not change: its time goes on."""

_NO_NEWS: Final = frozenset(
    {Reason.PENDING, Reason.WAITING_FOR_PODS, Reason.ALL_PODS_READY, Reason.STOPPING_PODS, Reason.JOB_FINISHED}
)
"""Reasons for which pods are ready or not that the replicas' own states tell as well."""


def run_files(files: tuple[str, ...], place: Place, *, code: str | None, timeout: float | None) -> int:
    """Submit each job of these files with the files of ``code``, and follow it to its end, up to the
    first that does not succeed. Returns the exit code."""
    console = Console(highlight=False)
    checked = check(files, None)

    async def run_all(client: AsyncClient) -> int:
        found = client.placed(sound(checked))
        jobs = with_code_of((manifest for manifest, _ in found), code)
        await client.check((job, where) for job, (_, where) in zip(jobs, found, strict=True))
        for number, (job, (_, namespace)) in enumerate(zip(jobs, found, strict=True), start=1):
            rest = [later.job.name for later in jobs[number:]]
            try:
                exit_code = await _run_one(client, job, namespace, timeout=timeout, console=console)
            except asyncio.CancelledError:
                _say_rest(rest, console)
                raise
            if exit_code != Exit.OK:
                _say_rest(rest, console)
                return exit_code
            if number < len(jobs):
                console.print()
        return Exit.OK

    return with_client(place, run_all)


async def _run_one(
    client: AsyncClient, manifest: Manifest, namespace: str, *, timeout: float | None, console: Console
) -> int:
    job = await create_or_report(manifest, client, namespace=namespace)
    if job is None:
        return Exit.API
    again = commands_in(job.namespace, usual=client.namespace)
    shown = screen(console)
    shown.say(f"{job.name}: {strategy_words(manifest.spec)}, submitted to namespace {job.namespace}")
    try:
        with shown.shown():
            async with asyncio.timeout(timeout) as limit:
                job = await follow(client, job, shown)
    except TimeoutError:
        if not limit.expired():
            raise
        _say_going_on(job, "The --timeout has expired.", console, again)
        return Exit.TIMEOUT
    except asyncio.CancelledError:
        _say_going_on(job, "Detached.", console, again)
        raise
    except ApiError as error:
        say(format_api_error(error), err=True)
        _say_going_on(job, "The job can no longer be followed.", console, again)
        return Exit.API
    print_summary(console, end_of_job(job, again=again, now=datetime.now(UTC), width=width_of(console)))
    return _exit_code(job)


def _exit_code(job: Job) -> int:
    if job.status.is_true(Condition.COMPLETE):
        return Exit.OK
    return Exit.FAILED if job.status.is_true(Condition.FAILED) else Exit.USAGE


def _say_going_on(job: Job, why: str, console: Console, again: CommandLine) -> None:
    """Print that the command ends but the job does not, and how to come back to it."""
    console.print(Text(f"{why} {job.name} continues to run on the cluster."), soft_wrap=True)
    for line in next_commands(job, again=again, width=width_of(console)):
        console.print(line, soft_wrap=True)


def _say_rest(names: Sequence[str], console: Console) -> None:
    if names:
        console.print(Text(f"Not submitted: {listed(names)}."), soft_wrap=True)


# -- following ----------------------------------------------------------------------------------------------------


async def follow(client: AsyncClient, job: Job, shown: Screen[RunView]) -> Job:
    """Show the job until it has ended, or is found invalid; its last state.

    Raises JobGone where it is deleted meanwhile, and ApiError.
    """
    followed = _FollowedJob(job, shown)
    async with aclosing(client.follow(job.name, namespace=job.namespace)) as jobs:
        watching = (asyncio.create_task(followed.see_job(jobs)), asyncio.create_task(followed.see_pods(client)))
        try:
            while True:
                followed.changed.clear()
                followed.show()
                if followed.over:
                    return followed.job
                for task in watching:
                    if task.done():
                        task.result()
                with suppress(TimeoutError):
                    await asyncio.wait_for(followed.changed.wait(), TICK)
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


class _FollowedJob:
    """The job and its pods as they were seen last, and whether there is more to see."""

    def __init__(self, job: Job, shown: Screen[RunView]) -> None:
        self.job = job
        self.changed = asyncio.Event()
        self._shown_job = job
        self._pods: tuple[Pod, ...] = ()
        self._shown = shown

    @property
    def over(self) -> bool:
        """Whether the job has ended, or the operator says that it cannot begin as it is written."""
        return self.job.status.terminal or self.job.status.is_true(Condition.INVALID)

    def show(self) -> None:
        """The job as it is now, and what has happened to it since the last time."""
        view = self._view()
        for words in news(self._shown_job, self.job):
            self._shown.say(stamped(view, words))
        self._shown_job = self.job
        self._shown.show(view)

    async def see_job(self, jobs: AsyncGenerator[Job, None]) -> None:
        """Keep the job true. Raises JobGone at its deletion, and ApiError."""
        try:
            async for self.job in jobs:
                self.changed.set()
            raise JobGone(f"{self.job.name}: was deleted", job=self.job)
        finally:
            self.changed.set()

    async def see_pods(self, client: AsyncClient) -> None:
        """Keep the pods up to date, if the user may read them."""
        try:
            async with aclosing(client.follow_pods(self.job)) as pods:
                async for self._pods in pods:
                    self.changed.set()
        except Forbidden as error:
            self._shown.say(f"Its pods cannot be shown: {error.message}")
        finally:
            self.changed.set()

    def _view(self) -> RunView:
        assert self.job.spec is not None, "the manifest was checked"
        return cluster_view(self.job, self.job.spec, self._pods, now=datetime.now(UTC))


# -- what is seen ---------------------------------------------------------------------------------------------------


def cluster_view(job: Job, spec: JobSpec, pods: Iterable[Pod], *, now: datetime) -> RunView:
    """The job at ``now``; of a replica that says nothing here it is known whether its pod is ready."""
    pods = tuple(pods)
    newest = newest_pods(pods)
    quiet, starting = Progress(), Progress(phase="Gate")
    progress = {
        replica: quiet if (pod := newest.get(replica)) is not None and pod.ready else starting
        for replica in replicas(spec)
    }
    decider = deciding_replica(spec)
    if decider is not None and job.status.progress is not None and job.status.progress.reported:
        progress[decider] = job.status.progress
    started = [replica.hostname for replica in replicas(spec)] if job.status.terminal else ()
    return run_view(job, spec, pods=pods, progress=progress, elapsed=lasted(job, now=now), started=started)


def news(before: Job, after: Job) -> tuple[str, ...]:
    """What happened to the job between two looks at it that its replicas' states do not tell, a line each."""
    kinds = [Condition.SUSPENDED, Condition.RESTARTING, Condition.PROGRESS_STALLED]
    if not any(after.status.is_true(kind) for kind in kinds):  # else that is why not all pods are ready
        kinds.append(Condition.PODS_READY)
    changed = (kind for kind in kinds if _reason(before, kind) != _reason(after, kind))
    return tuple(message for kind in changed if (message := _message(after, kind)))


def _message(job: Job, kind: Condition) -> str:
    """The text of a condition for a reader; empty if there is nothing to show."""
    condition = job.status.condition(kind)
    if condition is None:
        return ""
    if kind is Condition.PODS_READY:
        telling = condition.status != "True" and condition.reason not in _NO_NEWS
    else:
        telling = condition.status == "True"
    if not telling:
        return ""
    return f"{condition.reason}: {condition.message}" if condition.message else condition.reason


def _reason(job: Job, kind: Condition) -> tuple[str, str] | None:
    """What a condition says in one word; its message may change all the time."""
    condition = job.status.condition(kind)
    return (condition.status, condition.reason) if condition is not None else None
