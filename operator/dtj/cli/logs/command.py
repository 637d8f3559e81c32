"""``dtj logs``: what the replicas of a job print, as one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command
from dtj.cli.common.durations import Duration
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.job_name import JobName
from dtj.cli.common.terminal import say

if TYPE_CHECKING:
    from dtj.client import AsyncClient


@click.command()
@click.argument("name", type=JobName())
@click.option("--role", metavar="ROLE", help="Show only replicas of this role: chief, worker, ps, …")
@click.option("--index", type=click.IntRange(min=0), metavar="N", help="Show only the replica with this index.")
@click.option("-c", "--container", metavar="NAME", help="Show this container. Default: the one that trains.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing new lines, across restarts, until the job ends.")
@click.option("-p", "--previous", is_flag=True, help="Show the previous pod of each replica, if it still exists.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Show only the last N lines of each pod.")
@click.option("--since", type=Duration(), metavar="TIME", help="Show only lines newer than 30s, 5m, 1h30m, …")
@click.option("--timestamps", is_flag=True, help="Start each line with the time at which it was written.")
@click.option(
    "--first-error", "only_error", is_flag=True, help="Show the first error of the replica that failed first."
)
@cluster_command
async def logs(
    client: AsyncClient,
    name: str,
    role: str | None,
    index: int | None,
    container: str | None,
    follow: bool,
    previous: bool,
    tail: int | None,
    since: float | None,
    timestamps: bool,
    only_error: bool,
) -> int:
    """Print the logs of a job's replicas, merged by time.

    Each line starts with the replica's name; with --role and --index there is no prefix. Ctrl-C ends the command, not
    the job.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 Ctrl-C.
    """
    import asyncio

    from dtj.cli.logs.output import Output, show_first_error
    from dtj.client.log_follower import follow_logs
    from dtj.client.logs import LogSelection, read_logs, select, silence

    selection = LogSelection(role=role, index=index, container=container, previous=previous, tail=tail, since=since)
    if follow and (previous or only_error):
        raise click.UsageError(f"--follow and {'--previous' if previous else '--first-error'} exclude each other")
    if only_error and (previous or role is not None or index is not None):
        raise click.UsageError("--first-error chooses the replica itself: leave --role, --index and --previous out")
    job = await client.get(name)
    output = Output(job, prefix=role is None or index is None, timestamps=timestamps)
    try:
        if only_error:
            return await show_first_error(client, job, selection)
        if follow:
            changes = follow_logs(client.gateway, job, selection, changes=lambda: client.follow(name))
            await output.show(changes)
            return Exit.OK
        pods = await select(client.gateway, job, selection)
        nothing = silence(pods, job, selection)
        if nothing:
            say(nothing, err=True)
        else:
            await output.show(read_logs(client.gateway, pods, selection))
    except asyncio.CancelledError:
        if not job.status.terminal:
            say(f"{name} continues to run.", err=True)
        raise
    return Exit.OK
