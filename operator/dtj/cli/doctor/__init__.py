"""``dtj doctor``: whether jobs can run on this cluster, and what to do if they cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dtj.cli.common.connection import cluster_command
from dtj.cli.common.options import NamespaceName
from dtj.cli.common.terminal import Exit

if TYPE_CHECKING:
    from dtj.client import AsyncClient


@click.command()
@click.option(
    "--operator-namespace",
    type=NamespaceName(),
    metavar="NAME",
    help="The namespace of the operator. Default: search all namespaces.",
)
@cluster_command
async def doctor(client: AsyncClient, operator_namespace: str | None) -> int:
    """Check the cluster and the installation, and say what to do.

    Nothing is changed. A check that needs a right you do not have is listed as not checked.

    Exit codes: 0 no check failed, 1 a check failed, 2 bad input, 4 the cluster does not answer.
    """
    from dtj.cli.common.console import Console
    from dtj.cli.doctor.checks import findings
    from dtj.cli.doctor.findings import Verdict, report
    from dtj.client.installation import inspect

    found = findings(await inspect(client.gateway, namespace=client.namespace, operator_namespace=operator_namespace))
    console = Console(highlight=False)
    for line in report(found, wrapped=console.is_terminal):
        console.print(line, soft_wrap=not console.is_terminal)
    return Exit.FAILED if any(finding.verdict is Verdict.FAIL for finding in found) else Exit.OK
