"""``dtj list``: the jobs of a namespace, or of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dtj.api.job import Job
from dtj.cli.cluster import cluster_command
from dtj.cli.exit_codes import Exit
from dtj.cli.quantities import short_time
from dtj.client import AsyncClient


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="The jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="Only jobs with these labels, such as team=a.")
@cluster_command
async def list_jobs(client: AsyncClient, all_namespaces: bool, selector: str) -> int:
    """List the jobs of a namespace.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer.
    """
    jobs = await client.list(all_namespaces=all_namespaces, selector=selector)
    if not jobs:
        where = "any namespace" if all_namespaces else f"namespace {client.namespace}"
        click.echo(f"No jobs in {where}.", err=True)
        return Exit.OK
    Console(highlight=False, soft_wrap=True).print(job_table(jobs, now=datetime.now(UTC), namespaced=all_namespaces))
    return Exit.OK


def job_table(jobs: Sequence[Job], *, now: datetime, namespaced: bool) -> Table:
    """A row for each job, with kubectl's columns."""
    columns = _COLUMNS if namespaced else _COLUMNS[1:]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for title, _ in columns:
        table.add_column(title, no_wrap=True)
    for job in jobs:
        table.add_row(*(Text(cell(job, now)) for _, cell in columns))
    return table


def _progress(job: Job, now: datetime) -> str:
    progress = job.status.progress
    return f"{progress.percent}%" if progress is not None and progress.percent is not None else ""


def _age(job: Job, now: datetime) -> str:
    return short_time((now - job.created_at).total_seconds()) if job.created_at is not None else ""


_COLUMNS: Final[tuple[tuple[str, Callable[[Job, datetime], str]], ...]] = (
    ("NAMESPACE", lambda job, now: job.namespace),
    ("NAME", lambda job, now: job.name),
    ("STATE", lambda job, now: job.status.state),
    ("STRATEGY", lambda job, now: str(job.spec.strategy) if job.spec is not None else ""),
    ("READY", lambda job, now: job.status.ready),
    ("PROGRESS", _progress),
    ("RESTARTS", lambda job, now: str(job.status.restarts.total)),
    ("AGE", _age),
)
