"""What is worth showing of a job, in words: a job goes in, a :class:`JobView` comes out. Pure.

``dtj status`` and ``dtj report`` render the same view, each the parts that it has room for; replicas are
:mod:`dtj.local.view`'s, and the columns of ``dtj list`` the CRD's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dtj.api.goodput import HOLDS_NOTHING, Goodput, Use
from dtj.api.job import Job, parse_time
from dtj.api.json import dig, text
from dtj.api.names import Condition, Reason, State
from dtj.api.spec import Gang, JobSpec, Role
from dtj.api.status import ExportedModel, Progress, RootCause
from dtj.cli.common.formatting import counted, listed, restarts, short_number, short_time
from dtj.client.diagnosis import explaining_condition
from dtj.client.job_names import typed
from dtj.core.outcome import how_replica_ended
from dtj.core.replicas import training_replicas


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at one moment.

    ``reason`` is empty where it goes without saying, ``why`` where nothing is to be explained. ``facts`` have a line
    each, by their names. ``since`` is when the job came into its state.
    """

    state: str
    reason: str
    ready: str
    why: str
    facts: Mapping[str, str]
    since: datetime | None


def job_view(job: Job) -> JobView:
    """What there is to show of a job."""
    status = job.status
    explained = explaining_condition(job)
    # The reason of a job whose pods all run goes without saying.
    plain = status.state == State.RUNNING and status.reason == Reason.ALL_PODS_READY
    return JobView(
        state=status.state or "Pending",
        reason="" if plain else status.reason,
        ready="" if status.terminal else status.ready,
        why=explained.message if explained is not None else "",
        facts=dict(_facts(job)),
        since=_since(job),
    )


def strategy_words(spec: JobSpec) -> str:
    """``MultiWorkerMirrored with 2 workers``."""
    roles = [counted(spec.replicas(role), role) for role in spec.roles()]
    return f"{spec.strategy} with {listed(roles)}" if roles else str(spec.strategy)


def progress_words(progress: Progress) -> Iterator[str]:
    """How far a training is, in parts: ``step 120/225 (53%)``, ``2.5k examples/s``, ``ETA 1m02s``."""
    if progress.phase and progress.phase != "Training":
        yield progress.phase
    if progress.step is not None:
        yield f"step {step_words(progress)}"
    if progress.epoch is not None:
        yield f"epoch {progress.epoch}"
    if progress.examples_per_second is not None:
        yield f"{short_number(progress.examples_per_second)} examples/s"
    if progress.eta_seconds is not None:
        yield f"ETA {short_time(progress.eta_seconds)}"


def step_words(progress: Progress) -> str:
    """``120/225 (53%)``; a loop of the user's may not know how many steps there will be."""
    step, total = progress.step, progress.total_steps
    return "" if step is None else f"{step}/{total} ({min(100, 100 * step // total)}%)" if total else str(step)


def metric_words(progress: Progress) -> Iterator[str]:
    """``loss 0.41``, for each metric."""
    return (f"{name} {value}" for name, value in progress.metrics.items())


def cause_words(cause: RootCause) -> str:
    """``worker-1 exited with code 137 (OOMKilled) on node-3``."""
    return f"{cause.hostname} {how_replica_ended(cause)}" + (f" on {cause.node}" if cause.node else "")


def last_words(cause: RootCause) -> list[str]:
    """The last lines of the replica that failed first, oldest first."""
    return (cause.log_tail or cause.message).splitlines()


def model_words(exported: ExportedModel, *, path: str = "") -> str:
    """``/models/1  (SavedModel, TFLite; 1.9M bytes)``; the digest is for programs, and too long for a line."""
    size = "" if exported.size is None else f"{short_number(exported.size)} bytes"
    known = "; ".join(filter(None, (", ".join(exported.formats), size)))
    return (path or exported.path) + (f"  ({known})" if known else "")


_USES: Final = {Use.CHECKPOINTING: "checkpoints", Use.VALIDATING: "validation", Use.INPUT: "waiting for data"}
"""Words for what time went to, where the name alone is not clear."""


def use_words(use: Use) -> str:
    """``checkpoints``."""
    return _USES.get(use, str(use))


def goodput_words(goodput: Goodput | None) -> str:
    """``91% of 6h12m: repeated 4%, checkpoints 3%, starting 2%; before that queued 40m00s``; empty of a job that has
    not trained, or whose image does not say what its time went to."""
    if goodput is None or goodput.percent is None:
        return ""
    seconds = goodput.seconds.by_use()
    outside = {use: seconds.pop(use) for use in HOLDS_NOTHING}
    seconds.pop(Use.TRAINING)
    held = max(1, goodput.seconds.held)
    shares = sorted(((round(100 * number / held), use) for use, number in seconds.items()), key=lambda each: -each[0])
    lost = ", ".join(f"{use_words(use)} {share}%" for share, use in shares if share)
    words = {Use.QUEUED: "before that queued", Use.SUSPENDED: "in between suspended"}
    others = (f"{words[use]} {short_time(number)}" for use, number in outside.items() if number)
    return "; ".join((f"{goodput.percent}% of {short_time(held)}" + (f": {lost}" if lost else ""), *others))


def next_words(job: Job) -> Iterator[tuple[tuple[str, ...], str]]:
    """Commands that a person may type next about a job that is there, as words after ``dtj``, each with what for."""
    name, status = typed(job), job.status
    if status.is_true(Condition.INVALID):
        yield ("delete", name), "delete it, fix the manifest and submit it again"
    elif status.terminal:
        if status.root_cause is not None and status.is_true(Condition.FAILED):
            yield ("logs", name, "--first-error"), "show the first error"
        yield ("logs", name), "show what its pods printed"
        yield ("status", name), "show all details"
        yield ("delete", name), "delete it and its pods"
    else:
        running = not status.is_true(Condition.SUSPENDED)
        if running:
            yield ("logs", name, "-f"), "show what its pods print"
        yield ("status", name, "--watch"), "show its progress"
        yield ("wait", name), "wait until it ends"
        if running:
            yield ("suspend", name), "stop it, to resume it later"


def _facts(job: Job) -> Iterator[tuple[str, str]]:
    status = job.status
    yield "namespace", job.namespace
    if job.spec is not None:
        yield "strategy", strategy_words(job.spec)
        if members := _members(job, job.spec):
            yield "members", members
        if image := _image(job, job.spec):
            yield "image", image
    if status.attempt > 1:
        yield "attempt", str(status.attempt)
    if status.restarts.total:
        yield "restarts", restarts(status.restarts)
    if goodput := goodput_words(status.goodput):
        yield "goodput", goodput
    if status.gang and status.gang != "None":
        yield "gang", _gang(job)
    if status.export is not None and status.export.path:
        yield "model", model_words(status.export)


def _members(job: Job, spec: JobSpec) -> str:
    """Which replicas of an elastic job train, if they are not the ones that this attempt began with."""
    world = job.status.world
    if world is None or not world.members:
        return ""
    members = listed([f"{role} {indexes}" for role, indexes in world.members.items()])
    return f"{members} of {len(training_replicas(spec))} replicas (generation {world.generation})"


def _gang(job: Job) -> str:
    """The gang scheduler; and of an elastic job in a queue, how many workers it was admitted with, if not all."""
    status, counts = job.status, job.status.replica_statuses.get(Role.WORKER)
    wanted = job.spec.replicas(Role.WORKER) if job.spec is not None and job.spec.elastic is not None else 0
    if status.gang != Gang.KUEUE or status.start_time is None or counts is None or counts.desired >= wanted:
        return status.gang
    return f"{status.gang}, which has admitted {counts.desired} of {wanted} workers"


def _image(job: Job, spec: JobSpec) -> str:
    templates = [spec.template, *(role.template for role in spec.replica_specs.values() if role is not None)]
    mains = (job.form.main_container(dig(template, "spec")) for template in templates if template is not None)
    images = (text(main.get("image")) for main in mains)
    return ", ".join(dict.fromkeys(filter(None, images)))


def _since(job: Job) -> datetime | None:
    """When the job came into its state, if the status records it."""
    status = job.status
    if status.terminal:
        return parse_time(status.completion_time)
    kinds: dict[str, Condition] = {
        State.SUSPENDED: Condition.SUSPENDED,
        State.RESTARTING: Condition.RESTARTING,
    }
    condition = status.condition(kinds.get(status.state, Condition.PODS_READY))
    return parse_time(condition.last_transition_time) if condition is not None else None
