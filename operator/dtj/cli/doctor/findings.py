"""What comes of the checks of ``dtj doctor``, and how it is shown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from rich.console import RenderableType
from rich.table import Table

from dtj.cli.common.console import Text, stacked


class Verdict(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check, in a sentence, and what to do where it is not well. The table of checks has the title."""

    verdict: Verdict
    words: str
    remedy: str = ""
    title: str = ""


def ok(words: str) -> Finding:
    """It is well."""
    return Finding(Verdict.OK, words)


def warn(words: str, remedy: str) -> Finding:
    """Jobs run, or most do."""
    return Finding(Verdict.WARN, words, remedy)


def fail(words: str, remedy: str) -> Finding:
    """Jobs do not run."""
    return Finding(Verdict.FAIL, words, remedy)


def unknown(words: str) -> Finding:
    """It could not be read."""
    return Finding(Verdict.UNKNOWN, words)


# -- how they are shown -----------------------------------------------------------------------------------------

_COLOURS: Final = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "bold red", Verdict.UNKNOWN: "dim"}

_VERDICT_WIDTH: Final = max(map(len, Verdict))


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
