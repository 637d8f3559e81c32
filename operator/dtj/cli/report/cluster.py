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
from dtj.cli.report.evidence import (
    LOG_LINES,
    Evidence,
    Log,
    Unread,
    leaders,
    replica_named,
    scalars_of,
    versions_of,
)
from dtj.client import ApiError, AsyncClient, job_names
from dtj.client.logs import MAX_AT_ONCE, LogNote, LogSelection, read_logs
from dtj.client.overview import Event, aggregated, all_of, part
from dtj.client.pods import JobPod, owned, selector_of
from dtj.kube.gateway import CLAIMS, EVENTS, NODES, PODS, SERVICES, Resource
from dtj.kube.records import plain_from_object, pod_from_object

_LEADERS_LINES: Final = 5000
"""How much of a log is read for its curves and versions, from its end."""


async def gather(client: AsyncClient, name: str, *, logs: bool) -> Evidence:
    """All that can be read of the job, with the ``logs`` of its pods if they shall be shown. Raises ApiError where the
    job itself cannot be read.

    The leader's log is read in any case: its versions are in it, and its curves if it logs JSON. If the first leader of
    an elastic job was given up, its successor's is read as well.
    """
    body = await job_names.read(client.gateway, name, namespace=client.namespace)
    job, reader = Job.from_object(body), _Reader(client)
    of_job = selector_of(job)
    pods, services, claims, events, nodes = await asyncio.gather(
        reader.all("the job's pods", PODS, selector=of_job),
        reader.all("its Service", SERVICES, selector=of_job),
        reader.all("claims", CLAIMS),
        reader.all("events", EVENTS),
        reader.all("nodes", NODES, everywhere=True),
    )
    leading = {(replica.role, replica.index) for replica in leaders(job)}
    pods, services = (tuple(each for each in found if _is_of(each, job)) for found in (pods, services))
    known = owned((JobPod.of(pod_from_object(pod), job.form) for pod in pods), job)
    led = [each for each in known if each.replica in leading]
    failed = job.status.root_cause.pod if job.status.root_cause is not None else ""
    # Of too many pods, these are read.
    first = sorted(known, key=lambda each: each not in led and each.pod.name != failed)
    read = await reader.logs(first if logs else led, whole=led)
    own = [read[each.title] for each in led if each.title in read]
    mounted = _mounted(pods)
    return Evidence(
        source=f"namespace {client.namespace} of {client.gateway.server}",
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
        unread=tuple(reader.unread),
    )


class _Reader:
    """Calls of which none may fail the whole."""

    def __init__(self, client: AsyncClient) -> None:
        self._gateway = client.gateway
        self._namespace = client.namespace
        self.unread: list[Unread] = []

    async def all(
        self, what: str, resource: Resource, *, selector: str = "", everywhere: bool = False
    ) -> tuple[JsonObject, ...]:
        """The objects of a list; none if it is refused, which is noted as unread."""
        namespace = None if everywhere else self._namespace
        found = await part(all_of(self._gateway.list(resource, namespace=namespace, selector=selector)))
        if found.unread:
            self.unread.append(Unread(what, found.unread))
        return found.items

    async def logs(self, pods: Sequence[JobPod], *, whole: Sequence[JobPod]) -> dict[str, Log]:
        """What the containers that train wrote last, by the titles of the pods: of the ``whole`` ones all that is
        read, of the others as much as is shown."""
        selection, titles = LogSelection(tail=_LEADERS_LINES), {each.title for each in whole}
        lines: dict[str, deque[str]] = {}
        if pods[MAX_AT_ONCE:]:
            self.unread.append(Unread(f"logs of {len(pods) - MAX_AT_ONCE} more pods", f"{MAX_AT_ONCE} are read"))
        try:
            async with aclosing(read_logs(self._gateway, pods[:MAX_AT_ONCE], selection)) as found:
                async for line in found:
                    if isinstance(line, LogNote):
                        self.unread.append(Unread("a log", line.words))
                    else:
                        kept = lines.setdefault(line.title, deque(maxlen=None if line.title in titles else LOG_LINES))
                        kept.append(f"{line.line.stamp} {line.line.text}\n")
        except ApiError as error:
            self.unread.append(Unread("logs", error.message))
        return {title: Log(title, "".join(kept), stamped=True) for title, kept in lines.items()}


def _is_of(item: JsonObject, job: Job) -> bool:
    """Whether the job owns it: an earlier one of its name may have left others."""
    return job.owns(plain_from_object(item).metadata)


def _mounted(pods: Iterable[JsonObject]) -> set[str]:
    """Names of the claims that the pods mount."""
    volumes = (volume for pod in pods for volume in objects(dig(pod, "spec", "volumes")))
    return {text(dig(volume, "persistentVolumeClaim", "claimName")) for volume in volumes} - {""}


def _of_job(events: Iterable[Event], job: Job, claims: set[str]) -> list[Event]:
    """The events about the job and what has its name, its claims, and its pods, be they there or not."""
    names = {job.name} | claims
    return [event for event in events if event.about in names or replica_named(event.about, job=job.name)]


def _node(node: JsonObject) -> JsonObject:
    """What matters of a node for a job that does not run there; the rest is the cluster's own business."""
    metadata: JsonObject = {"name": name_of(node), "labels": dig(node, "metadata", "labels")}
    spec: JsonObject = {field: dig(node, "spec", field) for field in ("taints", "unschedulable")}
    known = ("capacity", "allocatable", "conditions", "nodeInfo")
    return {"metadata": metadata, "spec": spec, "status": {field: dig(node, "status", field) for field in known}}
