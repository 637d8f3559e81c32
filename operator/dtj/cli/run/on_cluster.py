"""``dtj run --cluster``: submits manifests and follows them, one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.spec import JobSpec
from dtj.cli.common.connection import Place, commands_in, format_api_error, with_client
from dtj.cli.common.console import Console, Text
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.formatting import counted, listed
from dtj.cli.common.submission import Submission, create_or_report, submissions
from dtj.cli.common.terminal import say
from dtj.cli.run.follow import follow
from dtj.cli.run.render_cluster_end import CommandLine, end_of_job, next_commands
from dtj.cli.run.screen import print_summary, screen, width_of
from dtj.client import ApiError, AsyncClient
from dtj.client.checks import check
from dtj.client.manifests import sound


def run_files(files: tuple[str, ...], place: Place, *, code: str | None, timeout: float | None) -> int:
    """Submit each job of these files with the files of ``code``, and follow it to its end, up to the
    first that does not succeed. Returns the exit code."""
    console = Console(highlight=False)
    checked = check(files, None)

    async def run_all(client: AsyncClient) -> int:
        found = client.placed(sound(checked))
        jobs = submissions((manifest for manifest, _ in found), code)
        await client.check((job.manifest, where) for job, (_, where) in zip(jobs, found, strict=True))
        for number, (job, (_, namespace)) in enumerate(zip(jobs, found, strict=True), start=1):
            rest = [later.manifest.job.name for later in jobs[number:]]
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
    client: AsyncClient, submission: Submission, namespace: str, *, timeout: float | None, console: Console
) -> int:
    submitted = await create_or_report(submission, client, namespace=namespace)
    if submitted is None:
        return Exit.API
    job, _ = submitted
    again = commands_in(job.namespace, usual=client.namespace)
    shown = screen(console)
    shown.say(_first_line(job, submission.manifest.spec))
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


def _first_line(job: Job, spec: JobSpec) -> str:
    roles = listed(counted(spec.replicas(role), role) for role in spec.roles())
    return f"{job.name}: {spec.strategy} with {roles}, submitted to namespace {job.namespace}"


def _say_going_on(job: Job, why: str, console: Console, again: CommandLine) -> None:
    """Print that the command ends but the job does not, and how to come back to it."""
    console.print(Text(f"{why} {job.name} continues to run on the cluster."), soft_wrap=True)
    for line in next_commands(job, again=again, width=width_of(console)):
        console.print(line, soft_wrap=True)


def _say_rest(names: Sequence[str], console: Console) -> None:
    if names:
        console.print(Text(f"Not submitted: {listed(names)}."), soft_wrap=True)
