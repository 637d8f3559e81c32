"""The page of a job: a view goes in, one HTML document comes out that needs nothing else. Pure.

There is no script in it and its own policy forbids any, as well as every request: logs and messages are other people's
text. Each of them passes :func:`~dtj.cli.report.markup.safe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Final

from dtj.api.status import RootCause
from dtj.cli.report.curves import Curve
from dtj.cli.report.drawing import timeline
from dtj.cli.report.evidence import Log, Setting, Unread
from dtj.cli.report.look import Look
from dtj.cli.report.markup import safe
from dtj.cli.report.plots import plot, short_value
from dtj.cli.report.values import ValueRow
from dtj.cli.report.view import EventLine, PageView, clock
from dtj.core.outcome import how_replica_ended

_VALIDATION: Final = ' <span class="dim">held-out</span>'

MAX_PLOTS: Final = 12
"""Metrics that are drawn; the values of all of them are in the table."""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_LEGEND: Final = {
    Look.WAITING: "waiting",
    Look.STARTING: "starting, building the model",
    Look.RUNNING: "training",
    Look.SAVING: "evaluating, saving, finishing",
    Look.SUCCEEDED: "succeeded",
    Look.FAILED: "failed",
    Look.STOPPED: "stopped, restarted, gone",
}


def render_page(view: PageView) -> str:
    """The whole document."""
    return document(f"{view.name}: {view.state}", _head(view), _sections(view))


def document(title: str, head: str, sections: Iterable[tuple[str, str]]) -> str:
    """A whole document of a head and sections, each with its heading; those that are empty are left out."""
    body = "".join(f"<section><h2>{heading}</h2>{content}</section>" for heading, content in sections if content)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="generator" content="dtj report"><title>{safe(title)}</title>'
        f"<style>{_style()}</style></head>\n<body>{head}{body}</body></html>\n"
    )


def _style() -> str:
    return resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def _sections(view: PageView) -> Iterator[tuple[str, str]]:
    wrong = view.look is Look.FAILED or view.cause is not None
    yield ("What went wrong" if wrong else "Why it does not run"), _cause(view)
    yield "Timeline", _timeline(view)
    yield "Training", _curves(view.curves) + _values(view.values)
    yield "Configuration", _settings(view.settings)
    yield "Restarts", _restarts(view)
    yield "Events", _events(view.events)
    yield (
        "Logs",
        "".join(_log(log, opened=log == view.logs[0] and view.cause is not None) for log in view.logs)
        or ("" if view.has_logs else f'<p class="dim">dtj report {safe(view.name)} --logs includes them.</p>'),
    )
    yield "Spec", f"<details><summary>as it was submitted</summary><pre>{safe(view.spec)}</pre></details>"
    yield "Not here", _unread(view.unread)


def _head(view: PageView) -> str:
    facts = "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in view.facts)
    return (
        f'<header><h1>{safe(view.name)} <span class="badge {view.look}">{safe(view.state)}</span></h1>'
        f'<p class="source">{safe(view.source)}, as of {clock(view.taken_at)}</p><dl>{facts}</dl></header>'
    )


def _cause(view: PageView) -> str:
    if not view.why and view.cause is None:
        return ""
    why = f"<p>{safe(view.why)}</p>" if view.why else ""
    return f'<div class="card cause">{why}{_root_cause(view.cause) if view.cause is not None else ""}</div>'


def _root_cause(cause: RootCause) -> str:
    where = f"{cause.role}-{cause.index}" + (f" on {cause.node}" if cause.node else "")
    how = ", ".join(filter(None, (how_replica_ended(cause), cause.kind)))
    hint = f'<p class="hint">{safe(cause.hint)}</p>' if cause.hint else ""
    tail = cause.log_tail or cause.message
    words = f"<pre>{safe(tail)}</pre>" if tail else ""
    return f'<p>First to fail: <b>{safe(where)}</b> <span class="dim">{safe(how)}</span></p>{hint}{words}'


def _timeline(view: PageView) -> str:
    drawn = timeline(view.history)
    if not drawn:
        return ""
    used = {bar.look for row in view.history.rows for bar in row.bars}
    keys = "".join(
        f'<span><span class="key {look}"></span>{words}</span>' for look, words in _LEGEND.items() if look in used
    )
    span = view.history.span
    begun = f"<span>from {clock(span[0])}</span>" if span is not None else ""
    if view.history.pauses:
        keys += '<span><span class="key pause"></span>stopped, then resumed</span>'
    more = f"<span>{view.history.left_out} more pods are not drawn</span>" if view.history.left_out else ""
    return f'<div class="card">{drawn}<div class="legend">{begun}{keys}{more}</div></div>'


def _curves(curves: tuple[Curve, ...]) -> str:
    cards = "".join(
        f'<div class="card chart"><h3>{safe(curve.name)}</h3>{plot([("", curve)], number=number)}{_key(curve)}</div>'
        for number, curve in enumerate(curves[:MAX_PLOTS])
    )
    return f'<div class="curves">{cards}</div>' if cards else ""


def _key(curve: Curve) -> str:
    """What the lines of a plot are, if there is more than one kind."""
    kinds = {"trained": "training", "held-out": "held-out", "redone": "done again after a restart"}
    there = {"trained": True, "held-out": bool(curve.validation), "redone": bool(curve.redone)}
    if sum(there.values()) == 1:
        return ""
    keys = "".join(f'<span><span class="stroke {kind}"></span>{kinds[kind]}</span>' for kind in kinds if there[kind])
    return f'<div class="legend">{keys}</div>'


def _values(rows: tuple[ValueRow, ...]) -> str:
    body = "".join(
        f"<tr><td>{safe(row.name)}{_VALIDATION if row.validation else ''}</td>"
        + "".join(
            f'<td class="number">{short_value(point.value)} <span class="dim">at {point.step}</span></td>'
            for point in (row.last, row.lowest, row.highest)
        )
        + "</tr>"
        for row in rows
    )
    heads = "".join(f"<th>{word}</th>" for word in ("metric", "last", "lowest", "highest"))
    return f'<div class="wide"><table class="values"><tr>{heads}</tr>{body}</table></div>' if body else ""


def _settings(settings: tuple[Setting, ...]) -> str:
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.group, []).append(setting)
    cards = "".join(
        f'<div class="card"><h3>{safe(group)}</h3><table class="settings">'
        + "".join(f"<tr><td>{safe(each.name)}</td><td>{safe(each.value)}</td></tr>" for each in members)
        + "</table></div>"
        for group, members in groups.items()
    )
    return f'<div class="curves settings-groups">{cards}</div>' if cards else ""


def _restarts(view: PageView) -> str:
    counts = "".join(f"<div><dt>{safe(name)}</dt><dd>{number}</dd></div>" for name, number in view.restarts)
    return f'<div class="card"><dl>{counts}</dl></div>' if counts else ""


def _events(events: tuple[EventLine, ...]) -> str:
    rows = "".join(
        f'<tr class="{"warning" if event.warning else "normal"}">'
        f'<td class="time">{f"{event.at:%H:%M:%S}" if event.at is not None else ""}</td>'
        f'<td class="reason">{safe(event.reason)}{f" ×{event.times}" if event.times > 1 else ""}</td>'
        f'<td class="subject">{safe(event.subject)}</td><td>{safe(event.note)}</td></tr>'
        for event in events
    )
    return f"<table>{rows}</table>" if rows else ""


def _log(log: Log, *, opened: bool) -> str:
    lines = len(log.text.splitlines())
    return (
        f"<details{' open' if opened else ''}><summary>{safe(log.name)} "
        f'<span class="dim">last {lines} lines</span></summary>'
        f'<div class="end"><pre>{safe(log.text)}</pre></div></details>'
    )


def _unread(unread: tuple[Unread, ...]) -> str:
    rows = "".join(f"<tr><td>{safe(item.what)}</td><td>{safe(item.why)}</td></tr>" for item in unread)
    return f"<table>{rows}</table>" if rows else ""
