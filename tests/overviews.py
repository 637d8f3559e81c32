"""Builders of overviews: a job and what is around it, as an API server would show it."""

from __future__ import annotations

from collections.abc import Iterable

from builders import NOW, UID, at, manifest, stored
from dtj.api.form import DTJ
from dtj.api.job import Job
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Condition, Label
from dtj.client.overview import Event, Overview, Part
from dtj.client.pods import JobPod, owned
from dtj.kube.records import pod_from_object


def moment(seconds_ago: float) -> str:
    """A timestamp so long before NOW."""
    return at(-seconds_ago)


def condition(kind: Condition, status: str, reason: str, message: str = "", *, ago: float = 60) -> JsonObject:
    """A condition of a job."""
    return {
        "type": str(kind),
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": moment(ago),
    }


def body(*conditions: JsonObject, roles: dict[str, int] | None = None, **status: object) -> JsonObject:
    """A job with a status, created two minutes before NOW."""
    found = stored(manifest(roles=roles))
    metadata = object_at(found, "metadata")
    metadata["creationTimestamp"] = moment(120)
    status = {"startTime": moment(110), **status}
    return {**found, "status": {**status, **({"conditions": [*conditions]} if conditions else {})}}  # type: ignore[dict-item]


def pod_body(
    replica: str,
    *,
    phase: str = "Running",
    node: str = "node-1",
    state: JsonObject | None = None,
    unschedulable: str = "",
    incarnation: int = 0,
    ago: float = 100,
) -> JsonObject:
    """The pod of a replica such as ``worker-1``; running and ready by default."""
    role, _, index = replica.rpartition("-")
    name = f"digits-{replica}" + (f"-r{incarnation}" if incarnation else "")
    running = phase == "Running" and state is None
    conditions: list[JsonObject] = [{"type": "Ready", "status": "True" if running else "False"}]
    if unschedulable:
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": unschedulable}
        )
    shown = state if state is not None else {"running": {}} if phase == "Running" else None
    statuses: list[JsonObject] = [{"name": "trainer", "state": shown}] if shown is not None else []
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "creationTimestamp": moment(ago),
            "labels": {
                Label.JOB_NAME: "digits",
                Label.ROLE: role,
                **({Label.INDEX: index} if index.isdecimal() else {}),
                Label.ATTEMPT: str(incarnation + 1),
            },
            "ownerReferences": [{"uid": UID, "controller": True}],
        },
        "spec": {"nodeName": node, "containers": [{"name": "trainer"}]},
        "status": {"phase": phase, "conditions": [*conditions], "containerStatuses": [*statuses]},
    }


def job_pod(replica: str, **arguments: object) -> JobPod:
    """As :func:`pod_body`, as the client sees it."""
    return JobPod.of(pod_from_object(pod_body(replica, **arguments)), DTJ)  # type: ignore[arg-type]


def overview(
    job: JsonObject, *pods: JobPod, events: Iterable[Event] = (), nodes: Iterable[JsonObject] = (), unread: str = ""
) -> Overview:
    """An overview of NOW; ``unread`` is why neither pods nor events can be read."""
    read = Job.from_object(job)
    return Overview(
        job=read,
        at=NOW,
        pods=Part(owned(pods, read), unread),
        events=Part(tuple(events), unread),
        claims=Part(),
        nodes=Part(tuple(nodes)),
        body=job,
    )
