"""The page of a job: evidence goes in, one HTML document comes out that needs nothing else. Pure.

There is no script in it and its own policy forbids any, as well as every request: logs and messages are other people's
text. Each of them passes :func:`~dtj.cli.report.drawing.safe`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib import resources
from typing import Final

import yaml
from pydantic import JsonValue

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, State
from dtj.api.spec import JobSpec, Role
from dtj.cli.common.formatting import counted, restarts_by_class, short_number, short_time
from dtj.cli.common.job_view import CauseView, job_view
from dtj.cli.report.drawing import Curve, curves, plot, safe, short_value, timeline
from dtj.cli.report.evidence import (
    SPEED,
    VALIDATION,
    Evidence,
    Log,
    Setting,
    Unread,
    by_time,
    event_count,
    event_time,
    last_lines,
    replica_named,
)
from dtj.cli.report.redaction import REDACTED
from dtj.cli.report.timeline import History, Look, history
from dtj.core.pod_state import main_container, main_container_of
from dtj.local.run_directory import STOPPED

MAX_PLOTS: Final = 12
"""Metrics that are drawn; the values of all of them are in the table."""

MAX_EVENTS: Final = 300
MAX_LOGS: Final = 24
LOG_LINES: Final = 200
LOG_BYTES: Final = 2**16
"""Of each log, on the page; the bundle has more."""

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_LOOKS: Final[dict[str, Look]] = {
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


def render_page(evidence: Evidence) -> str:
    """The whole document; sections that would be empty are left out."""
    job = Job.from_object(evidence.job)
    known = history(evidence)
    drawn = curves(evidence.scalars, known.restarts)
    state = job.status.state or "not known"
    facts = _definitions(_facts(evidence, job, drawn, known))
    sections = "".join(
        f"<section><h2>{heading}</h2>{content}</section>"
        for heading, content in _sections(evidence, job, drawn, known)
        if content
    )
    style = resources.files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="generator" content="dtj report">
<title>{safe(f"{job.name}: {state}")}</title><style>{style}</style></head>
<body><header><h1>{safe(job.name)} <span class="badge {look_of(job)}">{safe(state)}</span></h1>
<p class="source">{safe(evidence.source)}, as of {clock(evidence.taken_at)}</p>{facts}</header>
{sections}</body></html>
"""


def look_of(job: Job) -> Look:
    """How the state of a job looks."""
    unknown = Look.STARTING if job.status.state in set(State) else Look.WAITING
    return _LOOKS.get(job.status.state, unknown)


def clock(moment: datetime) -> str:
    """``2026-01-02 03:04:05 UTC``, in the moment's own zone."""
    return f"{moment:%Y-%m-%d %H:%M:%S} {moment.tzname() or ''}".rstrip()


def _sections(evidence: Evidence, job: Job, drawn: tuple[Curve, ...], known: History) -> Iterator[tuple[str, str]]:
    why = "" if job.status.is_true(Condition.COMPLETE) else job_view(job).why
    cause = CauseView.of(job.status.root_cause) if job.status.root_cause is not None else None
    logs, unread = _logs(evidence, job), [*evidence.unread]
    events = [event for part in (*evidence.earlier, evidence) for event in part.events]
    for what, more in (
        ("more logs", sum(bool(log.text) for log in evidence.logs) - len(logs)),
        ("older events", len(events) - MAX_EVENTS),
    ):
        if more > 0:
            unread.append(Unread(f"{more} {what}", "the bundle (without --html) has all"))
    spec = yaml.safe_dump({"spec": job.raw_spec}, sort_keys=False, allow_unicode=True, width=100)
    wrong = look_of(job) is Look.FAILED or cause is not None
    yield "What went wrong" if wrong else "Why it does not run", _cause(why, cause)
    yield "Timeline", _timeline(known)
    yield "Training", _curves(drawn)
    yield "Configuration", _settings(evidence)
    yield (
        "Restarts",
        _card(_definitions((name, str(number)) for name, number in restarts_by_class(job.status.restarts))),
    )
    yield "Events", _table(map(_event, by_time(events)[-MAX_EVENTS:]), kind="events")
    yield (
        "Logs",
        "".join(_log(log, opened=cause is not None and log is logs[0]) for log in logs) or _how_to_log(evidence),
    )
    yield "Spec", f"<details><summary>as it was submitted</summary><pre>{safe(spec)}</pre></details>"
    yield "Not here", _table((safe(item.what), safe(item.why)) for item in unread)


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


def _key(words: str, mark: str) -> str:
    return f'<span><span class="{mark}"></span>{words}</span>'


# -- the head ---------------------------------------------------------------------------------------------------


def _facts(evidence: Evidence, job: Job, drawn: tuple[Curve, ...], known: History) -> Iterator[tuple[str, str]]:
    status, progress = job.status, job.status.progress
    facts = job_view(job).facts
    yield from ((name, facts[name]) for name in ("strategy", "gang") if name in facts)
    images = dict.fromkeys(image for pod in evidence.pods if (image := text(main_container_of(pod).get("image"))))
    if images and not evidence.on_this_machine:  # which pulls none
        yield "image", ", ".join(images)
    if status.ready and not status.completion_time:
        yield "ready", status.ready
    yield from _times(evidence, job, known)
    seen = max((point.step for curve in drawn for point in curve.points), default=0)
    if progress is not None:
        if progress.step is not None:
            of = f" of {progress.total_steps}" if progress.total_steps else ""
            yield "steps", f"{max(progress.step, seen)}{of}"  # the status may not know yet
        if not seen:
            yield from progress.metrics.items()
        # The status of a job that has ended does not know of its last checkpoint.
        if progress.last_checkpoint_step is not None and not status.is_true(Condition.COMPLETE):
            yield "last checkpoint", f"step {progress.last_checkpoint_step}"
    speed = next((curve for curve in drawn if curve.name == SPEED), None)
    if speed is not None:
        yield "speed", f"{short_number(speed.points[-1].value)} examples/s at the end"
    yield from _measured_once(evidence)
    if "model" in facts:
        yield "model", facts["model"]


def _times(evidence: Evidence, job: Job, known: History) -> Iterator[tuple[str, str]]:
    """When it began and how long it took: of a run that was resumed, since its first start, and without the pauses."""
    starts = [parse_time(Job.from_object(part.job).status.start_time) for part in evidence.earlier]
    own, over = parse_time(job.status.start_time), parse_time(job.status.completion_time)
    begun = next((start for start in (*starts, own) if start is not None), None)
    if begun is not None and own is not None:
        yield "started", clock(begun)
        took = known.seconds if evidence.earlier else ((over or evidence.taken_at) - own).total_seconds()
        parts = f" in {len(evidence.earlier) + 1} starts" if evidence.earlier else ""
        yield ("took" if over is not None else "so far"), f"{short_time(took)}{parts}"


def _measured_once(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """What was measured at the end, such as held_out/accuracy: of a run that was resumed, the last time."""
    steps: dict[str, set[int]] = {}
    for scalar in evidence.scalars:
        steps.setdefault(scalar.name, set()).add(scalar.step)
    once = {name for name, found in steps.items() if len(found) == 1 and "/" in name and name != SPEED}
    last = {scalar.name: scalar.value for scalar in evidence.scalars if scalar.name in once}
    for name, value in last.items():
        yield name.replace("_", "-").replace("/", " "), f"{value:.4g}"


# -- sections ---------------------------------------------------------------------------------------------------


def _cause(why: str, cause: CauseView | None) -> str:
    content = f"<p>{safe(why)}</p>" if why else ""
    if cause is not None:
        where = cause.who + (f" on {cause.where}" if cause.where else "")
        content += (
            f"<p>First to fail: <b>{safe(where)}</b> {_dim(', '.join(filter(None, (cause.how, cause.kind))))}</p>"
        )
        content += f'<p class="hint">{safe(cause.hint)}</p>' if cause.hint else ""
        content += f"<pre>{safe(chr(10).join(cause.lines))}</pre>" if cause.lines else ""
    return _card(content, kind="cause")


def _timeline(known: History) -> str:
    if not known.rows:
        return ""
    used = {bar.look for row in known.rows for bar in row.bars}
    keys = "".join(_key(words, f"key {look}") for look, words in _LEGEND.items() if look in used)
    keys += _key("stopped, then resumed", "key pause") if known.pauses else ""
    keys += f"<span>{known.left_out} more pods are not drawn</span>" if known.left_out else ""
    begun = clock(min(row.start for row in known.rows))
    return _card(f'{timeline(known)}<div class="legend"><span>from {begun}</span>{keys}</div>')


def _curves(drawn: tuple[Curve, ...]) -> str:
    """The plots, and a table of the last, lowest and highest values of each metric."""
    cards, rows = [], []
    for number, curve in enumerate(drawn):
        if number < MAX_PLOTS:
            kinds = {"trained": "training"}
            kinds |= {"held-out": "held-out"} if curve.validation else {}
            kinds |= {"redone": "done again after a restart"} if curve.redone else {}
            keys = "".join(_key(words, f"stroke {kind}") for kind, words in kinds.items()) if len(kinds) > 1 else ""
            legend = f'<div class="legend">{keys}</div>' if keys else ""
            cards.append(_card(f"<h3>{safe(curve.name)}</h3>{plot(curve, number=number)}{legend}", kind="chart"))
        plain = curve.name.removeprefix(VALIDATION)
        for points, held_out in ((curve.points, plain != curve.name), (curve.validation, True)):
            if points:
                by_value = sorted(points, key=lambda point: point.value)
                shown = (points[-1], by_value[0], by_value[-1])
                name = safe(plain) + (f" {_dim('held-out')}" if held_out else "")
                rows.append((name, *(f"{short_value(each.value)} {_dim(f'at {each.step}')}" for each in shown)))
    heads = f"<tr>{''.join(f'<th>{word}</th>' for word in ('metric', 'last', 'lowest', 'highest'))}</tr>"
    table = _table(rows, kind="values", heads=heads)
    return f'<div class="curves">{"".join(cards)}</div><div class="wide">{table}</div>' if rows else ""


def _settings(evidence: Evidence) -> str:
    groups: dict[str, list[tuple[str, str]]] = {}
    for setting in configuration(evidence):
        groups.setdefault(setting.group, []).append((safe(setting.name), safe(setting.value)))
    cards = (_card(f"<h3>{safe(group)}</h3>{_table(rows, kind='settings')}") for group, rows in groups.items())
    return f'<div class="curves settings-groups">{"".join(cards)}</div>' if groups else ""


def _event(event: JsonObject) -> Iterator[str]:
    at, times = parse_time(event_time(event)), event_count(event)
    yield f"{at:%H:%M:%S}" if at is not None else ""
    reason = safe(text(event.get("reason"))) + (f" ×{times}" if times > 1 else "")
    yield f'<b class="warning">{reason}</b>' if event.get("type") == "Warning" else f"<b>{reason}</b>"
    yield safe(f"{text(dig(event, 'regarding', 'kind'))} {text(dig(event, 'regarding', 'name'))}".strip())
    yield safe(text(event.get("note")))


def _logs(evidence: Evidence, job: Job) -> list[Log]:
    """The ends of the logs, that of the pod which failed first before all others."""
    cause = job.status.root_cause
    replica = f"{cause.role}-{cause.index}" if cause is not None else ""

    def is_other(log: Log) -> bool:
        return cause is None or (log.name != cause.pod and replica_named(log.name, job=job.name) != replica)

    chosen = sorted((log for log in evidence.logs if log.text), key=is_other)[:MAX_LOGS]
    return [Log(log.name, last_lines(log.text, lines=LOG_LINES, size=LOG_BYTES), log.stamped) for log in chosen]


def _log(log: Log, *, opened: bool) -> str:
    return (
        f"<details{' open' if opened else ''}><summary>{safe(log.name)} "
        f"{_dim(f'last {len(log.text.splitlines())} lines')}</summary>"
        f'<div class="end"><pre>{safe(log.text)}</pre></div></details>'
    )


def _how_to_log(evidence: Evidence) -> str:
    there = evidence.logs or evidence.on_this_machine
    return "" if there else f"<p>{_dim(f'dtj report {evidence.name} --logs includes them.')}</p>"


# -- what the job ran with: arguments, variables, versions, machines, the command -------------------------------


def configuration(evidence: Evidence) -> Iterator[Setting]:
    """Everything that is known, in the order in which it is shown. Values are as the evidence has them: cleaned."""
    spec = Job.from_object(evidence.job).spec
    if spec is not None:
        yield from _arguments(spec)
        yield from _environment(spec)
    yield from evidence.settings
    if not evidence.on_this_machine:  # of which a run has recorded the host
        yield from _nodes(evidence)


def _arguments(spec: JobSpec) -> Iterator[Setting]:
    """What is shown of the arguments of the container that trains, ``--epochs=3`` or ``--epochs 3``; of each role if
    they differ."""
    by_role: dict[Role, tuple[tuple[str, str], ...]] = {}
    for role in spec.roles():
        replica, container = spec.replica_specs.get(role), _container(spec, role)
        command = (replica.command if replica is not None else None) or _strings(container.get("command"))
        words = [*command, *((replica.args if replica is not None else None) or _strings(container.get("args")))]
        pairs = zip(words, [*words[1:], ""], strict=False)
        options = [
            (word.partition("=")[0], word.partition("=")[2] or following)
            for word, following in pairs
            if word.startswith("--")
        ]
        by_role[role] = (*options, *([("others", REDACTED)] if REDACTED in words else []))
    alike = len(set(by_role.values())) == 1
    for role, shown in list(by_role.items())[: 1 if alike else None]:
        yield from (Setting("Arguments" if alike else f"Arguments of {role}", *pair) for pair in shown)


def _environment(spec: JobSpec) -> Iterator[Setting]:
    """The names of the variables of the container that trains."""
    replicas = [(replica.env if replica is not None else None) or [] for replica in spec.replica_specs.values()]
    templates = [objects(_container(spec, role).get("env")) for role in spec.roles()]
    names = dict.fromkeys(text(variable.get("name")) for each in (*templates, *replicas) for variable in each)
    if names:
        yield Setting("Environment", "variables", ", ".join(names))


def _container(spec: JobSpec, role: Role) -> JsonObject:
    replica = spec.replica_specs.get(role)
    template = (replica.template if replica is not None else None) or spec.template or {}
    pod_spec = dig(template, "spec")
    return main_container(pod_spec if isinstance(pod_spec, dict) else {})


def _strings(value: JsonValue) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _nodes(evidence: Evidence) -> Iterator[Setting]:
    """Where the pods are, and what is known of the hardware there."""
    known = {text(node.get("name")): node for node in evidence.objects.get("nodes", ())}
    for node, pods in Counter(text(dig(pod, "spec", "nodeName")) for pod in evidence.pods).items():
        found = known.get(node, {})
        capacity = dig(found, "capacity")
        amounts = capacity if isinstance(capacity, dict) else {}
        words = [counted(pods, "pod"), *([f"{amounts['cpu']} CPUs"] if "cpu" in amounts else [])]
        words += [f"{amount} {name}" for name, amount in amounts.items() if "/" in name and amount not in ("0", 0)]
        words += [f"kubelet {version}"] if (version := text(found.get("kubeletVersion"))) else []
        if node:
            yield Setting("Nodes", node, ", ".join(words))
    for operator in evidence.objects.get("operator", ()):
        yield Setting("Versions", "operator", text(operator.get("version")))
