"""Stalls: whether a training whose pods are all ready stands still.

A stall needs evidence by this process of the operator: answers of the same pod that show the same place, while all pods
stay ready, and ``runPolicy.stallTimeoutSeconds`` between the first and the latest of them. That nobody asked, that the
operator was away, or that a pod did not answer is no evidence; it is reported as such.
"""

from __future__ import annotations

from datetime import timedelta

from dtj.api import names
from dtj.api.names import Condition, Reason
from dtj.core.picture import Picture
from dtj.core.replicas import deciding_replica
from dtj.core.status import DesiredCondition

_NOT_STALLED = DesiredCondition("False", Reason.NOT_STALLED)


def evidence(picture: Picture) -> str | None:
    """What this process has seen of a stall, in one line; None where it has seen none."""
    timeout, answer = _timeout(picture), picture.latest_answer
    if timeout is None or answer is None or answer.still_for < timeout:
        return None
    progress = picture.progress
    assert progress is not None
    where = f"step {progress.step}" if progress.step is not None else progress.phase or "no step"
    seconds = picture.spec.run_policy.stall_timeout_seconds
    return (
        f"all pods are ready, but the training has not advanced for {seconds} s, which is "
        f"runPolicy.stallTimeoutSeconds: {where} since {progress.updated_at}"
    )


def condition(picture: Picture) -> DesiredCondition:
    """What the condition Stalled should say; Unknown where the pod that knows has not answered for so long.

    An operator that has just started has seen nothing yet: until it has, what was recorded stands.
    """
    timeout = _timeout(picture)
    if timeout is None:
        return _NOT_STALLED
    found = evidence(picture)
    if found is not None:
        return DesiredCondition("True", Reason.STALLED, found)
    silence = picture.view.observed.silence
    if silence is not None and silence.lasted >= timeout and picture.is_current_uid(silence.pod.uid):
        return DesiredCondition("Unknown", Reason.PROGRESS_UNKNOWN, _unanswered(picture, silence.pod.name))
    return _recorded(picture) or _NOT_STALLED


def _timeout(picture: Picture) -> timedelta | None:
    """None where the job cannot stall: no time is set, not all pods are ready, or the replica that decides is done."""
    seconds = picture.spec.run_policy.stall_timeout_seconds
    over = deciding_replica(picture.spec) in picture.done()
    if seconds is None or over or not picture.job.status.is_true(Condition.PODS_READY):
        return None
    return timedelta(seconds=seconds)


def _recorded(picture: Picture) -> DesiredCondition | None:
    """What was found before, by another process of the operator, and nothing that was heard since contradicts."""
    before, answer = picture.job.status.condition(Condition.STALLED), picture.latest_answer
    if before is None or before.status == "False" or before.reason not in (Reason.STALLED, Reason.PROGRESS_UNKNOWN):
        return None
    known = picture.job.status.progress
    still = before.status == "True" and answer is not None and known is not None and not answer.progress.advanced(known)
    if answer is not None and not still:
        return None
    return DesiredCondition(before.status, Reason(before.reason), before.message)


def _unanswered(picture: Picture, pod: str) -> str:
    seconds = picture.spec.run_policy.stall_timeout_seconds
    return (
        f"stalls cannot be detected: {pod} has not answered GET /status on port {names.STATUS_PORT} for {seconds} s, "
        "which is runPolicy.stallTimeoutSeconds; have the training report its progress, let the operator reach that "
        "port, or unset runPolicy.stallTimeoutSeconds"
    )
