"""``dtj doctor``: whether jobs can run on this cluster, and what to do where not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click
from rich.console import RenderableType
from rich.table import Table

from dtj.cli.common.connection import cluster_command
from dtj.cli.common.exit_codes import Exit
from dtj.cli.common.terminal import Console, Text, stacked
from dtj.cli.doctor.checks import Finding, Verdict, findings
from dtj.client import AsyncClient
from dtj.client.installation import inspect

_COLOURS: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "dim"}

_VERDICT_WIDTH: Final = max(map(len, Verdict))


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
    for line in report(found, wrapped=console.is_terminal):
        console.print(line, soft_wrap=not console.is_terminal)
    return Exit.FAILED if any(finding.verdict is Verdict.FAIL for finding in found) else Exit.OK


def report(found: Sequence[Finding], *, wrapped: bool) -> Iterator[RenderableType]:
    """A line for each finding, its remedy below it, and how many of each there are. ``wrapped`` keeps words that do not
    fit a line below each other; without it, lines are as long as they are."""
    for finding in found:
        yield from _wrapped(finding) if wrapped else _plain(finding)
    counts = {verdict: len([f for f in found if f.verdict is verdict]) for verdict in Verdict}
    yield Text(", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count), style="bold")


def _wrapped(finding: Finding) -> Iterator[RenderableType]:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=_VERDICT_WIDTH)
    line.add_row(_verdict(finding), stacked(_words(finding)))
    yield line


def _plain(finding: Finding) -> Iterator[RenderableType]:
    margin = " " * (_VERDICT_WIDTH + 2)
    for place, words in enumerate(_words(finding)):
        if place:
            yield Text.assemble(margin, words)
        else:
            yield Text.assemble(_verdict(finding), margin[len(finding.verdict) :], words)


def _verdict(finding: Finding) -> Text:
    return Text(finding.verdict, style=_COLOURS[finding.verdict])


def _words(finding: Finding) -> Iterator[Text]:
    yield Text.assemble((f"{finding.title}: ", "bold"), finding.words)
    if finding.remedy:
        yield Text.assemble(("do: ", "dim"), finding.remedy)
