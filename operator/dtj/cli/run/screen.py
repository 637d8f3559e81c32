"""Showing a run until it ends: a live table on a terminal, one line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from dtj.cli.common.console import Console, Text, can_redraw, live
from dtj.cli.common.next_steps import TERMINAL_WIDTH
from dtj.cli.run.render_end import fitted
from dtj.cli.run.render_lines import change_lines, progress_words, stamped, warning_lines
from dtj.cli.run.render_table import run_table
from dtj.local.view import RunView

LINE_INTERVAL: Final = 5.0
"""Seconds between two lines of progress where there is no terminal."""


def print_summary(console: Console, lines: Iterable[Text]) -> None:
    """The last lines of a run. On a terminal, values are wrapped between words; a pipe gets each line whole."""
    for line in lines:
        for part in fitted(line, width=console.width) if console.is_terminal else (line,):
            console.print(part, soft_wrap=True)


def width_of(console: Console) -> int:
    """The columns that commands and their purposes have; a pipe may be read anywhere."""
    return console.width if console.is_terminal else TERMINAL_WIDTH


class Screen(Protocol):
    """Where a run is shown. The context it gives surrounds one run."""

    def shown(self) -> AbstractContextManager[object]:
        """The context of one run."""

    def show(self, view: RunView) -> None:
        """The run as it is now."""

    def say(self, line: str) -> None:
        """A line that stays, above whatever moves."""


def screen(console: Console) -> Screen:
    """The screen that suits the console."""
    return TableScreen(console) if can_redraw(console) else LineScreen(console)


class TableScreen:
    """A table that is redrawn in place, below the warnings so far."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: RunView | None = None
        self._live = live(console, cropped=False)

    def shown(self) -> AbstractContextManager[object]:
        self._before = None
        self._live = live(self._console, cropped=False)
        return self._live

    def show(self, view: RunView) -> None:
        for line in warning_lines(self._before, view):
            self.say(line)
        self._before = view
        self._live.update(run_table(view, width=self._console.width), refresh=True)

    def say(self, line: str) -> None:
        self._console.print(Text(line))


class LineScreen:
    """A line for each change, and one with the progress every few seconds if there is any."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: RunView | None = None
        self._progress_at = 0.0
        self._progress: str | None = None

    def shown(self) -> AbstractContextManager[object]:
        self._before, self._progress_at, self._progress = None, 0.0, None
        return nullcontext()

    def show(self, view: RunView) -> None:
        for line in change_lines(self._before, view):
            self.say(line)
        self._before = view
        progress = progress_words(view) if view.elapsed >= self._progress_at else None
        if progress is not None and progress != self._progress:
            self._progress_at, self._progress = view.elapsed + LINE_INTERVAL, progress
            self.say(stamped(view, progress))

    def say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)
