"""Why a job does not run, and what to do about it: an overview goes in, reasons come out. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, condition_of, dig, name_of, objects, text
from dtj.api.kueue import is_left_alone, other_controller
from dtj.api.names import Condition, Reason
from dtj.api.status import ConditionStatus
from dtj.client.job_names import typed
from dtj.client.overview import Overview
from dtj.client.pods import JobPod
from dtj.core.blockers import ailing
from dtj.core.observed import Blocker

_PATIENCE_SECONDS: Final = 10.0
"""How long a new job may have no status before that is strange."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One reason. ``reason`` is its word in the status, ``words`` say it, ``remedy`` is what to do; each command is one
    that helps, ``dtj`` or ``kubectl`` and its arguments."""

    reason: str
    words: str
    remedy: str = ""
    commands: tuple[tuple[str, ...], ...] = ()


_REMEDIES: Final[dict[str, str]] = {
    Reason.INVALID_SPEC: "fix the field that the message names; the cluster's CRD is older than its operator",
    Reason.UNKNOWN_ACCELERATOR_PROFILE: "use one of the profiles that the message names, or have one configured",
    Reason.TOPOLOGY_MISMATCH: "set the number of replicas that the message names",
    Reason.TEMPLATE_REJECTED: "fix the template, delete the job and submit it again",
    Reason.NAME_TAKEN: "delete the object of that name, or rename the job; the job continues within 30 s",
    Reason.UNSCHEDULABLE: "add nodes, request less, or fix nodeSelector and tolerations",
    Reason.IMAGE_PULL_FAILED: "fix the image's name, the registry, or imagePullSecrets",
    Reason.CONTAINER_CONFIG_ERROR: "create the missing Secret or ConfigMap, or set securityContext.runAsUser",
    Reason.POD_START_FAILED: "fix the volume or the network that the message names; ReadWriteOnce is for one node",
    Reason.CONTAINER_FAILED: "read the log of that container",
    Reason.POD_CREATION_FAILED: "fix what the message names; the operator retries at growing intervals",
    Reason.API_CALL_FAILED: "fix the permission or the webhook that the message names; the operator retries",
    Reason.OPERATOR_ERROR: "report the error: the operator's log has the place; it tries again every minute",
    Reason.GANG_RELEASED: "the operator retries all pods together: make room for all of them, or request fewer",
    Reason.GANG_UNAVAILABLE: "install or repair the scheduler, or set another runPolicy.scheduling.gang",
    Reason.BACKOFF: "nothing: the next attempt starts automatically",
    Reason.STOPPING_PODS: "nothing: pods save and end within their grace period",
    Reason.WAITING_FOR_PODS: "look at the replicas that are not ready",
}
"""What to do, by the reason of a condition; docs/failure-modes.md says it at length."""

_QUOTA: Final = "exceeded quota"


def reasons(overview: Overview) -> tuple[Diagnosis, ...]:
    """Why the job does not run, and which containers fail beside the training; nothing where it has ended."""
    status = overview.job.status
    troubled = status.is_true(Condition.PROGRESS_STALLED) or status.is_true(Condition.STALLED)
    if status.terminal:
        return ()
    runs = status.is_true(Condition.PODS_READY) and not troubled
    return (*(() if runs else _found(overview)), *_beside(overview))


def explaining_condition(job: Job) -> ConditionStatus | None:
    """The condition that explains the state of a job to a person, by its message; None if no condition has one.

    Of a job that runs and is not stalled, or that no operator has seen, there is nothing to explain.
    """
    kinds = (
        Condition.FAILED,
        Condition.COMPLETE,
        Condition.STALLED,
        Condition.INVALID,
        Condition.SUSPENDED,
        Condition.PROGRESS_STALLED,
    )
    found = next((each for each in map(job.status.when_true, kinds) if each is not None and each.message), None)
    if found is not None or job.status.terminal:
        return found
    ready = job.status.condition(Condition.PODS_READY)
    return ready if ready is not None and ready.status == "False" and ready.message else None


def how_job_ended(job: Job) -> str:
    """One line for a job that has ended: ``digits has failed: ...``."""
    condition = explaining_condition(job)
    end = "failed" if job.status.is_true(Condition.FAILED) else "succeeded"
    return f"{job.name} has {end}" + (f": {condition.message}" if condition is not None else "")


def _found(overview: Overview) -> Iterator[Diagnosis]:
    job, status = overview.job, overview.job.status
    if job.deleting:
        yield Diagnosis("Deleting", "the job is being deleted", "nothing: it disappears when its pods have ended")
        return
    if not status.conditions:
        yield from _unseen(overview)
        return
    for kind, explain in (
        (Condition.STALLED, _plainly),
        (Condition.INVALID, _plainly),
        (Condition.SUSPENDED, _suspended),
        (Condition.RESTARTING, _plainly),
        (Condition.PROGRESS_STALLED, _stalled),
    ):
        if (condition := status.when_true(kind)) is not None:
            yield explain(overview, condition)
            if kind in (Condition.STALLED, Condition.INVALID, Condition.SUSPENDED):
                return
    ready = status.condition(Condition.PODS_READY)
    if ready is not None and ready.status != "True":
        yield from _not_ready(overview, ready)


def _unseen(overview: Overview) -> Iterator[Diagnosis]:
    """Nobody has written a status."""
    job = overview.job
    manager = other_controller(job.raw_spec)
    if manager is not None and is_left_alone(job.raw_spec):
        yield Diagnosis("ManagedBy", f"managedBy leaves the job to {manager}", f"ask {manager} about it")
    elif job.created_at is None or (overview.at - job.created_at).total_seconds() > _PATIENCE_SECONDS:
        remedy = "check that an operator runs, and manages this namespace"
        yield Diagnosis("NotSeen", "no operator has seen the job", remedy, (("dtj", "doctor"),))
    else:
        yield Diagnosis("NotSeen", "the job was created a moment ago", "nothing: the operator sees it within seconds")


def _plainly(overview: Overview, condition: ConditionStatus) -> Diagnosis:
    return Diagnosis(condition.reason, condition.message or condition.reason, _REMEDIES.get(condition.reason, ""))


def _suspended(overview: Overview, condition: ConditionStatus) -> Diagnosis:
    job = overview.job
    if condition.reason == Reason.QUEUED:
        queue = job.spec.scheduling.queue if job.spec is not None else None
        where = f" (queue {queue})" if queue else ""
        remedy = "wait, or ask the owner of the quota"
        look = ("kubectl", "describe", "workloads.kueue.x-k8s.io", job.name)
        return Diagnosis(condition.reason, f"{condition.message}{where}", remedy, (look,))
    who = suspended_by(overview.body)
    by = f" by {who[0]}" + (f" at {who[1]:%Y-%m-%d %H:%M} UTC" if who[1] is not None else "") if who else ""
    words = f"runPolicy.suspend is true, set{by}" if by else "runPolicy.suspend is true"
    return Diagnosis(condition.reason, words, "resume it", (("dtj", "resume", typed(job)),))


def suspended_by(body: JsonObject) -> tuple[str, datetime | None] | None:
    """The program that set ``runPolicy.suspend`` last, and when; None where the object does not tell.

    The API server notes who manages each field (``metadata.managedFields``).
    """
    setters = [
        (text(entry.get("manager")), parse_time(entry.get("time")))
        for entry in objects(dig(body, "metadata", "managedFields"))
        if dig(entry, "fieldsV1", "f:spec", "f:runPolicy", "f:suspend") is not None
    ]
    return max(setters, key=lambda setter: setter[1].timestamp() if setter[1] else 0.0, default=None)


def _stalled(overview: Overview, condition: ConditionStatus) -> Diagnosis:
    job = overview.job
    remedy = "read the last lines of the replicas; the stall detector makes them print their stacks"
    return Diagnosis(condition.reason, condition.message, remedy, (("dtj", "logs", typed(job), "--tail=50"),))


def _not_ready(overview: Overview, condition: ConditionStatus) -> Iterator[Diagnosis]:
    """Pods are missing, or not ready: what the status says, and what each pod says next to it."""
    covered, blocked = set(), _ailing(overview, ready=False)
    told_below = condition.reason in {blocker.reason for blocker in blocked if blocker.container}
    if condition.message and condition.reason != Reason.WAITING_FOR_PODS and not told_below:
        covered.add(condition.reason)
        looks = (("kubectl", "describe", "resourcequota"),) if _QUOTA in condition.message else ()
        yield Diagnosis(condition.reason, condition.message, _remedy(condition), looks)
    for blocker, pods in blocked.items():
        if blocker.reason not in covered:
            yield _ails(overview, blocker, pods)
    yield from _nodes(overview)
    if not covered and not blocked:
        yield from _waiting(overview)


def _beside(overview: Overview) -> Iterator[Diagnosis]:
    """Containers that fail in pods whose training goes on."""
    for blocker, pods in _ailing(overview, ready=True).items():
        if blocker.container:
            yield _ails(overview, blocker, pods)


def _ailing(overview: Overview, *, ready: bool) -> dict[Blocker, list[JobPod]]:
    """The current pods with a blocker that are ready, or are not, those with the same words together."""
    current = {each.uid: each for each in overview.current_pods}
    found: dict[Blocker, list[JobPod]] = {}
    for pod, blocker in ailing((each.pod for each in current.values()), overview.at):
        if pod.ready is ready:
            found.setdefault(replace(blocker, at=None), []).append(current[pod.uid])
    return found


def _ails(overview: Overview, blocker: Blocker, pods: list[JobPod]) -> Diagnosis:
    first, who = pods[0], ", ".join(each.title for each in pods)
    looks: tuple[tuple[str, ...], ...] = (_describe(first),)
    if blocker.container and blocker.reason in (Reason.CONTAINER_FAILED, Reason.WAITING_FOR_PODS):
        looks = ((*_logs(overview, first), "--container", blocker.container), *looks)
    starts = blocker.reason == Reason.WAITING_FOR_PODS
    remedy = "it is starting, or its probe fails" if starts else _REMEDIES.get(blocker.reason, "")
    return Diagnosis(blocker.reason, f"{who}: {blocker.message}", remedy, looks)


def _remedy(condition: ConditionStatus) -> str:
    if condition.reason == Reason.POD_CREATION_FAILED and _QUOTA in condition.message:
        return "wait until other pods release resources, request less, or have the quota raised"
    return _REMEDIES.get(condition.reason, "")


def _logs(overview: Overview, each: JobPod) -> tuple[str, ...]:
    return ("dtj", "logs", typed(overview.job), "--role", each.pod.role, "--index", str(each.pod.index))


def _describe(each: JobPod) -> tuple[str, ...]:
    return ("kubectl", "describe", "pod", each.pod.name)


def _nodes(overview: Overview) -> Iterator[Diagnosis]:
    """Nodes that are gone or not ready, with pods on them that are not ready."""
    for node in overview.nodes.items:
        name = name_of(node)
        ready = condition_of(dig(node, "status"), "Ready")
        if ready.get("status") != "True":
            on_it = ", ".join(each.title for each in overview.current_pods if each.pod.node == name)
            words = text(ready.get("message")) if ready else "it is gone"
            remedy = "nothing: its pods are replaced when the cluster evicts them (usually after 5 minutes)"
            yield Diagnosis("NodeNotReady", f"node {name} is not ready, with {on_it} on it: {words}", remedy)


def _waiting(overview: Overview) -> Iterator[Diagnosis]:
    """Nothing is known to be wrong."""
    missing = overview.missing_pods
    waiting = [each for each in overview.current_pods if not (each.pod.ready or each.pod.main_container_ended)]
    if missing:
        words = f"{len(missing)} pods do not exist yet: {', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}"
        yield Diagnosis(Reason.WAITING_FOR_PODS, words, "nothing: the operator creates them within seconds")
    if waiting:
        who = ", ".join(each.title for each in waiting[:4]) + (", …" if len(waiting) > 4 else "")
        first = waiting[0]
        remedy = "containers are starting, or their probes fail" if first.pod.node else "a node is being chosen"
        yield Diagnosis(
            Reason.WAITING_FOR_PODS, f"not ready yet: {who}", remedy, (_logs(overview, first), _describe(first))
        )
