"""``dtj suspend``, ``resume``, ``scale`` and ``delete``: what a person may do to a job that is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command, format_api_error, next_command
from dtj.cli.common.formatting import KIND, named
from dtj.cli.common.options import Duration, JobName, WholeNumber
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

    return await _each(names, one)


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

    return await _each(names, one)


@click.command()
@click.argument("name", type=JobName())
@click.option("--replicas", type=WholeNumber(min=1), required=True, metavar="N", help="The new number of workers.")
@cluster_command
async def scale(client: AsyncClient, name: str, replicas: int) -> int:
    """Set the number of workers of an elastic job.

    All replicas restart from the last checkpoint with the new number of workers. The job needs spec.elastic.

    Exit codes: 0 done, 2 bad input, a job that is not elastic or has ended, 4 the cluster refused or does not answer.
    """
    await client.scale(name, replicas)
    say(f"{named(name)} scaled")
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
            say(f"{name} is still being deleted; see what is left: {next_command('list')}", err=True)
            raise
        say(f'{KIND} "{name}" deleted')

    return await _each(names, one)


async def _each(names: Iterable[str], do: Callable[[str], Awaitable[None]]) -> int:
    """Do it to each of them, also after one is refused. Returns the exit code of the first refusal."""
    from dtj.client import ApiError, InvalidRequest, Unavailable

    code = 0
    for name in dict.fromkeys(names):
        try:
            await do(name)
        except Unavailable:
            raise
        except InvalidRequest as error:
            say(str(error), err=True)
            code = code or Exit.USAGE
        except ApiError as error:
            say(format_api_error(error), err=True)
            code = code or Exit.API
    return code


def _check_timeout(wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise click.UsageError("--timeout limits --wait: give both")
