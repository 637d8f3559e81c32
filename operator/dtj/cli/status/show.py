"""Shows a job and what is around it, in titled sections: once, or at each change until it has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from itertools import islice, starmap
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table

from dtj.api.job import Job, parse_time
from dtj.api.json import dig, name_of, text
from dtj.api.names import Condition, Reason, State
from dtj.cli.common.connection import Typed, next_command
from dtj.cli.common.console import Console, Screen, Step, Text, coloured, coloured_state, step_lines
from dtj.cli.common.formatting import counted, short_time
from dtj.cli.common.job_view import JobView, cause_words, job_view, last_words, metric_words, next_words, progress_words
from dtj.cli.common.terminal import Exit, say
from dtj.client import AsyncClient, JobGone, job_names
from dtj.client.diagnosis import reasons
from dtj.client.overview import Event, Overview, Part, gather
from dtj.client.pods import JobPod
from dtj.client.watching import OUTAGE_SECONDS
from dtj.core import node_losses
from dtj.core.context import JobContext
from dtj.core.pod_state import PodState, replica_of, state_text, stopped_on_request
from dtj.core.policies import elastic_members
from dtj.core.replicas import Replica
from dtj.core.status import is_ready
from dtj.kube.errors import ApiError, NotFound, Unavailable
from dtj.kube.waiting import Backoff, loop_time

_REFRESH_SECONDS: Final = 5.0
"""Seconds after which the job is read again if no change was reported: pods change before the job does."""

_CALM_SECONDS: Final = 0.5
"""Minimum seconds between two drawings."""

_PLAIN_WIDTH: Final = 200
"""Width if there is no terminal: programs read long lines more easily than broken ones."""


async def show_once(client: AsyncClient, name: str) -> int:
    """Print the job as it is. Returns the exit code. Raises ApiError."""
    overview = await gather(client.gateway, name, namespace=client.namespace)
    console = job_console()
    console.print(status_view(overview, width=console.width, typed=next_command))
    return Exit.OK


def job_screen(console: Console, typed: Typed) -> Screen[Overview]:
    """The screen of a job that is followed: all its sections, or a line for each change."""
    return Screen(console, drawn=lambda seen, width: status_view(seen, width=width, typed=typed), lines=_changes)


def _changes(before: Overview | None, now: Overview) -> Iterator[str]:
    line = change_line(now)
    if before is None or line != change_line(before):
        yield f"{now.at:%H:%M:%S}  {line}"


def job_console() -> Console:
    """The console for jobs of a cluster."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PLAIN_WIDTH)


async def watch(client: AsyncClient, name: str) -> int:
    """Show the job at each change until it has ended or is deleted. Returns the exit code. Raises ApiError."""
    screen = job_screen(job_console(), next_command)
    first = await gather(client.gateway, name, namespace=client.namespace)
    try:
        with screen.shown():
            await follow(client, first, screen, until=lambda job: job.status.terminal)
    except JobGone as error:
        say(str(error), err=True)
    except asyncio.CancelledError:
        say(f"{name} continues to run.", err=True)
        raise
    return Exit.OK


async def follow(
    client: AsyncClient, overview: Overview, screen: Screen[Overview], *, until: Callable[[Job], bool]
) -> Overview:
    """Show a job as it is, and at each change ``until`` it is as was asked for. Returns it.

    Raises JobGone when it is deleted, and ApiError, Unavailable if the cluster is silent for minutes.
    """
    job = overview.job
    changed = asyncio.Event()
    following = asyncio.create_task(_note_changes(client, job, changed))
    answered_at = loop_time()
    try:
        while True:
            screen.show(overview)
            if until(overview.job):
                return overview
            await _next_change(changed)
            try:
                overview = await gather(client.gateway, job_names.typed(job), namespace=job.namespace)
                answered_at = loop_time()
            except NotFound as error:
                raise JobGone(f"{job.name}: was deleted", job=overview.job) from error
            except Unavailable:
                if loop_time() - answered_at > OUTAGE_SECONDS:
                    raise
            if overview.job.uid != job.uid:
                raise JobGone(f"{job.name}: was deleted and created again", job=overview.job)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _note_changes(client: AsyncClient, job: Job, changed: asyncio.Event) -> None:
    """Set ``changed`` when the job changes. If it cannot be followed, it is read at intervals."""
    for delay in Backoff(base=1.0, cap=30.0):
        try:
            async with aclosing(client.follow(job_names.typed(job), namespace=job.namespace)) as jobs:
                async for _ in jobs:
                    changed.set()
        except ApiError:
            pass
        changed.set()
        await asyncio.sleep(delay)


async def _next_change(changed: asyncio.Event) -> None:
    await asyncio.sleep(_CALM_SECONDS)
    with suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), _REFRESH_SECONDS)
    changed.clear()


# -- the screen -------------------------------------------------------------------------------------------------

_MAX_ROWS: Final = 20
"""This many pods are shown one by one; of more only those that do not run."""

_MAX_EVENTS: Final = 8
_MAX_LOG_LINES: Final = 12
_MAX_WORDS: Final = 600
"""Most characters of a line of a log or an event: there may be many of them."""

_INDENT: Final = 2

_ROOMY: Final = 70
"""Width of a terminal in which all columns stand side by side."""

_WIDEST_BAR: Final = 60


_FACTS: Final = ("namespace", "strategy", "members", "image", "age", "attempt", "restarts", "goodput", "gang", "model")


def status_view(overview: Overview, *, width: int, typed: Typed) -> RenderableType:
    """All sections that have something to say, in ``width`` columns."""
    view, context = job_view(overview.job), overview.context()
    sections = (
        ("What fails beside it" if view.state == State.RUNNING else "Why is it not running", _why(overview, typed)),
        ("Root cause", _root_cause(overview)),
        ("Progress", _progress(overview, width)),
        ("Replicas", _replicas(overview, context, width)),
        ("Avoided nodes", map(Text, _avoided(overview))),
        ("Members that wait", map(Text, islice(_members_that_wait(overview, context), _MAX_ROWS))),
        ("Volumes", _claims(overview)),
        ("Events", _events(overview)),
        ("Next", _next(overview, width, typed)),
    )
    parts: list[RenderableType] = [*_summary(overview, view)]
    for title, lines in sections:
        found = list(lines)
        if found:
            parts += [
                Text(""),
                Text(title, style="bold"),
                *(Padding.indent(line, _INDENT) for line in found),
            ]
    return Group(*parts)


_PLAIN_REASONS: Final = frozenset(
    {"", Reason.PENDING, Reason.WAITING_FOR_PODS, Reason.STOPPING_PODS, Reason.JOB_FINISHED}
)
"""Reasons that the state and the number of ready pods explain."""


def change_line(overview: Overview) -> str:
    """The job in one line, for where no screen can be drawn again."""
    view, status = job_view(overview.job), overview.job.status
    reason = view.reason if view.state != State.SUCCEEDED else ""
    if view.why and reason not in _PLAIN_REASONS:
        reason += f": {' '.join(view.why.split())}"
    restart = status.when_true(Condition.RESTARTING)
    restarts = restart.message if restart is not None else ""
    progress = ", ".join(progress_words(status.progress)) if status.progress is not None else ""
    return "  ".join(filter(None, (view.state, view.ready, reason, restarts, progress)))


def _summary(overview: Overview, view: JobView) -> Iterator[RenderableType]:
    since = _ago(overview, view.since) if view.since is not None else ""
    ended = overview.job.status.terminal
    yield Text.assemble(
        (overview.job.name, "bold"),
        "  ",
        coloured_state(view.state),
        f" {view.ready}" if view.ready else "",
        (f" {since} ago" if ended else f" for {since}") if since else "",
        (f"  {view.reason}" if view.reason else "", "dim"),
    )
    if ended and view.why:  # of a job that goes on, the sections below say it
        yield Padding.indent(Text(view.why, limit=_MAX_WORDS), _INDENT)
    created = overview.job.created_at
    known = {**view.facts, **({"age": _ago(overview, created)} if created is not None else {})}
    facts = Table.grid(padding=(0, 2, 0, 0))
    for name in (name for name in _FACTS if name in known):
        facts.add_row(Text(name, style="dim"), Text(known[name]))
    yield Padding.indent(facts, 2)


# -- sections --------------------------------------------------------------------------------------------------


def _why(overview: Overview, typed: Typed) -> Iterator[RenderableType]:
    for why in reasons(overview):
        yield Text.assemble((why.reason, "bold yellow"), ": ", why.words)
        if why.remedy:
            yield Text.assemble(("do: ", "dim"), why.remedy)
        for command in why.commands:
            yield Text(f"    {typed(command)}")


def _root_cause(overview: Overview) -> Iterator[RenderableType]:
    status = overview.job.status
    cause = status.root_cause
    if cause is None or status.is_true(Condition.COMPLETE):
        return
    about = ", ".join(filter(None, (cause.kind, f"pod {cause.pod}" if cause.pod else "")))
    yield Text.assemble((cause_words(cause), "red"), (f"  [{about}]" if about else "", "dim"))
    if cause.hint:
        yield Text.assemble(("hint: ", "bold"), cause.hint)
    for line in last_words(cause)[-_MAX_LOG_LINES:]:
        yield Text.assemble(("| ", "dim"), coloured(line, _MAX_WORDS))


def _progress(overview: Overview, width: int) -> Iterator[RenderableType]:
    status = overview.job.status
    progress = status.progress
    if progress is None:
        return
    if progress.step is not None and progress.total_steps:
        bar = Table.grid()
        size = min(width - 2, _WIDEST_BAR)
        bar.add_row(ProgressBar(total=progress.total_steps, completed=progress.step, width=size))
        yield bar
    yield Text(", ".join(progress_words(progress)) or progress.text)
    if progress.metrics:
        yield Text(", ".join(metric_words(progress)))
    if progress.transport:
        yield Text(f"gradients go by {progress.transport}", style="dim")
    if progress.warning:
        yield Text(f"warning: {progress.warning}", style="yellow", limit=_MAX_WORDS)
    if progress.unchecked:
        yield Text(f"accepted unchecked: {', '.join(progress.unchecked)}", style="yellow", limit=_MAX_WORDS)
    if progress.stragglers:
        yield Text(f"slower than the others: {', '.join(progress.stragglers)}", style="yellow")
    marks = []
    if progress.last_checkpoint_step is not None:
        saved = parse_time(progress.last_checkpoint_time)
        ago = f" {_ago(overview, saved)} ago" if saved is not None and not status.terminal else ""
        marks.append(f"last checkpoint at step {progress.last_checkpoint_step}{ago}")
    if progress.restarts_in_place:
        marks.append(f"{counted(progress.restarts_in_place, 'restart')} in place")
    moved = parse_time(progress.updated_at)
    if moved is not None and not status.terminal:
        marks.append(f"advanced {_ago(overview, moved)} ago")
    if marks:
        yield Text(", ".join(marks), style="dim")


def _replicas(overview: Overview, context: JobContext | None, width: int) -> Iterator[RenderableType]:
    if overview.pods.unread:
        yield _unread(overview.pods)
        return
    current = {each.uid for each in overview.current_pods}
    rows = [*overview.pods.items]
    if len(rows) > _MAX_ROWS:
        rows = [each for each in rows if each.uid in current and not _is_well(each)][:_MAX_ROWS]
    missing = overview.missing_pods[:_MAX_ROWS]
    if rows or missing:
        yield _pod_table(overview, context, rows, missing, width=width)
    left = len(overview.pods.items) - len(rows)
    if left:
        well = len([each for each in overview.current_pods if _is_well(each)])
        yield Text(f"{len(overview.pods.items)} pods, of which {well} run or have succeeded", style="dim")


def _is_well(each: JobPod) -> bool:
    return each.pod.succeeded or (each.pod.ready and not each.pod.terminating)


def _pod_table(
    overview: Overview, context: JobContext | None, rows: Sequence[JobPod], missing: Sequence[str], *, width: int
) -> Table:
    roomy = width >= _ROOMY
    current = {each.uid for each in overview.current_pods}
    on_request = stopped_on_request(each.pod for each in overview.pods.items)
    leader = context.leader if context is not None else None
    outsiders: frozenset[Replica] = context.outsiders if context is not None else frozenset()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    progress = overview.job.status.progress
    steps = ("STEP",) if progress is not None and progress.reported else ()
    titles = ("POD", "STATE", "NODE", "RESTARTS", *steps, "AGE") if roomy else ("POD", "STATE", "AGE")
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ellipsis")
    for each in rows:
        replica, state = replica_of(each.pod), state_text(each.pod, on_request=on_request)
        waits = state == PodState.RUNNING and replica in outsiders
        leads = replica is not None and replica == leader and not each.pod.main_container_ended
        cells = {
            "POD": Text(each.title),
            "STATE": coloured_state(PodState.WAITING if waits else state, otherwise="yellow"),
            "NODE": Text(each.pod.node),
            "RESTARTS": Text(_restarts_of(each)),
            "STEP": Text(_step_of(overview) if leads else ""),
            "AGE": Text(_ago(overview, each.pod.created_at) if each.pod.created_at is not None else ""),
        }
        table.add_row(*(cells[title] for title in titles), style="" if each.uid in current else "dim")
    for name in missing:
        table.add_row(Text(name.removeprefix(f"{overview.job.name}-")), Text("Missing", style="yellow"))
    return table


def _restarts_of(each: JobPod) -> str:
    """How often the replica was started again: the name counts the pods before this one, and its kubelet the rest."""
    _, _, number = each.title.removeprefix(each.pod.role).partition("-r")
    return str((int(number) if number.isdecimal() else 0) + each.record.restarts(each.record.main_container))


def _step_of(overview: Overview) -> str:
    """The step of the replica that publishes it for the job."""
    progress = overview.job.status.progress
    return str(progress.step) if progress is not None and progress.step is not None else ""


def _avoided(overview: Overview) -> Iterator[str]:
    status = overview.job.status
    if not status.terminal:
        yield from starmap(node_losses.words, node_losses.avoided(status, overview.at).values())


def _members_that_wait(overview: Overview, context: JobContext | None) -> Iterator[str]:
    """A line for each replica of an elastic job that waits to join the others, or that the others wait for."""
    status = overview.job.status
    if context is None or context.world is None or overview.pods.unread or status.terminal or not status.start_time:
        return
    in_place = elastic_members.in_place(context)
    for replica in sorted(context.outsiders):
        first = "for the first answer of the launcher; after 60 s all start again"
        yield f"{replica.hostname} waits {_what_for(context, replica) if in_place else first}"
    for replica, due in (elastic_members.lost(context) if in_place else {}).items():
        if due is None:
            yield f"{replica.hostname} is not ready; the others wait for it, since fewer than minReplicas would be left"
        else:
            yield f"{replica.hostname} is not ready; the others go on without it at {due:%H:%M:%S} UTC"


def _what_for(context: JobContext, replica: Replica) -> str:
    """What keeps a replica from joining."""
    pod = context.pod_of(replica)
    if pod is None:
        ready = context.job.status.condition(Condition.PODS_READY)
        _, _, refusal = ready.message.partition(f"{context.name_of(replica)}: ") if ready is not None else ("", "", "")
        return "for its pod" + (f": {refusal}" if refusal else "")
    if pod.terminating or pod.main_container_ended:
        return "for its next pod"
    if is_ready(pod):
        return "until it has imported its program, and then joins within 10 s"
    return f"for its pod: {pod.blocker.message}" if pod.blocker is not None else "until its pod is ready"


def _claims(overview: Overview) -> Iterator[RenderableType]:
    if overview.claims.unread:
        yield _unread(overview.claims)
    for claim in overview.claims.items:
        phase = text(dig(claim, "status", "phase"), "Pending")
        size = text(dig(claim, "status", "capacity", "storage")) or text(
            dig(claim, "spec", "resources", "requests", "storage")
        )
        yield Text.assemble(name_of(claim), "  ", (phase, "" if phase == "Bound" else "yellow"), f"  {size}")


def _events(overview: Overview) -> Iterator[RenderableType]:
    if overview.events.unread:
        yield _unread(overview.events)
    if not overview.events.items:
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for event in overview.events.items[-_MAX_EVENTS:]:
        table.add_row(
            Text(_ago(overview, event.last) if event.last is not None else "", style="dim"),
            Text(event.reason, style="yellow" if event.type == "Warning" else ""),
            Text(_event_words(overview, event), limit=_MAX_WORDS),
        )
    yield table


def _event_words(overview: Overview, event: Event) -> str:
    about = f"{event.about}: " if event.about not in ("", overview.job.name) else ""
    times = f" ({event.count} times)" if event.count > 1 else ""
    return f"{about}{' '.join(event.note.split())}{times}"


def _next(overview: Overview, width: int, typed: Typed) -> Iterator[RenderableType]:
    shown = ("status", job_names.typed(overview.job))
    steps = [Step(typed(("dtj", *words)), purpose) for words, purpose in next_words(overview.job) if words != shown]
    yield from step_lines(steps, width=width - _INDENT)


def _unread(part: Part[Any]) -> Text:
    return Text(f"cannot be read: {part.unread}", style="yellow")


def _ago(overview: Overview, moment: datetime) -> str:
    return short_time((overview.at - moment).total_seconds())
