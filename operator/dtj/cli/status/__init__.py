"""``dtj status``: all that is known of one job, gathered first and then shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from dtj.cli.common.connection import cluster_command
from dtj.cli.common.options import JobName

if TYPE_CHECKING:
    from dtj.client import AsyncClient


_SHOWN: Final = 10
"""The most names in one error."""


@click.command()
@click.argument("name", type=JobName(tfjobs=True), required=False)
@click.option("-w", "--watch", is_flag=True, help="Show each change until the job ends.")
@cluster_command
async def status(client: AsyncClient, name: str | None, watch: bool) -> int:
    """Show how far a job is, and why it does not run.

    Without NAME, it shows the only job of the namespace.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 after Ctrl-C.
    """
    from dtj.cli.status import show

    name = name or await _only_job(client)
    return await show.watch(client, name) if watch else await show.show_once(client, name)


async def _only_job(client: AsyncClient) -> str:
    """The name of the only job of the namespace.

    Raises:
        UsageError: there is none, or more than one.
    """
    from dtj.client.job_names import typed

    found = [typed(job) for job in await client.list(tfjobs=True)]
    if not found:
        raise click.UsageError(f"there are no jobs in namespace {client.namespace}; dtj list -A shows those of all")
    if len(found) > 1:
        shown = ", ".join(found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
        raise click.UsageError(f"there are {len(found)} jobs in namespace {client.namespace}; name one: {shown}")
    return found[0]
