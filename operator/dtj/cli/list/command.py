"""``dtj list``: the jobs of a namespace, or of all."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from dtj.cli.common.connection import cluster_command
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.objects import dumped
from dtj.cli.common.terminal import say, write

if TYPE_CHECKING:
    from dtj.client import AsyncClient

_FORMS: Final = ("wide", "json", "yaml", "name")


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@click.option("-l", "--selector", default="", metavar="LABELS", help="List jobs with these labels, such as team=a.")
@click.option("-o", "--output", type=click.Choice(_FORMS), help="More columns, whole objects, or names alone.")
@click.option("-w", "--watch", is_flag=True, help="Keep showing changes until Ctrl-C.")
@cluster_command
async def list_jobs(client: AsyncClient, all_namespaces: bool, selector: str, output: str | None, watch: bool) -> int:
    """List the jobs of a namespace, by name.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 after Ctrl-C.
    """
    from dtj.api.job import Job
    from dtj.cli.list.render import job_rows, padded

    if watch and output not in (None, "wide"):
        raise click.UsageError(f"--watch shows a table: use it without -o {output}")
    if watch:
        return await _watch(client, all_namespaces, selector, wide=output == "wide")
    found = await client.list_objects(all_namespaces=all_namespaces, selector=selector)
    if output in ("json", "yaml"):
        write(dumped(found, output))
        return Exit.OK
    if not found:
        say(nothing(client, all_namespaces), err=True)
    elif output == "name":
        write(dumped(found, output))
    else:
        jobs = list(map(Job.from_object, found))
        rows = job_rows(jobs, now=datetime.now(UTC), namespaced=all_namespaces, wide=output == "wide")
        for line in padded(rows):
            say(line)
    return Exit.OK


def nothing(client: AsyncClient, all_namespaces: bool) -> str:
    """That there are no jobs, and where."""
    return f"No jobs in {'any namespace' if all_namespaces else f'namespace {client.namespace}'}."


async def _watch(client: AsyncClient, all_namespaces: bool, selector: str, *, wide: bool) -> int:
    from dtj.cli.common.console import Console
    from dtj.cli.list.screen import jobs_screen

    shown = jobs_screen(
        Console(highlight=False), namespaced=all_namespaces, wide=wide, empty=nothing(client, all_namespaces)
    )
    changes = client.follow_all(all_namespaces=all_namespaces, selector=selector)
    async with aclosing(changes):
        await shown.run(changes)
    return Exit.OK
