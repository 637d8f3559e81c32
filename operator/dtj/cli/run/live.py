"""A run on this machine while it goes on: a table on a terminal, a line for each change elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from dtj.cli.common.console import Console, Screen, Text, coloured_state
from dtj.cli.common.formatting import short_number, short_time
from dtj.cli.common.job_view import metric_words, progress_words, step_words
from dtj.local.view import ReplicaView, RunView

LINE_INTERVAL: Final = 5.0
"""Seconds between two lines of progress where there is no terminal."""

_UNSAID: Final = "Pending"
"""The state that lasts for a moment and means nothing to a person."""


def screen(console: Console) -> Screen[RunView]:
    """The screen for one run: a table below the warnings so far, or lines."""
    return Screen(
        console,
        drawn=lambda view, width: run_table(view, width=width),
        lines=RunLines(),
        kept=warning_lines,
    )


# -- lines ------------------------------------------------------------------------------------------------------


class RunLines:
    """A line for each change, and one with the progress every few seconds if there is any."""

    def __init__(self) -> None:
        self._progress_at = 0.0
        self._progress: str | None = None

    def __call__(self, before: RunView | None, after: RunView) -> Iterator[str]:
        """What is to be said now."""
        yield from change_lines(before, after)
        progress = training_line(after) if after.elapsed >= self._progress_at else None
        if progress is not None and progress != self._progress:
            self._progress_at, self._progress = after.elapsed + LINE_INTERVAL, progress
            yield stamped(after, progress)


def change_lines(before: RunView | None, after: RunView) -> Iterator[str]:
    """One line for each new state, naming the replicas that are in it now."""
    known = {} if before is None else {replica.name: replica.state for replica in before.replicas}
    moved: dict[str, list[str]] = {}
    for replica in after.replicas:
        if replica.state not in (known.get(replica.name), _UNSAID):
            moved.setdefault(replica.state, []).append(replica.name)
    return (stamped(after, f"{', '.join(names)}: {state}") for state, names in moved.items())


def warning_lines(before: RunView | None, after: RunView) -> Iterator[str]:
    """One line for each warning that no replica reported before."""
    warned = {replica.progress.warning for replica in before.replicas} if before is not None else set()
    new = dict.fromkeys(each.progress.warning for each in after.replicas if each.progress.warning not in ("", *warned))
    return (stamped(after, f"warning: {warning}") for warning in new)


def training_line(view: RunView) -> str | None:
    """How far the training is, by the first replica that knows; None where none does, or that one is past it."""
    for replica in view.replicas:
        if replica.progress.step is not None:
            words = (*progress_words(replica.progress), *metric_words(replica.progress))
            return "  ".join(words) if replica.state == "Training" else None
    return None


def stamped(view: RunView, words: str) -> str:
    """The words, after how long the run has lasted."""
    return f"{short_time(view.elapsed):>6}  {words}"


# -- the table --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Column:
    """``width`` is what its cells need as a rule, ``least`` the width of terminals that have room for the column."""

    title: str
    cell: Callable[[ReplicaView], Text]
    width: int
    least: int = 0
    right: bool = False


def run_table(view: RunView, *, width: int) -> RenderableType:
    """A headline, a bar once the training has begun, and a line for each replica, in ``width`` columns."""
    roomy = width >= _ROOMY
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    columns = [column for column in _COLUMNS if width >= column.least]
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            # Else columns would move about while numbers grow.
            min_width=column.width if roomy else None,
            no_wrap=True,
            overflow="ellipsis",
        )
    for replica in view.replicas:
        table.add_row(*(column.cell(replica) for column in columns))
    return Group(_headline(view), *_bar(view, min(width, _ROOMY)), table)


def _bar(view: RunView, width: int) -> Iterator[RenderableType]:
    """How much of the training is done, by the first replica that knows."""
    for replica in view.replicas:
        progress = replica.progress
        if progress.step is not None and progress.total_steps:
            line = Table.grid()
            line.add_row(ProgressBar(total=progress.total_steps, completed=progress.step, width=width))
            yield line
            return


def _headline(view: RunView) -> Text:
    """What matters most comes first: a narrow terminal cuts the end off."""
    elapsed = (short_time(view.elapsed), "dim")
    parts = ((view.job, "bold"), "  ", coloured_state(view.state), "  ", elapsed, "  ", (view.strategy, "dim"))
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _rate(view: ReplicaView) -> Text:
    rate = view.progress.examples_per_second
    return Text(short_number(rate) if rate is not None else "")


def _eta(view: ReplicaView) -> Text:
    eta = view.progress.eta_seconds
    return Text(short_time(eta) if eta is not None and view.state == "Training" else "")


_ROOMY: Final = 72
"""Width of a terminal in which all columns stand side by side."""

_COLUMNS: Final = (
    _Column("Replica", lambda view: Text(view.name), width=11),
    _Column("State", lambda view: coloured_state(view.state), width=12),
    _Column("Step", lambda view: Text(step_words(view.progress)), width=13, right=True),
    _Column("Loss", lambda view: Text(view.progress.metrics.get("loss", "")), width=9, least=50, right=True),
    _Column("Examples/s", _rate, width=10, least=66, right=True),
    _Column("ETA", _eta, width=6, least=58, right=True),
)
