"""What the time of a job goes to (``status.goodput``): the ledger is carried on with each status that is written.

The operator knows the state that a job was in since the last status. Where its pods train, the trainer says more: sums
of seconds since its container began, of which each answer counts from where the one before ended. No more of it counts
than has passed, so all adds up; what nobody told is ``other``. That is known a little later: answers come every ten
seconds, so of a job that trains the ledger ends up to a minute before it is written, at its ``updatedAt``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dtj.api import quantities
from dtj.api.goodput import HOLDS_NOTHING, TOLD, Counted, Goodput, Seconds, Sums, Use
from dtj.api.job import Job, parse_time
from dtj.api.json import dig, fields_of, objects
from dtj.api.names import Condition, Reason
from dtj.api.status import JobStatus, Progress
from dtj.core.actions import Action, PatchStatus, Plan
from dtj.core.context import JobContext
from dtj.core.manifests.pod import role_template
from dtj.core.platform import Platform
from dtj.core.status import format_time

_NOT_TRAINING_YET: Final = frozenset({"Gate", "Building", "Waiting"})
"""Phases of the trainer."""

_BY_THE_OPERATOR: Final = frozenset({Use.QUEUED, Use.SUSPENDED, Use.STALLED})
"""States in which no answer of a pod matters."""

_ANSWER_WITHIN: Final = 60
"""Seconds for which the next answer of a pod that trains may say what they went to."""

_ROUNDING: Final = len(TOLD)
"""By so much the whole seconds of one container may fall when some go from one state to another."""

_MAX_STEPS_A_SECOND: Final = 10_000
"""A pod is believed no more: the sum over all jobs is a metric of the cluster."""

_MOST_OF_A_POD: Final = 1024
"""As many accelerators of a resource count for one pod, as `accelerator.count` may be: a pod that asks for more never
runs, and the sum over all jobs is a metric of the cluster."""


def recorded(context: JobContext, *plan: Action) -> Plan:
    """``plan`` with the ledger in the status that it writes. A TFJob has none, and that of an ended job stands."""
    job = context.job
    if job.form.recorded_in or job.created_at is None or job.status.terminal:
        return plan
    return tuple(
        PatchStatus(_with_goodput(context, each.status)) if isinstance(each, PatchStatus) else each for each in plan
    )


def _with_goodput(context: JobContext, status: JobStatus) -> JobStatus:
    job, before = context.job, context.job.status.goodput or Goodput()
    assert job.created_at is not None
    # A job that is restored from a backup is created anew, and has its ledger.
    since = max(job.created_at, parse_time(before.updated_at) or job.created_at)
    lifetime = before.seconds.total + max(0, int((context.now - since).total_seconds()))
    again = before.counted is not None and (job.status.restarts.total > 0 or job.status.last_restart_time is not None)
    report, use = _report(context), use_of(job.status)
    wait = _ANSWER_WITHIN if use is Use.OTHER is use_of(status) and not status.terminal else 0
    stopped = use is Use.OTHER and use_of(status) in HOLDS_NOTHING and _trains(job.status)
    ledger = carried_on(before, use, lifetime, report, now=context.now, again=again, wait=wait, stopped=stopped)
    if status.terminal:
        ledger = ledger.model_copy(update={"covered_seconds": max(ledger.covered_seconds, ledger.seconds.training)})
    return status.model_copy(update={"goodput": ledger})


def _trains(status: JobStatus) -> bool:
    return status.progress is not None and status.progress.phase == "Training"


def use_of(status: JobStatus) -> Use:
    """What the time since ``status`` was written goes to, as far as the operator knows."""
    suspended = status.when_true(Condition.SUSPENDED)
    if suspended is not None and suspended.reason != Reason.QUEUED:
        return Use.SUSPENDED
    if suspended is not None or status.start_time is None:
        return Use.QUEUED
    if status.is_true(Condition.SUCCESS_CRITERIA_MET) or status.is_true(Condition.FAILURE_TARGET):
        return Use.OTHER
    if status.is_true(Condition.PROGRESS_STALLED):
        return Use.STALLED
    begins_again = status.ready_attempt == max(status.attempt, 1) or status.is_true(Condition.RESTARTING)
    if not status.is_true(Condition.PODS_READY):
        return Use.RECOVERING if begins_again else Use.STARTING
    if status.progress is not None and status.progress.phase in _NOT_TRAINING_YET:
        return Use.RECOVERING if status.restarts.total or status.last_restart_time else Use.STARTING
    return Use.OTHER


@dataclass(frozen=True, slots=True)
class Report:
    """What the pod that leads the training said last."""

    pod: str
    sums: Sums
    step: int | None = None
    checkpoint_step: int | None = None


def _report(context: JobContext) -> Report | None:
    """The last report in the termination message of the pod that leads, if it has ended, or its latest answer."""
    pod, seen = context.pod_of(context.leader), context.latest_answer
    message = pod.termination.message if pod is not None and pod.termination is not None else ""
    sums, progress = Sums.from_message(message), Progress.from_message(message)
    if sums is None and seen is not None:
        sums, progress = seen.sums, seen.progress
        pod = next((each for each in context.current if each.uid == seen.pod_uid), None)
    if sums is None or pod is None:
        return None
    progress = progress or Progress()
    return Report(pod.name, sums, progress.step, progress.last_checkpoint_step)


# -- the ledger -------------------------------------------------------------------------------------------------


def carried_on(
    before: Goodput,
    use: Use,
    lifetime: int,
    report: Report | None,
    *,
    now: datetime,
    again: bool = False,
    wait: int = 0,
    stopped: bool = False,
) -> Goodput:
    """The ledger at ``now``, when the job has lived for ``lifetime`` seconds, of which the latest went to ``use``
    unless ``report`` says more, or may say so later: up to ``wait`` seconds are left open.

    Where the job trains ``again``, the start of a container is part of the recovery. Pods that are ``stopped`` now, by
    a suspension or their queue, have trained since their last answer, which is some seconds old.
    """
    ledger, told = (before, {}) if report is None else _with_steps(before, use, report, lifetime, now)
    seconds, room = ledger.seconds.by_use(), max(0, lifetime - before.seconds.total)
    for each in TOLD if use not in _BY_THE_OPERATOR else ():
        taken = min(told.get(each, 0), room)
        room -= taken
        seconds[Use.RECOVERING if again and each is Use.STARTING else each] += taken
    if use is Use.OTHER and report is not None and (before.counted is None or before.counted.pod != report.pod):
        # Its pods were ready before its program began to measure.
        use, wait = Use.RECOVERING if again else Use.STARTING, 0
    elif stopped and report is not None and room <= _ANSWER_WITHIN:
        use = Use.TRAINING
    if room > wait:
        seconds[use] += room
        room = 0
    spent_on = Seconds.of(seconds)
    until = now - timedelta(seconds=room)
    update = {
        "seconds": spent_on,
        "percent": 100 * spent_on.training // spent_on.held if spent_on.training else None,
        "updated_at": format_time(max(until, parse_time(before.updated_at) or until)),
    }
    ledger = ledger.model_copy(update=update)
    return ledger.model_copy(update={"covered_seconds": _covered(ledger, report)})


def _with_steps(
    before: Goodput, use: Use, report: Report, lifetime: int, now: datetime
) -> tuple[Goodput, dict[Use, int]]:
    """The ledger with the steps of ``report``, and its seconds that are not counted yet.

    Steps that a restart makes necessary once more take their seconds from ``training`` to ``repeated``: those that the
    trainer says, and of a container that is gone the share of its steps. What else it takes back from ``training`` was
    a hang, which only the restart has shown.
    """
    sums, known = report.sums, _known(before.counted, report, now)
    seconds, steps, last = before.seconds.by_use(), before.steps, known.step
    of_sums, counted = sums.seconds.by_use(), known.seconds.by_use()
    told = {use: max(0, of_sums[use] - counted[use]) for use in TOLD}
    taken_back = min(max(0, counted[Use.TRAINING] - of_sums[Use.TRAINING]), seconds[Use.TRAINING])
    moved = min(taken_back, told[Use.REPEATED])
    hung = taken_back - moved
    told[Use.REPEATED] -= moved
    told[Use.RECOVERING] = max(0, told[Use.RECOVERING] - hung)
    seconds[Use.TRAINING] -= hung
    seconds[Use.RECOVERING] += hung
    again = repeated = max(0, sums.repeated_steps - known.repeated_steps)
    if known.first_step is None and sums.first_step is not None:
        lost = min(max(0, last - sums.first_step), steps) if last is not None else 0
        moved += (seconds[Use.TRAINING] - moved) * lost // max(steps, 1)
        repeated, steps = repeated + lost, steps - lost
        last = sums.first_step if last is None else last - lost
    if last is not None:
        # The trainer tells this before it has taken a step again.
        steps, last = max(0, steps - again), max(0, last - again)
    if report.step is not None:
        if last is not None:
            # A script may train several times, each time from 0.
            from_0 = known is before.counted and report.step < last
            steps += report.step - (0 if from_0 else last)
        last = report.step
    seconds[Use.TRAINING] -= moved
    seconds[Use.REPEATED] += moved
    if use is Use.STALLED:  # what does not count as training cannot be taken back from it
        of_sums[Use.TRAINING] = min(of_sums[Use.TRAINING], counted[Use.TRAINING])
    far = sums.model_copy(update={"seconds": Seconds.of(of_sums)})
    most = max(before.repeated_steps, _MAX_STEPS_A_SECOND * lifetime)
    update = {
        "seconds": Seconds.of(seconds),
        "steps": max(0, steps),
        "repeated_steps": min(before.repeated_steps + repeated, most),
        "counted": Counted(**dict(far), pod=report.pod, at=format_time(now), step=last),
    }
    return before.model_copy(update=update), told


def _known(counted: Counted | None, report: Report, now: datetime) -> Counted:
    """What of the sums of this container is counted already: nothing of a new one, and all of one that has trained
    beside the one that led until now."""
    sums, total = report.sums, report.sums.seconds.total
    if counted is None:
        return Counted(pod=report.pod)
    if counted.pod == report.pod and total >= counted.seconds.total - _ROUNDING:
        return counted
    at = parse_time(counted.at)
    if at is None or total <= (now - at).total_seconds():
        return Counted(pod=report.pod, step=counted.step)
    back = max(0, counted.step - report.step) if counted.step is not None and report.step is not None else 0
    beside = sums.model_copy(update={"repeated_steps": max(0, sums.repeated_steps - back)})
    return Counted(**dict(beside), pod=report.pod, step=counted.step)


def _covered(ledger: Goodput, report: Report | None) -> int:
    """How many of the training seconds a checkpoint covers, by the share of its steps: no restart repeats them."""
    last = ledger.counted.step if ledger.counted is not None else None
    if report is None or report.checkpoint_step is None or last is None:
        return ledger.covered_seconds
    saved = ledger.steps - max(0, last - report.checkpoint_step)
    return max(ledger.covered_seconds, ledger.seconds.training * max(0, saved) // max(ledger.steps, 1))


# -- metrics ----------------------------------------------------------------------------------------------------


def spent(goodput: Goodput | None) -> dict[Use, int]:
    """The seconds that can be counted for good, by what they went to: a restart may still repeat what no checkpoint
    covers."""
    found = goodput or Goodput()
    return {**found.seconds.by_use(), Use.TRAINING: found.covered_seconds}


def accelerators_of(job: Job, platform: Platform) -> dict[str, int]:
    """How many accelerators the pods of a job ask for, by resource: of those that the platform's profiles name."""
    found: dict[str, int] = {}
    known = {profile.resource for profile in platform.profiles.values()}
    for role in job.spec.roles() if job.spec is not None else ():
        assert job.spec is not None
        template = role_template(job, job.spec, role, platform=platform)
        for container in objects(dig(template, "spec", "containers")):
            for resource, amount in fields_of(dig(container, "resources", "limits")).items():
                of_pod = quantities.parse(amount) if resource in known else None
                if of_pod is not None:
                    counted = min(int(of_pod), _MOST_OF_A_POD) * job.spec.replicas(role)
                    found[resource] = found.get(resource, 0) + counted
    return found
