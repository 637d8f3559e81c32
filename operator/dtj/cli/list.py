"""``dtj list``: the jobs of a namespace, or of all, in the columns that ``kubectl get dtj`` has."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from dtj.api.printable import one_line
from dtj.cli.common.connection import cluster_command
from dtj.cli.common.formatting import columns, short_time
from dtj.cli.common.terminal import Exit, say

if TYPE_CHECKING:
    from dtj.api.json import JsonObject
    from dtj.client import AsyncClient

Row: TypeAlias = tuple[str, ...]

_GAP: Final = 3

_MAX_CELL: Final = 63
"""Characters of the longest name; no state or reason of ours is longer, but anybody may write another."""


def _wide(_context: click.Context, _option: click.Parameter, value: str | None) -> bool:
    if value not in (None, "wide"):
        raise click.UsageError(f"-o {value}: -o wide is all there is here: use kubectl get dtj -o {value}")
    return value is not None


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="List jobs with these labels, such as team=a.")
@click.option("-o", "--output", "wide", metavar="wide", callback=_wide, help="Show more columns.")
@cluster_command
async def list_jobs(client: AsyncClient, all_namespaces: bool, selector: str, wide: bool) -> int:
    """List the jobs of a namespace, by name.

    TFJobs of Kubeflow that you may list are among them, as tfjob/NAME.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer.
    """
    found = await client.list_objects(all_namespaces=all_namespaces, selector=selector, tfjobs=True)
    if not found:
        say(f"No jobs in {'any namespace' if all_namespaces else f'namespace {client.namespace}'}.", err=True)
    else:
        rows = job_rows(found, now=datetime.now(UTC), namespaced=all_namespaces, wide=wide)
        for line in columns(rows, gap=_GAP):
            say(line)
    return Exit.OK


def job_rows(jobs: Iterable[JsonObject], *, now: datetime, namespaced: bool, wide: bool) -> tuple[Row, ...]:
    """The titles, and a row for each job: its name, and the columns that the CRD lists."""
    from dtj.api.crd import PRINTER_COLUMNS

    columns = [("Namespace", "string", ".metadata.namespace")] if namespaced else []
    columns += [("Name", "string", ".metadata.name")]
    columns += [(name, kind, path) for name, kind, path, priority in PRINTER_COLUMNS if wide or not priority]
    titles = tuple(name.upper() for name, _, _ in columns)
    return (
        titles,
        *(tuple(_cell(job, kind, path, now) for _, kind, path in columns) for job in map(_in_columns, jobs)),
    )


def _in_columns(body: JsonObject) -> JsonObject:
    """A job as the columns read it: a TFJob with the operator's record as its status, or as Kubeflow's operator left
    it, and its name as it is typed."""
    from dtj.api.job import Job, form_of
    from dtj.api.json import dig, fields_of, objects, text
    from dtj.client.job_names import typed

    form = form_of(body)
    if not form.recorded_in:
        return body
    job, status = Job.from_object(body), fields_of(body.get("status"))
    record = fields_of(status.get(form.recorded_in))
    holding = [text(each.get("type")) for each in objects(status.get("conditions")) if each.get("status") == "True"]
    return {
        "metadata": {**fields_of(body.get("metadata")), "name": typed(job)},
        "spec": {"strategy": str(job.spec.strategy)} if job.spec is not None else {},
        "status": {**record, "state": dig(record, "state") or (holding[-1] if holding else None)},
    }


def _cell(job: JsonObject, kind: str, path: str, now: datetime) -> str:
    """What kubectl shows of a value. Of a job on its way out, kubectl shows the last state; here it is Deleting."""
    from dtj.api.job import parse_time
    from dtj.api.json import dig

    value = dig(job, *path.removeprefix(".").split("."))
    if path == ".status.state" and dig(job, "metadata", "deletionTimestamp") is not None:
        return "Deleting"
    if kind == "date":
        moment = parse_time(value)
        return short_time((now - moment).total_seconds()) if moment is not None else ""
    if kind == "integer" and isinstance(value, float):
        return str(round(value))
    return one_line(str(value), _MAX_CELL) if value is not None else ""
