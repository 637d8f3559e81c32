"""``dtj status``: all that is known of one job, gathered first and then shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command
from dtj.cli.common.job_name import JobName

if TYPE_CHECKING:
    from dtj.client import AsyncClient


@click.command()
@click.argument("name", type=JobName())
@click.option(
    "-o", "--output", "form", type=click.Choice(["json", "yaml"]), help="Print everything that is known, for programs."
)
@click.option("-w", "--watch", is_flag=True, help="Show each change until the job ends.")
@cluster_command
async def status(client: AsyncClient, name: str, form: str | None, watch: bool) -> int:
    """Show how far a job is, and why it does not run.

    Exit codes: 0 done, 2 bad input, 4 the cluster refused or did not answer, 130 Ctrl-C.
    """
    if form is not None and watch:
        raise click.UsageError("--watch and --output exclude each other: use kubectl get dtj NAME --watch -o …")
    from dtj.cli.status import show

    return await show.watch(client, name) if watch else await show.show_once(client, name, form=form)
