"""``dtj wait``: returns when a job has ended, or is in some condition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command, next_command
from dtj.cli.common.formatting import named
from dtj.cli.common.options import Duration, JobName
from dtj.cli.common.terminal import Exit, say

if TYPE_CHECKING:
    from dtj.client import AsyncClient


@click.command()
@click.argument("name", type=JobName(tfjobs=True))
@click.option(
    "--for",
    "wanted",
    metavar="CONDITION",
    help="complete, failed, ready, suspended or any other condition of a job. Default: complete or failed.",
)
@click.option(
    "--timeout",
    type=Duration(zero=True),
    metavar="DURATION",
    help="The longest time to wait, such as 600s or 10m; 0 checks once. Default: no limit.",
)
@cluster_command
async def wait(client: AsyncClient, name: str, wanted: str | None, timeout: float | None) -> int:
    """Wait for a job's end, or for a condition.

    Exit codes: 0 the job has ended without failure, or the condition is true; 1 the job failed, ended without the
    condition or was deleted; 2 bad input; 3 the timeout expired; 4 the cluster refused or does not answer; 130 after
    Ctrl-C, and the job continues to run.
    """
    import asyncio

    from dtj.api.names import Condition

    try:
        job = await client.wait(name, wanted, timeout=timeout)
    except asyncio.CancelledError:
        say(f"{name} continues to run; wait again: {next_command(('dtj', 'wait', name))}", err=True)
        raise
    if wanted is not None:
        say(f"{named(name)} condition met")
        return Exit.OK
    failed = job.status.when_true(Condition.FAILED)
    say(f"{named(name)} {'failed' if failed is not None else 'complete'}")
    if failed is not None:
        say(f"{name}: {failed.message or failed.reason}", err=True)
        return Exit.FAILED
    return Exit.OK
