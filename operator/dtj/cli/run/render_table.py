"""The live table of a run: a view goes in, a table for a terminal of some width comes out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from dtj.cli.common.console import Text, coloured_state
from dtj.cli.common.formatting import short_number, short_time
from dtj.local.view import ReplicaView, RunView


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


def _steps(view: ReplicaView) -> Text:
    progress = view.progress
    if progress.step is None:
        return Text("")
    if not progress.total_steps:
        return Text(str(progress.step))
    return Text(f"{progress.step}/{progress.total_steps} {100 * progress.step // progress.total_steps}%")


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
    _Column("Step", _steps, width=13, right=True),
    _Column("Loss", lambda view: Text(view.progress.metrics.get("loss", "")), width=9, least=50, right=True),
    _Column("Examples/s", _rate, width=10, least=66, right=True),
    _Column("ETA", _eta, width=6, least=58, right=True),
)
