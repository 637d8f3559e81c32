"""The block "Next": commands that can be typed, each with what for, within the width of a terminal. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dtj.cli.common.console import Text

TERMINAL_WIDTH: Final = 80
"""What lines are made for if nobody knows how wide the reader's terminal is."""

_INDENT: Final = "  "
_GAP: Final = "  # "


@dataclass(frozen=True, slots=True)
class Step:
    """A command, as it is typed, and its purpose."""

    command: str
    purpose: str


def next_block(steps: Sequence[Step], *, width: int = TERMINAL_WIDTH) -> Iterator[Text]:
    """The heading and :func:`step_lines`, indented."""
    yield Text("Next")
    for line in step_lines(steps, width=width - len(_INDENT)):
        yield Text.assemble(_INDENT, line)


def step_lines(steps: Sequence[Step], *, width: int) -> Iterator[Text]:
    """The purposes below each other, behind the commands; above them if one would not fit into ``width``.

    A command is never broken: it is to be copied.
    """
    commands = [Text(step.command, style="bold") for step in steps]
    column = max((command.cell_len for command in commands), default=0)
    behind = all(column + Text(_GAP + step.purpose).cell_len <= width for step in steps)
    for command, step in zip(commands, steps, strict=True):
        if behind:
            yield Text.assemble(command, " " * (column - command.cell_len), (_GAP + step.purpose, "dim"))
            continue
        for piece in textwrap.wrap(step.purpose, max(width - len("# "), 1), break_on_hyphens=False):
            yield Text.assemble((f"# {piece}", "dim"))
        yield command
