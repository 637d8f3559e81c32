"""Two or more runs on one page: their curves in the same plots, and what differs between them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dtj.cli.report.configuration import configuration
from dtj.cli.report.curves import Curve
from dtj.cli.report.evidence import Evidence
from dtj.cli.report.markup import safe
from dtj.cli.report.page import MAX_PLOTS, document
from dtj.cli.report.plots import plot, short_value
from dtj.cli.report.redaction import LEFT_OUT
from dtj.cli.report.secret_shapes import REDACTED
from dtj.cli.report.view import PageView, page_view

_Matrix = list[tuple[str, list[str]]]
"""Rows of a table: a name, and a value for each run, empty if it has none."""


@dataclass(frozen=True, slots=True)
class _Run:
    title: str
    view: PageView
    settings: dict[str, str]


def render_comparison(evidences: Sequence[Evidence], *, originals: Sequence[Evidence]) -> str:
    """The whole document. ``originals`` are the same with their secrets: only whether these differ is shown."""
    runs = [
        _Run(title, page_view(evidence), {f"{each.group}: {each.name}": each.value for each in configuration(evidence)})
        for title, evidence in zip(_titles(evidences), evidences, strict=True)
    ]
    title = " and ".join(run.title for run in runs)
    head = f'<header><h1>{safe(title)}</h1><p class="source">{len(runs)} runs on this machine</p></header>'
    return document(title, head, _sections(runs, secretly_alike=_secretly_alike(evidences, originals)))


def _secretly_alike(evidences: Sequence[Evidence], originals: Sequence[Evidence]) -> bool:
    """Whether what is left out of the configuration is the same in all runs."""
    hidden = {
        frozenset(configuration(original)) - frozenset(configuration(evidence))
        for evidence, original in zip(evidences, originals, strict=True)
    }
    return len(hidden) == 1


def _titles(evidences: Sequence[Evidence]) -> list[str]:
    """The names of the jobs. Runs of the same job also get what differs between them."""
    counts = Counter(evidence.name for evidence in evidences)
    sources = (evidence.source.removeprefix("run ").removesuffix(" on this machine") for evidence in evidences)
    return [
        evidence.name if counts[evidence.name] == 1 else f"{evidence.name} {source}"
        for evidence, source in zip(evidences, sources, strict=True)
    ]


def _sections(runs: list[_Run], *, secretly_alike: bool) -> Iterator[tuple[str, str]]:
    facts = [{"state": run.view.state, **dict(run.view.facts)} for run in runs]
    settings = [run.settings for run in runs]
    differing: _Matrix = []
    alike: _Matrix = []
    for row in _rows(settings):
        left_out = any(mark in value for mark in (LEFT_OUT, REDACTED) for value in row[1])
        same = len(set(row[1])) == 1 and (secretly_alike or not left_out)
        (alike if same else differing).append(row)
    yield "Runs", _table(runs, _rows(facts))
    yield "Training", _curves(runs)
    yield "Last values", _table(runs, _values(runs))
    yield "Different configuration", _table(runs, differing) or "<p>There is no difference.</p>"
    table = _table(runs, alike)
    yield "Same configuration", f"<details><summary>{len(alike)} values</summary>{table}</details>" if table else ""


def _rows(columns: Sequence[dict[str, str]]) -> _Matrix:
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, [column.get(name, "") for column in columns]) for name in names]


def _values(runs: list[_Run]) -> _Matrix:
    return _rows([
        {
            f"{row.name}, held-out" if row.validation else row.name: f"{short_value(row.last.value)} at {row.last.step}"
            for row in run.view.values
        }
        for run in runs
    ])  # fmt: skip


def _table(runs: list[_Run], rows: _Matrix) -> str:
    if not rows:
        return ""
    heads = "".join(
        f'<th><span class="stroke run{number}"></span>{safe(run.title)}</th>' for number, run in enumerate(runs)
    )
    body = "".join(
        f'<tr><td class="dim">{safe(name)}</td>{"".join(f"<td>{safe(value)}</td>" for value in values)}</tr>'
        for name, values in rows
    )
    return f'<div class="wide"><table class="values"><tr><th></th>{heads}</tr>{body}</table></div>'


def _curves(runs: list[_Run]) -> str:
    by_name: dict[str, list[tuple[str, Curve]]] = {}
    nothing = Curve("", ())
    for run in runs:
        for curve in run.view.curves:
            by_name.setdefault(curve.name, [(each.title, nothing) for each in runs])
    for number, run in enumerate(runs):
        for curve in run.view.curves:
            by_name[curve.name][number] = (run.title, curve)
    cards = "".join(
        f'<div class="card chart"><h3>{safe(name)}</h3>{plot(curves, number=number)}{_key(curves)}</div>'
        for number, (name, curves) in enumerate([*by_name.items()][:MAX_PLOTS])
    )
    return f'<div class="curves">{cards}</div>' if cards else ""


def _key(curves: list[tuple[str, Curve]]) -> str:
    keys = "".join(
        f'<span><span class="stroke run{number}"></span>{safe(title)}</span>'
        for number, (title, curve) in enumerate(curves)
        if curve.points
    )
    dashed = "<span>dashed: held-out</span>" if any(curve.validation for _, curve in curves) else ""
    return f'<div class="legend">{keys}{dashed}</div>'
