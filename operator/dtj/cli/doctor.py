"""``dtj doctor``: whether jobs can run on this cluster, and what to do where not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from dtj.cli.cluster import cluster_command
from dtj.cli.doctor_checks import Finding, Verdict, findings
from dtj.cli.exit_codes import Exit
from dtj.client import AsyncClient
from dtj.client.installation import inspect

_COLOURS: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "dim"}


@click.command()
@click.option(
    "--operator-namespace", metavar="NAME", help="Where the operator runs; else it is looked for in all namespaces."
)
@cluster_command
async def doctor(client: AsyncClient, operator_namespace: str | None) -> int:
    """Check the cluster and the installation, and say what to do.

    Nothing is changed. What you may not look at is named as not checked.

    Exit codes: 0 nothing fails, 1 something does, 2 bad input, 4 the cluster does not answer.
    """
    found = findings(await inspect(client.gateway, namespace=client.namespace, operator_namespace=operator_namespace))
    console = Console(highlight=False)
    for line in report(found):
        console.print(line, soft_wrap=not console.is_terminal)
    return Exit.FAILED if any(finding.verdict is Verdict.FAIL for finding in found) else Exit.OK


def report(found: Sequence[Finding]) -> Iterator[RenderableType]:
    """A line for each finding, its remedy below it, and how many of each there are."""
    for finding in found:
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(width=11)
        line.add_column()
        line.add_row(Text(finding.verdict, style=_COLOURS[finding.verdict]), _words(finding))
        yield line
    counts = {verdict: len([f for f in found if f.verdict is verdict]) for verdict in Verdict}
    yield Text(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count), style="bold")


def _words(finding: Finding) -> Text:
    remedy = (f"\ndo: {finding.remedy}",) if finding.remedy else ()
    return Text.assemble((f"{finding.title}: ", "bold"), finding.words, *remedy)
