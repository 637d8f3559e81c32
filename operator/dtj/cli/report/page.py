"""The page of a job: evidence goes in, one HTML document comes out that needs nothing else. Pure.

There is no script in it and its own policy forbids any, as well as every request: logs and messages are other people's
text. Each of them passes :func:`~dtj.cli.report.drawing.safe`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib import resources
from typing import Final

from dtj.api.form import DTJ
from dtj.api.goodput import Goodput, Use
from dtj.api.job import Job
from dtj.api.names import Condition, State
from dtj.api.status import RootCause
from dtj.cli.common.formatting import as_yaml, short_time
from dtj.cli.common.job_view import JobView, goodput_words, job_view, last_words, step_words, use_words
from dtj.cli.report.drawing import Curve, curves, plot, safe, short_value, stacked, timeline
from dtj.cli.report.evidence import AT_THE_END, VALIDATION, Evidence, Unread
from dtj.cli.report.timeline import History, Look, history
from dtj.client.job_names import typed
from dtj.client.overview import Event
from dtj.core.outcome import how_replica_ended
from dtj.local.run_directory import STOPPED

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_LOOKS: Final[dict[str, Look]] = {
    **dict.fromkeys(State, Look.STARTING),
    State.SUCCEEDED: Look.SUCCEEDED,
    State.FAILED: Look.FAILED,
    State.RUNNING: Look.RUNNING,
    State.SUSPENDED: Look.STOPPED,
    STOPPED: Look.STOPPED,
}
"""By the state of a job, or of a run on this machine that was stopped."""

_LEGEND: Final = {
    Look.WAITING: "waiting",
    Look.STARTING: "starting, building the model",
    Look.RUNNING: "training",
    Look.SAVING: "evaluating, saving, finishing",
    Look.SUCCEEDED: "succeeded",
    Look.FAILED: "failed",
    Look.STOPPED: "stopped, restarted, gone",
}


_USES: Final = {
    Look.RUNNING: (Use.TRAINING,),
    Look.FAILED: (Use.REPEATED,),
    Look.SAVING: (Use.CHECKPOINTING, Use.VALIDATING),
    Look.STARTING: (Use.STARTING, Use.RECOVERING),
    Look.STOPPED: (Use.STALLED, Use.INPUT),
    Look.WAITING: (Use.OTHER, Use.QUEUED, Use.SUSPENDED),
}
"""How time is drawn, by what it went to; in the order of the bar."""


def render_page(evidence: Evidence) -> str:
    """The whole document; sections that would be empty are left out."""
    job, known = Job.from_object(evidence.job), history(evidence)
    view = job_view(job)
    state, look = job.status.state or "not known", _LOOKS.get(job.status.state, Look.WAITING)
    facts = _definitions(_facts(evidence, job, view, known))
    sections = "".join(
        f"<section><h2>{heading}</h2>{content}</section>"
        for heading, content in _sections(evidence, job, view, known)
        if content
    )
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="generator" content="dtj report">
<title>{safe(f"{job.name}: {state}")}</title><style>{style}</style></head>
<body><header><h1>{safe(job.name)} <span class="badge {look}">{safe(state)}</span></h1>
<p class="source">{safe(evidence.source)}, as of {clock(evidence.taken_at)}</p>{facts}</header>
{sections}</body></html>
"""


def clock(moment: datetime) -> str:
    """``2026-01-02 03:04:05 UTC``, in the moment's own zone."""
    return f"{moment:%Y-%m-%d %H:%M:%S} {moment.tzname() or ''}".rstrip()


def _facts(evidence: Evidence, job: Job, view: JobView, known: History | None) -> Iterator[tuple[str, str]]:
    """Those of ``dtj status``, when it ran, how far it came, and what was measured at the end."""
    status, progress = job.status, job.status.progress
    # A run on this machine has no namespace, and pulls no image.
    elsewhere = {"namespace", "attempt"} | ({"image"} if evidence.on_this_machine else set())
    facts = {name: words for name, words in view.facts.items() if name not in elsewhere}
    model, _ = facts.pop("model", ""), facts.pop("goodput", "")
    yield from facts.items()
    if view.ready and not status.completion_time:
        yield "ready", view.ready
    if known is not None and known.spans:
        yield "started", clock(known.spans[0][0])
        parts = f" in {len(evidence.earlier) + 1} starts" if evidence.earlier else ""
        yield ("took" if status.completion_time else "so far"), f"{short_time(known.ran_seconds)}{parts}"
    if progress is not None and progress.step is not None:
        yield "step", step_words(progress)
        # The status of a job that has ended does not know of its last checkpoint.
        if progress.last_checkpoint_step is not None and not status.is_true(Condition.COMPLETE):
            yield "last checkpoint", f"step {progress.last_checkpoint_step}"
    ends = {each.name.removeprefix(AT_THE_END): each for each in evidence.scalars if each.name.startswith(AT_THE_END)}
    yield from ((f"held-out {name}", short_value(end.number)) for name, end in ends.items())
    if model:
        yield "model", model


def _sections(evidence: Evidence, job: Job, view: JobView, known: History | None) -> Iterator[tuple[str, str]]:
    why = "" if job.status.is_true(Condition.COMPLETE) else view.why
    cause = job.status.root_cause
    wrong = job.status.state == State.FAILED or cause is not None
    yield "What went wrong" if wrong else "Why it does not run", _cause(why, cause)
    yield "Timeline", _timeline(known)
    yield "Goodput", _goodput(job.status.goodput)
    starts = (*known.restarts, *known.changes) if known is not None else ()
    yield "Training", _curves(curves(evidence.scalars, [at for at, _ in starts]))
    yield "Configuration", _configuration(evidence, job)
    yield "Events", _table(map(_event, evidence.events), kind="events")
    yield "Logs", "".join(_logs(evidence, cause))
    yield "Objects", "".join(_objects(evidence))
    yield (
        "Not here",
        _table(((*map(safe, item),) for item in (*_left_out(evidence, job), *evidence.unread)), kind="settings"),
    )


# -- parts ------------------------------------------------------------------------------------------------------


def _card(content: str, *, kind: str = "") -> str:
    return f'<div class="card {kind}">{content}</div>' if content else ""


def _definitions(pairs: Iterable[tuple[str, str]]) -> str:
    found = "".join(f"<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>" for name, value in pairs)
    return f"<dl>{found}</dl>" if found else ""


def _table(rows: Iterable[Iterable[str]], *, kind: str = "", heads: str = "") -> str:
    """Of cells that are HTML."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<table class="{kind}">{heads}{body}</table>' if body else ""


def _dim(content: str) -> str:
    return f'<span class="dim">{safe(content)}</span>'


def _legend(keys: dict[str, str]) -> str:
    """The meaning of each mark, which is given by its class."""
    return "".join(f'<span><span class="{mark}"></span>{words}</span>' for mark, words in keys.items())


# -- sections ---------------------------------------------------------------------------------------------------


def _cause(why: str, cause: RootCause | None) -> str:
    content = f"<p>{safe(why)}</p>" if why else ""
    if cause is not None:
        where = cause.hostname + (f" on {cause.node}" if cause.node else "")
        how = _dim(", ".join(filter(None, (how_replica_ended(cause), cause.kind))))
        content += f"<p>First to fail: <b>{safe(where)}</b> {how}</p>"
        content += f'<p class="hint">{safe(cause.hint)}</p>' if cause.hint else ""
        content += f"<pre>{safe(chr(10).join(lines))}</pre>" if (lines := last_words(cause)) else ""
    return _card(content, kind="cause")


def _timeline(known: History | None) -> str:
    if known is None or not known.rows:
        return ""
    used = {bar.look for row in known.rows for bar in row.bars}
    keys = {f"key {look}": words for look, words in _LEGEND.items() if look in used}
    keys |= {"key restart": "restarted"} if known.restarts else {}
    keys |= {"key change": "members joined or left"} if known.changes else {}
    return _card(f'{timeline(known)}<div class="legend"><span>from {clock(known.start)}</span>{_legend(keys)}</div>')


def _goodput(goodput: Goodput | None) -> str:
    """What the time went to, as a bar; nothing of a job that has not trained."""
    if goodput is None or not (summary := goodput_words(goodput)):
        return ""
    seconds = goodput.seconds.by_use()
    words = {use: f"{use_words(use)} {short_time(number)}" for use, number in seconds.items() if number}
    bar = stacked((look, words[use], seconds[use]) for look, uses in _USES.items() for use in uses if use in words)
    shown = {f"key {look}": ", ".join(words[use] for use in uses if use in words) for look, uses in _USES.items()}
    legend = _legend({mark: said for mark, said in shown.items() if said})
    return _card(f'<p>{safe(summary)}</p>{bar}<div class="legend">{legend}</div>')


def _curves(drawn: tuple[Curve, ...]) -> str:
    """The plots, and a table of the last, lowest and highest values of each metric."""
    cards, rows = "", []
    for curve in drawn:
        keys = {"stroke held-out": "held-out"} if curve.validation else {}
        keys |= {"stroke redone": "done again after a restart"} if curve.redone else {}
        legend = f'<div class="legend">{_legend({"stroke": "training"} | keys)}</div>' if keys else ""
        cards += _card(f"<h3>{safe(curve.name)}</h3>{plot(curve)}{legend}", kind="chart")
        plain = curve.name.removeprefix(VALIDATION)
        for points, held_out in ((curve.points, plain != curve.name), (curve.validation, True)):
            if points:
                by_value = sorted(points, key=lambda point: point.number)
                shown = (points[-1], by_value[0], by_value[-1])
                name = safe(plain) + (f" {_dim('held-out')}" if held_out else "")
                rows.append((name, *(f"{short_value(each.number)} {_dim(f'at {each.step}')}" for each in shown)))
    heads = f"<tr>{''.join(f'<th>{word}</th>' for word in ('metric', 'last', 'lowest', 'highest'))}</tr>"
    table = _table(rows, kind="values", heads=heads)
    return f'<div class="curves">{cards}</div><div class="wide">{table}</div>' if rows else ""


def _configuration(evidence: Evidence, job: Job) -> str:
    """With what the job ran: its command, versions and machine, where they are known, and its spec."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for setting in evidence.settings:
        groups.setdefault(setting.group, []).append((safe(setting.name), safe(setting.words)))
    cards = [_card(f"<h3>{safe(group)}</h3>{_table(rows, kind='settings')}") for group, rows in groups.items()]
    cards.append(_card(f"<h3>Spec</h3><pre>{safe(as_yaml([job.raw_spec]))}</pre>", kind="spec"))
    return f'<div class="curves configuration">{"".join(cards)}</div>'


def _event(event: Event) -> Iterator[str]:
    yield f"{event.last:%H:%M:%S}" if event.last is not None else ""
    reason = safe(event.reason) + (f" ×{event.count}" if event.count > 1 else "")
    yield f'<b class="warning">{reason}</b>' if event.type == "Warning" else f"<b>{reason}</b>"
    yield safe(event.about)
    yield safe(event.note)


def _details(name: str, note: str, content: str, *, kind: str = "", opened: bool = False) -> str:
    return (
        f"<details{' open' if opened else ''}><summary>{safe(name)} {_dim(note)}</summary>"
        f'<div class="{kind}"><pre>{safe(content)}</pre></div></details>'
    )


def _logs(evidence: Evidence, cause: RootCause | None) -> Iterator[str]:
    """The ends of the logs, that of the replica which failed first before all others, and open."""
    names = (
        (cause.pod.removeprefix(f"{evidence.name}-"), cause.hostname if evidence.on_this_machine else "")
        if cause
        else ()
    )
    for log in sorted((log for log in evidence.logs if log.text), key=lambda log: log.name not in names):
        lines = len(log.text.splitlines())
        yield _details(log.name, f"last {lines} lines", log.text, kind="end", opened=log.name in names)


def _objects(evidence: Evidence) -> Iterator[str]:
    """What a person would ask the cluster next."""
    return (_details(kind, str(len(items)), as_yaml(items)) for kind, items in evidence.objects.items() if items)


def _left_out(evidence: Evidence, job: Job) -> Iterator[Unread]:
    yield Unread("values", "of variables, arguments and annotations, and what looks like a secret in other text")
    if not evidence.logs and not evidence.on_this_machine:
        yield Unread("logs", f"dtj report {typed(job)} --logs includes them")
    if not evidence.scalars and job.status.start_time:
        yield Unread("curves", _where_curves_are(evidence, job))


def _where_curves_are(evidence: Evidence, job: Job) -> str:
    if evidence.on_this_machine:
        return "the program reported no metrics; tensorboard --logdir=FOLDER shows what it wrote there"
    shows = f"dtj tensorboard {job.name}" if job.form is DTJ else "TensorBoard"
    return f"{shows} shows them; they are in a log of JSON alone (--log-format=json of the trainer)"
