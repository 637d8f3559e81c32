"""Prints lines of logs: in colours on a terminal, unchanged for a file or a program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial
from typing import Final

from dtj.api.job import Job
from dtj.cli.common.connection import next_command
from dtj.cli.common.console import Console, Text, coloured
from dtj.cli.common.terminal import Exit, copy_line, say
from dtj.client import AsyncClient
from dtj.client.job_names import typed
from dtj.client.log_follower import LogFollower
from dtj.client.logs import FirstError, LogLine, LogNote, LogSelection, first_error, read_logs, select, silence
from dtj.core.outcome import how_replica_ended
from dtj.core.replicas import replicas


async def show_job(
    client: AsyncClient, name: str, selection: LogSelection, *, follow: bool, only_error: bool, timestamps: bool
) -> int:
    """Print the logs of a job. Returns the exit code. Raises ApiError and NothingToRead."""
    job = await client.get(name)
    output = Output(job, prefix=selection.role is None or selection.index is None, timestamps=timestamps)
    try:
        if only_error:
            found = await first_error(client.gateway, job, selection)
            replica = ("--role", found.cause.role, "--index", str(found.cause.index))
            console = Console(highlight=False)
            for line in first_error_lines(found, more=next_command(("dtj", "logs", typed(job), *replica))):
                console.print(line, soft_wrap=True)
            return Exit.OK
        if follow:
            await output.show(LogFollower(client.gateway, job, selection, partial(client.follow, name)).lines())
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


class Output:
    """Standard output: in colours on a terminal, unchanged for a file or a program. Notes go to standard error."""

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


# -- lines ------------------------------------------------------------------------------------------------------

_COLOURS: Final = {
    "chief": "magenta",
    "worker": "cyan",
    "ps": "yellow",
    "evaluator": "green",
    "dispatcher": "blue",
    "data-worker": "bright_blue",
}


def log_text(line: LogLine, *, width: int, prefix: bool, timestamps: bool) -> Text:
    """A line with its pod's title before it, ``width`` wide. A progress bar that was drawn over and over is shown as it
    was drawn last; other control characters are dropped, colours stay where the console has any."""
    parts = [Text(f"{line.title:<{width}} | ", style=_COLOURS.get(line.role, "white"))] if prefix else []
    if timestamps and line.line.stamp:
        parts.append(Text(f"{line.line.stamp} ", style="dim"))
    return Text.assemble(*parts, coloured(line.line.text.rstrip("\r")))


def plain_line(line: LogLine, *, width: int, prefix: bool, timestamps: bool) -> str:
    """The same for a file or a program: the line as it was written."""
    title = f"{line.title:<{width}} | " if prefix else ""
    stamp = f"{line.line.stamp} " if timestamps and line.line.stamp else ""
    return f"{title}{stamp}{line.line.text}"


def first_error_lines(found: FirstError, *, more: str) -> Iterator[Text]:
    """Who failed and how, the lines around the first error, and what to do; ``more`` shows the whole log."""
    cause = found.cause
    node = f" on node {cause.node}" if cause.node else ""
    how = how_replica_ended(cause)
    yield Text.assemble((cause.hostname, "bold"), f" {how}", (f"  pod {cause.pod}{node}", "dim"))
    if found.note:
        yield Text(found.note, style="yellow")
    for place, line in enumerate(found.lines):
        text = coloured(line.rstrip("\r"))
        if place == found.at:
            text.stylize("bold red")
        yield Text.assemble((f"{'>' if place == found.at else ' '} ", "bold red"), text)
    if found.left:
        yield Text(f"  … {found.left} more lines", style="dim")
    if cause.hint:
        yield Text.assemble(("hint: ", "bold"), cause.hint)
    yield Text.assemble(("all of it: ", "dim"), (more, "bold"))
