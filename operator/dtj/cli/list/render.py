"""Jobs as rows of a table with kubectl's columns: jobs go in, text comes out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from dtj.api.job import Job
from dtj.api.printable import one_line
from dtj.cli.common.formatting import short_number, short_time

Row: TypeAlias = tuple[str, ...]

_GAP: Final = 3

_MAX_CELL: Final = 63
"""Characters of the longest name; no state or reason of ours is longer, but anybody may write another."""


def job_rows(jobs: Iterable[Job], *, now: datetime, namespaced: bool, wide: bool) -> tuple[Row, ...]:
    """The titles, and a row for each job."""
    columns = (*(_NAMESPACE if namespaced else ()), *_COLUMNS, *(_WIDE if wide else ()))
    titles = tuple(title for title, _ in columns)
    return (titles, *(tuple(one_line(cell(job, now), _MAX_CELL) for _, cell in columns) for job in jobs))


def widths(rows: Sequence[Row], *, least: Sequence[int] = ()) -> tuple[int, ...]:
    """The width of each column, not below ``least``."""
    needed = tuple(max(map(len, column)) for column in zip(*rows, strict=True))
    return tuple(map(max, needed, least)) if least else needed


def padded(rows: Sequence[Row], *, least: Sequence[int] = ()) -> tuple[str, ...]:
    """The rows as lines; no column is narrower than ``least`` says."""
    wanted = widths(rows, least=least)
    return tuple(
        (" " * _GAP).join(cell.ljust(width) for cell, width in zip(row, wanted, strict=True)).rstrip() for row in rows
    )


def _progress(job: Job, now: datetime) -> str:
    progress = job.status.progress
    return progress.text if progress is not None else ""


def _age(job: Job, now: datetime) -> str:
    return short_time((now - job.created_at).total_seconds()) if job.created_at is not None else ""


def _state(job: Job, now: datetime) -> str:
    return "Deleting" if job.deleting else job.status.state


def _step(job: Job, now: datetime) -> str:
    progress = job.status.progress
    if progress is None or progress.step is None:
        return ""
    return f"{progress.step}/{progress.total_steps}" if progress.total_steps else str(progress.step)


def _rate(job: Job, now: datetime) -> str:
    progress = job.status.progress
    rate = progress.examples_per_second if progress is not None else None
    return short_number(rate) if rate is not None else ""


def _eta(job: Job, now: datetime) -> str:
    progress = job.status.progress
    eta = progress.eta_seconds if progress is not None and not job.status.terminal else None
    return short_time(eta) if eta is not None else ""


_Columns: TypeAlias = tuple[tuple[str, Callable[[Job, datetime], str]], ...]

_NAMESPACE: Final[_Columns] = (("NAMESPACE", lambda job, now: job.namespace),)
_COLUMNS: Final[_Columns] = (
    ("NAME", lambda job, now: job.name),
    ("STATE", _state),
    ("STRATEGY", lambda job, now: str(job.spec.strategy) if job.spec is not None else ""),
    ("READY", lambda job, now: job.status.ready),
    ("PROGRESS", _progress),
    ("RESTARTS", lambda job, now: str(job.status.restarts.total)),
    ("AGE", _age),
)
_WIDE: Final[_Columns] = (
    ("STEP", _step),
    ("EX/S", _rate),
    ("ETA", _eta),
    ("REASON", lambda job, now: job.status.reason),
)
