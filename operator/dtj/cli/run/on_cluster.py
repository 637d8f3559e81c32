"""``dtj run --cluster``: submits manifests and follows them on a screen, one after the other."""

from __future__ import annotations

import asyncio

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.cli.common.connection import Typed, commands_in, format_api_error, with_client
from dtj.cli.common.console import TERMINAL_WIDTH, Console, Step, Text, next_block
from dtj.cli.common.formatting import listed
from dtj.cli.common.job_view import next_words, strategy_words
from dtj.cli.common.options import Place
from dtj.cli.common.submission import create_or_report, with_code_of
from dtj.cli.common.terminal import Exit, say
from dtj.cli.status.show import follow, job_console, job_screen, status_view
from dtj.client import ApiError, AsyncClient
from dtj.client.checks import Manifest, check, sound
from dtj.client.overview import gather


def run_files(files: tuple[str, ...], place: Place, *, code: str | None, timeout: float | None) -> int:
    """Submit each job of these files with the files of ``code``, and follow it to its end, up to the
    first that does not succeed. Returns the exit code."""
    console = job_console()
    checked = check(files, None)

    async def run_all(client: AsyncClient) -> int:
        jobs = with_code_of(client.placed(sound(checked)), code)
        await client.check(jobs)
        for number, (manifest, namespace) in enumerate(jobs, start=1):
            rest = [later.job.name for later, _ in jobs[number:]]
            exit_code = None
            try:
                exit_code = await _run_one(client, manifest, namespace, timeout=timeout, console=console)
            finally:  # also after Ctrl-C
                if rest and exit_code != Exit.OK:
                    console.print(Text(f"Not submitted: {listed(rest)}."), soft_wrap=True)
            if exit_code != Exit.OK:
                return exit_code
            if rest:
                console.print()
        return Exit.OK

    return with_client(place, run_all)


async def _run_one(
    client: AsyncClient, manifest: Manifest, namespace: str, *, timeout: float | None, console: Console
) -> int:
    job = await create_or_report(manifest, client, namespace=namespace)
    if job is None:
        return Exit.API
    typed = commands_in(job.namespace, usual=client.namespace)
    screen = job_screen(console, typed)
    screen.say(f"{job.name}: {strategy_words(manifest.spec)}, submitted to namespace {job.namespace}")
    try:
        with screen.shown():
            async with asyncio.timeout(timeout) as limit:
                first = await gather(client.gateway, job.name, namespace=job.namespace)
                last = await follow(client, first, screen, until=_is_over)
    except TimeoutError:
        if not limit.expired():
            raise
        _say_going_on(job, "The --timeout has expired.", console, typed)
        return Exit.TIMEOUT
    except asyncio.CancelledError:
        _say_going_on(job, "Detached.", console, typed)
        raise
    except ApiError as error:
        say(format_api_error(error), err=True)
        _say_going_on(job, "The job can no longer be followed.", console, typed)
        return Exit.API
    if not screen.draws:  # else it shows all of this already
        console.print(status_view(last, width=console.width, typed=typed))
    return _exit_code(last.job)


def _is_over(job: Job) -> bool:
    """Whether the job has ended, or the operator says that it cannot begin as it is written."""
    return job.status.terminal or job.status.is_true(Condition.INVALID)


def _exit_code(job: Job) -> int:
    if job.status.is_true(Condition.COMPLETE):
        return Exit.OK
    return Exit.FAILED if job.status.is_true(Condition.FAILED) else Exit.USAGE


def _say_going_on(job: Job, why: str, console: Console, typed: Typed) -> None:
    """Print that the command ends but the job does not, and how to come back to it."""
    console.print(Text(f"{why} {job.name} continues to run on the cluster."), soft_wrap=True)
    steps = [Step(typed(("dtj", *words)), purpose) for words, purpose in next_words(job)]
    for line in next_block(steps, width=console.width if console.is_terminal else TERMINAL_WIDTH):
        console.print(line, soft_wrap=True)
