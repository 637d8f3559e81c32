"""``dtj suspend``, ``resume``, ``scale`` and ``delete``: what a person may do to a job that is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command, format_api_error, next_command, report_error, with_client
from dtj.cli.common.formatting import kind_and_name, named
from dtj.cli.common.options import (
    Duration,
    JobName,
    Place,
    WholeNumber,
    check_one_is_given,
    complete_run,
    place_options,
    runs_option,
)
from dtj.cli.common.terminal import Exit, say

if TYPE_CHECKING:
    from dtj.client import AsyncClient

_WAIT = click.option("--wait", is_flag=True, help="Wait until its pods are gone.")
_TIMEOUT = click.option(
    "--timeout",
    type=Duration(),
    metavar="DURATION",
    help="With --wait: at most this long, such as 90s or 10m.",
)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=JobName(tfjobs=True))
@_WAIT
@_TIMEOUT
@cluster_command
async def suspend(client: AsyncClient, names: tuple[str, ...], wait: bool, timeout: float | None) -> int:
    """Stop jobs so that they can be resumed.

    Their pods save a checkpoint within their grace period, and end. `dtj resume` continues from it.

    Exit codes: 0 done, 2 bad input or a job that has ended, 3 the timeout expired, 4 the cluster refused or does not
    answer.
    """
    _check_timeout(wait, timeout)

    async def one(name: str) -> None:
        if wait:
            await client.stop(name, timeout=timeout)
        else:
            await client.suspend(name)
        say(f"{named(name)} suspended")

    return await each(names, one)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=JobName(tfjobs=True))
@cluster_command
async def resume(client: AsyncClient, names: tuple[str, ...]) -> int:
    """Resume suspended jobs from their last checkpoint.

    Exit codes: 0 done, 2 bad input or a job that has ended, 4 the cluster refused or does not answer.
    """

    async def one(name: str) -> None:
        await client.resume(name)
        say(f"{named(name)} resumed")

    return await each(names, one)


@click.command()
@click.argument("name", type=JobName(), required=False)
@click.option(
    "--run",
    metavar="RUN",
    shell_complete=complete_run,
    help="Scale a run on this machine instead: its folder, or the name of its job.",
)
@runs_option("With --run: the folder that holds the runs.")
@click.option("--replicas", type=WholeNumber(min=1), required=True, metavar="N", help="The new number of workers.")
@place_options
def scale(name: str | None, run: str | None, runs: Path, replicas: int, place: Place) -> int:
    """Set the number of workers of an elastic job, or of a run on this machine with --run.

    With dtj-launch the pods of the others stay, and new workers join when they are ready. Else all replicas restart
    from the last checkpoint. The job needs spec.elastic.

    Exit codes: 0 done, 2 bad input, a job that is not elastic or has ended, 4 the cluster refused or does not answer.
    """
    check_one_is_given(name, run, place)
    if run is not None:
        return _scale_run(run, runs, replicas)
    job = name or ""

    async def in_cluster(client: AsyncClient) -> int:
        await client.scale(job, replicas)
        say(f"{named(job)} scaled")
        return Exit.OK

    return with_client(place, in_cluster)


def _scale_run(run: str, runs: Path, replicas: int) -> int:
    from dtj.local.run_directory import RunError, find
    from dtj.local.scaling import ask

    try:
        ask(find(run, runs), replicas)
    except (RunError, OSError) as error:
        say(str(error), err=True)
        return Exit.USAGE
    say(f"{run} scaled")
    return Exit.OK


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", type=JobName(tfjobs=True))
@_WAIT
@_TIMEOUT
@cluster_command
async def delete(client: AsyncClient, names: tuple[str, ...], wait: bool, timeout: float | None) -> int:
    """Delete jobs and their pods, without asking.

    Checkpoints in a volume of your own stay; those in a claim that the job created (checkpoint.claimTemplate) are
    deleted too. `dtj suspend` stops a job and loses nothing.

    Exit codes: 0 done, 2 bad input, 3 the timeout expired, 4 the cluster refused or does not answer.
    """
    import asyncio

    _check_timeout(wait, timeout)

    async def one(name: str) -> None:
        try:
            await client.delete(name, wait=wait, timeout=timeout)
        except asyncio.CancelledError:
            say(f"{name} is still being deleted; see what is left: {next_command(('dtj', 'list'))}", err=True)
            raise
        kind, plain = kind_and_name(name)
        say(f'{kind} "{plain}" deleted')

    return await each(names, one)


async def each(names: Iterable[str], do: Callable[[str], Awaitable[None]]) -> int:
    """Do it to each of them, also after one is refused or takes too long. Returns the exit code of the first."""
    from dtj.client import ApiError, ClientError, Unavailable

    code = 0
    for name in dict.fromkeys(names):
        try:
            await do(name)
        except Unavailable:
            raise
        except ApiError as error:
            say(format_api_error(error), err=True)
            code = code or Exit.API
        except ClientError as error:
            said = report_error(error)
            code = code or said
    return code


def _check_timeout(wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise click.UsageError("--timeout limits --wait: give both")
