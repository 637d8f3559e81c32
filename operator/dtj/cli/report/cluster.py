"""What a cluster knows of a job. A part that cannot be read is listed as unread and does not end the gathering."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, name_of, objects, text
from dtj.cli.report.evidence import LOG_LINES, Evidence, Log, Unread, leaders, replica_named, scalars_of, versions_of
from dtj.client import ApiError, AsyncClient, job_names
from dtj.client.logs import MAX_AT_ONCE, LogNote, LogSelection, read_logs
from dtj.client.overview import Event, aggregated, all_of, part
from dtj.client.pods import JobPod, owned, selector_of
from dtj.kube.client import KubeGateway
from dtj.kube.gateway import CLAIMS, EVENTS, NODES, PODS, SERVICES
from dtj.kube.records import plain_from_object, pod_from_object

_LEADERS_LINES: Final = 5000
"""How much of a log is read for its curves and versions, from its end."""


async def gather(client: AsyncClient, name: str, *, logs: bool) -> Evidence:
    """All that can be read of the job, with the ``logs`` of its pods if they shall be shown. Raises ApiError where the
    job itself cannot be read.

    The leader's log is read in any case: its versions are in it, and its curves if it logs JSON. If the first leader of
    an elastic job was given up, its successor's is read as well.
    """
    gateway, namespace = client.gateway, client.namespace
    body = await job_names.read(gateway, name, namespace=namespace)
    job = Job.from_object(body)
    calls = {
        "the job's pods": gateway.list(PODS, namespace=namespace, selector=selector_of(job)),
        "its Service": gateway.list(SERVICES, namespace=namespace, selector=selector_of(job)),
        "claims": gateway.list(CLAIMS, namespace=namespace),
        "events": gateway.list(EVENTS, namespace=namespace),
        "nodes": gateway.list(NODES, namespace=None),
    }
    parts = await asyncio.gather(*(part(all_of(call)) for call in calls.values()))
    unread = [Unread(what, each.unread) for what, each in zip(calls, parts, strict=True) if each.unread]
    pods, services, claims, events, nodes = (each.items for each in parts)
    leading = {(replica.role, replica.index) for replica in leaders(job)}
    pods, services = (tuple(each for each in found if _is_of(each, job)) for found in (pods, services))
    known = owned((JobPod.of(pod_from_object(pod), job.form) for pod in pods), job)
    led = [each for each in known if each.replica in leading]
    failed = job.status.root_cause.pod if job.status.root_cause is not None else ""
    # Of too many pods, these are read.
    first = sorted(known, key=lambda each: each not in led and each.pod.name != failed)
    read = await _read(gateway, first if logs else led, whole=led, unread=unread)
    own = [read[each.title] for each in led if each.title in read]
    mounted = _mounted(pods)
    return Evidence(
        source=f"namespace {namespace} of {gateway.server}",
        taken_at=datetime.now(UTC),
        job=body,
        events=aggregated(_of_job(map(Event.from_object, events), job, mounted)),
        objects={
            "pods": pods,
            "service": services,
            "claims": tuple(claim for claim in claims if name_of(claim) in mounted),
            "nodes": tuple(map(_node, nodes)),
        },
        logs=tuple(log.end() for log in read.values()) if logs else (),
        scalars=scalars_of(own),
        settings=versions_of(own),
        unread=tuple(unread),
    )


async def _read(
    gateway: KubeGateway, pods: Sequence[JobPod], *, whole: Sequence[JobPod], unread: list[Unread]
) -> dict[str, Log]:
    """What the containers that train wrote last, by the titles of the pods: of the ``whole`` ones all that is read, of
    the others as much as is shown. What cannot be read is added to ``unread``."""
    selection, titles = LogSelection(tail=_LEADERS_LINES), {each.title for each in whole}
    lines: dict[str, deque[str]] = {}
    if pods[MAX_AT_ONCE:]:
        unread.append(Unread(f"logs of {len(pods) - MAX_AT_ONCE} more pods", f"{MAX_AT_ONCE} are read"))
    try:
        async with aclosing(read_logs(gateway, pods[:MAX_AT_ONCE], selection)) as found:
            async for line in found:
                if isinstance(line, LogNote):
                    unread.append(Unread("a log", line.words))
                else:
                    kept = lines.setdefault(line.title, deque(maxlen=None if line.title in titles else LOG_LINES))
                    kept.append(f"{line.line.stamp} {line.line.text}\n")
    except ApiError as error:
        unread.append(Unread("logs", error.message))
    return {title: Log(title, "".join(kept), stamped=True) for title, kept in lines.items()}


def _is_of(item: JsonObject, job: Job) -> bool:
    """Whether the job owns it: an earlier one of its name may have left others."""
    return job.owns(plain_from_object(item).metadata)


def _mounted(pods: Iterable[JsonObject]) -> set[str]:
    """Names of the claims that the pods mount."""
    volumes = (volume for pod in pods for volume in objects(dig(pod, "spec", "volumes")))
    return {text(dig(volume, "persistentVolumeClaim", "claimName")) for volume in volumes} - {""}


def _of_job(events: Iterable[Event], job: Job, claims: set[str]) -> list[Event]:
    """The events about the job and what has its name, its claims, and its pods, be they there or not. Those from before
    its creation are of an earlier job of its name."""
    names = {job.name} | claims
    about = (event for event in events if event.about in names or replica_named(event.about, job=job.name))
    return [event for event in about if event.last is None or job.created_at is None or event.last >= job.created_at]


def _node(node: JsonObject) -> JsonObject:
    """What matters of a node for a job that does not run there; the rest is the cluster's own business."""
    metadata: JsonObject = {"name": name_of(node), "labels": dig(node, "metadata", "labels")}
    spec: JsonObject = {field: dig(node, "spec", field) for field in ("taints", "unschedulable")}
    known = ("capacity", "allocatable", "conditions", "nodeInfo")
    return {"metadata": metadata, "spec": spec, "status": {field: dig(node, "status", field) for field in known}}
