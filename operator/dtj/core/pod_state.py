"""The state of a pod: the word for it, whether it was asked to stop, and which container is the main one.

What a program shows of a pod must not differ from what the planner decides by, so both ask here and in
:mod:`dtj.core.pod_failure`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable
from enum import StrEnum

from dtj.api.form import DTJ
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Annotation, Reason
from dtj.api.spec import as_role
from dtj.core.observed import Phase, Pod
from dtj.core.pod_failure import PodFailureClass, ends_of
from dtj.core.replicas import Replica


class PodState(StrEnum):
    """The states of a pod as programs show them. What keeps a pod from starting is shown by its own reason."""

    PENDING = "Pending"
    STARTING = "Starting"
    NOT_READY = "Not ready"
    RUNNING = "Running"
    WAITING = "Waiting"
    """It is ready, and does not train with the others of an elastic job (yet)."""

    STOPPING = "Stopping"
    STOPPED = "Stopped"
    """It ended because it was asked to; see :func:`stopped_on_request`."""

    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


def state_text(pod: Pod, *, on_request: Container[str] = ()) -> str:
    """The state of a pod: a :class:`PodState`, ``Failed (3)`` with its exit code or reason, or ``ImagePullFailed``.

    ``on_request`` has the names of the pods that ended because they were asked to, see :func:`stopped_on_request`.
    """
    if pod.succeeded:
        return PodState.SUCCEEDED
    if pod.failed:
        return PodState.STOPPED if pod.name in on_request else _failed(pod)
    if pod.terminating:
        return PodState.STOPPING
    if pod.ready:
        return PodState.RUNNING
    if pod.blocker is not None and pod.blocker.reason is not Reason.WAITING_FOR_PODS:
        return str(pod.blocker.reason)
    if pod.phase is Phase.RUNNING:
        return PodState.NOT_READY
    return PodState.STARTING if pod.node else PodState.PENDING


def _failed(pod: Pod) -> str:
    how = str(pod.termination.exit_code) if pod.termination is not None else pod.reason
    return f"{PodState.FAILED} ({how})" if how else PodState.FAILED


def replica_of(pod: Pod) -> Replica | None:
    """The replica that a pod runs, or None if its role is none of ours."""
    role = as_role(pod.role)
    return Replica(role, pod.index) if role is not None else None


def by_attempt(pods: Iterable[Pod]) -> Iterable[list[Pod]]:
    """The pods of one job, those of each attempt together."""
    attempts: defaultdict[int, list[Pod]] = defaultdict(list)
    for pod in pods:
        attempts[pod.attempt].append(pod)
    return attempts.values()


def stopped_on_request(pods: Iterable[Pod]) -> frozenset[str]:
    """The names of those pods of one job that ended because they were asked to: their end is no failure.

    The pods of one attempt are compared with each other: exit codes 42 and 143 count at once where a peer was asked
    to stop. Alone, each would be a failure in the first seconds.
    """
    return frozenset(
        terminated.pod.name
        for attempt in by_attempt(pods)
        for terminated in ends_of(attempt)
        if terminated.pod.main_container_ended
        and (
            terminated.failure_class is PodFailureClass.PREEMPTION
            or (terminated.pod.disrupted and terminated.pod.failed)
        )
    )


def main_container_of(pod: JsonObject) -> JsonObject:
    """The main container of a stored pod, in which a webhook may have put other containers first."""
    named = dig(pod, "metadata", "annotations", Annotation.MAIN_CONTAINER)
    known = (container for container in objects(dig(pod, "spec", "containers")) if container.get("name") == named)
    return next(known, None) or DTJ.main_container(dig(pod, "spec"))
