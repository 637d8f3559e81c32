"""``dtj logs``: what the replicas of a job print, as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import click

from dtj.api.job import Job
from dtj.cli.common.connection import cluster_command
from dtj.cli.common.durations import Duration
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.next_commands import next_command
from dtj.cli.common.terminal import Console, Text, copy_line, say
from dtj.cli.completion.command import JobName
from dtj.cli.logs.render import first_error_lines, log_text, plain_line
from dtj.client import AsyncClient
from dtj.client.first_error import first_error
from dtj.client.log_follower import follow_logs
from dtj.client.logs import LogLine, LogNote, LogSelection, read_logs, select, silence
from dtj.core.replicas import replicas


@click.command()
@click.argument("name", type=JobName())
@click.option("--role", metavar="ROLE", help="Only replicas of this role: chief, worker, ps, …")
@click.option("--index", type=click.IntRange(min=0), metavar="N", help="Only the replica of this index.")
@click.option("-c", "--container", metavar="NAME", help="This container; else the one that trains.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, across restarts, until the job has ended.")
@click.option("-p", "--previous", is_flag=True, help="Of each replica the pod before its newest, where it is kept.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each pod.")
@click.option("--since", type=Duration(), metavar="TIME", help="Only what is newer, such as 30s, 5m or 1h30m.")
@click.option("--timestamps", is_flag=True, help="Begin each line with the time at which it was written.")
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

    Each line begins with the name of its pod, less the job's; with --role and --index the lines stand alone. Ctrl-C
    ends the command, not the job.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 Ctrl-C.
    """
    selection = LogSelection(role=role, index=index, container=container, previous=previous, tail=tail, since=since)
    if follow and (previous or only_error):
        raise click.UsageError(f"--follow and {'--previous' if previous else '--first-error'} exclude each other")
    if only_error and (previous or role is not None or index is not None):
        raise click.UsageError("--first-error chooses the replica itself: leave --role, --index and --previous out")
    job = await client.get(name)
    output = _Output(job, prefix=role is None or index is None, timestamps=timestamps)
    try:
        if only_error:
            return await _show_first_error(client, job, selection)
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
            say(f"{name} goes on.", err=True)
        raise
    return Exit.OK


async def _show_first_error(client: AsyncClient, job: Job, selection: LogSelection) -> int:
    found = await first_error(client.gateway, job, selection)
    cause = found.cause
    more = next_command("logs", job.name, "--role", cause.role, "--index", str(cause.index))
    console = Console(highlight=False)
    for line in first_error_lines(found, more=more):
        console.print(line, soft_wrap=True)
    return Exit.OK


class _Output:
    """Standard output: in colours for a person, as they are for a file or a program. Notes go to standard error."""

    def __init__(self, job: Job, *, prefix: bool, timestamps: bool) -> None:
        self._console = Console(highlight=False)
        self._errors = Console(stderr=True, highlight=False)
        self._prefix = prefix
        self._timestamps = timestamps
        hostnames = [replica.hostname for replica in replicas(job.spec)] if job.spec is not None else []
        self._width = max(map(len, hostnames), default=0)

    async def show(self, lines: AsyncGenerator[LogLine | LogNote, None]) -> None:
        """Print what comes."""
        async with aclosing(lines):
            async for line in lines:
                if isinstance(line, LogNote):
                    self._errors.print(Text(line.words, style="dim"), soft_wrap=True)
                else:
                    self._print(line)

    def _print(self, line: LogLine) -> None:
        self._width = max(self._width, len(line.title))
        if self._console.is_terminal:
            text = log_text(line, width=self._width, prefix=self._prefix, timestamps=self._timestamps)
            self._console.print(text, soft_wrap=True)
        else:
            copy_line(plain_line(line, width=self._width, prefix=self._prefix, timestamps=self._timestamps))
