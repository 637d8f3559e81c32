"""Lines of logs as a terminal or a pipe gets them: a line goes in, a text comes out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dtj.cli.common.console import Text, coloured
from dtj.client.first_error import FirstError
from dtj.client.logs import LogLine
from dtj.core.outcome import how_replica_ended

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
    yield Text.assemble((f"{cause.role}-{cause.index}", "bold"), f" {how}", (f"  pod {cause.pod}{node}", "dim"))
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
