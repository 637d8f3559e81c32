"""Screens that are redrawn in place: the one rule for when a console can do that, and how it is drawn."""

from __future__ import annotations

from rich.live import Live

from dtj.cli.common.console import Console


def can_redraw(console: Console) -> bool:
    """Whether the console is a terminal that moves its cursor; elsewhere a command prints a line for each change."""
    return console.is_terminal and not console.is_dumb_terminal


def live(console: Console, *, cropped: bool) -> Live:
    """A display that is redrawn only by ``update(..., refresh=True)``, not by a thread of its own.

    ``cropped`` cuts what is higher than the terminal without a mark. Nothing is redirected: all that a command prints
    goes through its console.
    """
    return Live(
        console=console,
        auto_refresh=False,
        vertical_overflow="crop" if cropped else "ellipsis",
        redirect_stdout=False,
        redirect_stderr=False,
    )
