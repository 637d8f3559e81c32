"""What a cluster knows of a job. A part that cannot be read is listed as unread and does not end the gathering."""

from __future__ import annotations

import asyncio
import io
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Final, TypeVar

from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import Condition, Label
from dtj.cli.common.console import Console
from dtj.cli.doctor.checks import findings
from dtj.cli.doctor.findings import report as doctor_lines
from dtj.cli.report.evidence import (
    HEAD_BYTES,
    LOG_BYTES,
    LOG_LINES,
    Evidence,
    Log,
    Setting,
    Unread,
    by_time,
    phases_of,
    replica_named,
    scalars_of,
    versions_of,
)
from dtj.client import ApiError, AsyncClient
from dtj.client.installation import inspect
from dtj.client.overview import all_of, one, part
from dtj.core.pod_state import main_container
from dtj.core.replicas import deciding_replica
from dtj.kube.errors import NotFound
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, NODES, PODS, SERVICES, Resource
from dtj.kube.pod_logs import LogQuery

MAX_LOGS: Final = 100
"""Maximum number of containers whose logs are read, most informative first."""

_OPERATORS: Final = f"{Label.APP_NAME}=dtj-operator"
"""What the chart's labels are."""

T = TypeVar("T")


async def gather(client: AsyncClient, name: str, *, logs: bool) -> Evidence:
    """All that can be read of the job, with the ``logs`` of its pods if they shall be shown. Raises ApiError where the
    job itself cannot be read.

    The leader's log is read in any case: its curves, phases and versions are in it.
    """
    job = await client.gateway.get(JOBS, namespace=client.namespace, name=name)
    gathering = _Gathering(client, Job.from_object(job))
    uid = text(dig(job, "metadata", "uid"))
    pods, service, events, nodes, operators, doctor = await asyncio.gather(
        gathering.all("the job's pods", PODS, selector=f"{Label.JOB_UID}={uid}"),
        gathering.service(),
        gathering.all("events", EVENTS),
        gathering.all("nodes", NODES, everywhere=True),
        gathering.all("the operator's pods", PODS, selector=_OPERATORS, everywhere=True),
        gathering.noted("what dtj doctor says", one(_doctor(client))),
    )
    claims = await asyncio.gather(*(gathering.claim(claim) for claim in _claims(pods)))
    led = [pod for pod in pods if gathering.leads(pod)]
    read = await gathering.logs(pods if logs else led)
    return Evidence(
        source=f"namespace {client.namespace} of {client.gateway.server}",
        taken_at=datetime.now(UTC),
        job=job,
        pods=tuple(pods),
        events=tuple(by_time(event for event in events if _concerns(event, name, pods))),
        objects={
            "service": tuple(service),
            "claims": tuple(found for claim in claims for found in claim),
            "nodes": tuple(_capacity(node) for node in nodes),
            "operator": tuple(_version(operator) for operator in operators),
        },
        texts={"doctor": doctor[0]} if doctor else {},
        logs=(*read, *await gathering.operator_logs(operators)) if logs else (),
        scalars=scalars_of(read),
        phases=tuple(phases_of(read, job=name)),
        settings=await gathering.versions(led),
        unread=tuple(gathering.unread),
    )


class _Gathering:
    """Calls of which none may fail the whole."""

    def __init__(self, client: AsyncClient, job: Job) -> None:
        self._gateway = client.gateway
        self._namespace = client.namespace
        self._job = job
        leader = deciding_replica(job.spec) if job.spec is not None else None
        self._leader = leader.hostname if leader is not None else ""
        self.unread: list[Unread] = []

    async def noted(self, what: str, call: Awaitable[tuple[T, ...]]) -> tuple[T, ...]:
        """What a call returns; nothing if it is refused, which is noted as unread."""
        found = await part(call)
        if found.unread:
            self.unread.append(Unread(what, found.unread))
        return found.items

    async def all(
        self, what: str, resource: Resource, *, selector: str = "", everywhere: bool = False
    ) -> list[JsonObject]:
        """The objects of a list, with their kind, which lists leave out."""
        namespace = None if everywhere else self._namespace
        listing = all_of(self._gateway.list(resource, namespace=namespace, selector=selector))
        kind: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind}
        return [{**kind, **item} for item in await self.noted(what, listing)]

    async def claim(self, name: str) -> tuple[JsonObject, ...]:
        return await self.noted(f"claim {name}", one(self._gateway.get(CLAIMS, namespace=self._namespace, name=name)))

    async def service(self) -> list[JsonObject]:
        """The job's Service; a job that has ended, or is suspended, has none."""
        try:
            return [await self._gateway.get(SERVICES, namespace=self._namespace, name=self._job.name)]
        except NotFound:
            if not self._job.status.terminal and not self._job.status.is_true(Condition.SUSPENDED):
                self.unread.append(Unread("its Service", "it is not there"))
        except ApiError as error:
            self.unread.append(Unread("its Service", error.message))
        return []

    def leads(self, pod: JsonObject) -> bool:
        """Whether the pod is the leader, in any attempt."""
        return replica_named(_name(pod), job=self._job.name) == self._leader != ""

    async def versions(self, led: list[JsonObject]) -> tuple[Setting, ...]:
        """The versions that the newest pod of the leader printed at its start; a log that cannot be read has none."""
        if not led:
            return ()
        pod = max(led, key=lambda each: text(dig(each, "metadata", "creationTimestamp")))
        query = LogQuery(container=text(main_container(_spec(pod)).get("name")), limit_bytes=HEAD_BYTES)
        head = await part(one(_last(self._gateway.log(query, namespace=self._namespace, pod=_name(pod)))))
        return tuple(setting for content in head.items for setting in versions_of(content))

    async def logs(self, pods: list[JsonObject]) -> list[Log]:
        """The logs of the containers that have run: first that of the pod which failed first, the leader's next."""
        ran = [(pod, container) for pod in sorted(pods, key=self._rank) for container in _containers(pod)]
        if ran[MAX_LOGS:]:
            self.unread.append(Unread(f"logs of {len(ran) - MAX_LOGS} more containers", f"{MAX_LOGS} are read"))
        found = await asyncio.gather(*(self._log(pod, container) for pod, container in ran[:MAX_LOGS]))
        return [log for of_container in found for log in of_container]

    async def operator_logs(self, operators: list[JsonObject]) -> list[Log]:
        """The operator's logs without the lines about the jobs of others."""
        own = ("", f"{self._namespace}/{self._job.name}")
        found = [log for operator in operators for log in await self._log(operator, main_container(_spec(operator)))]
        return [
            Log(
                f"operator.{log.name}",
                "".join(line for line in log.text.splitlines(keepends=True) if _job_of(line) in own),
                stamped=True,
            )
            for log in found
        ]

    async def _log(self, pod: JsonObject, container: JsonObject) -> list[Log]:
        """The output of a container, and its output before its kubelet restarted it."""
        name, inside = _name(pod), text(container.get("name"))
        title = name if len(_containers(pod)) == 1 else f"{name}.{inside}"
        logs = []
        for previous in (False, True):
            if not _has_run(pod, inside, previous=previous):
                continue
            shown = f"{title}.previous" if previous else title
            query = LogQuery(container=inside, tail=LOG_LINES, previous=previous)
            read = _last(self._gateway.log(query, namespace=text(dig(pod, "metadata", "namespace")), pod=name))
            for content in await self.noted(f"log of {shown}", one(read)):
                if content:
                    logs.append(Log(shown, content, stamped=True))
                else:
                    self.unread.append(Unread(f"log of {shown}", "it is empty"))
        return logs

    def _rank(self, pod: JsonObject) -> tuple[int, str]:
        cause, name = self._job.status.root_cause, _name(pod)
        is_cause = cause is not None and cause.pod == name
        failed = dig(pod, "status", "phase") == "Failed"
        return 0 if is_cause else 1 if self.leads(pod) else 2 if failed else 3, name


async def _last(lines: AsyncGenerator[bytes, None]) -> str:
    """The end of a log. What is beyond it is not kept in memory meanwhile."""
    kept: deque[bytes] = deque()
    size = 0
    async with aclosing(lines):
        async for line in lines:
            kept.append(line)
            size += len(line) + 1
            while size > LOG_BYTES:
                size -= len(kept.popleft()) + 1
    return "".join(f"{line.decode(errors='replace')}\n" for line in kept)


async def _doctor(client: AsyncClient) -> str:
    """What ``dtj doctor`` says of the cluster."""
    output = io.StringIO()
    console = Console(file=output, width=120, color_system=None)
    found = await inspect(client.gateway, namespace=client.namespace, operator_namespace=None)
    for line in doctor_lines(findings(found), wrapped=True):
        console.print(line)
    return output.getvalue()


def _name(item: JsonObject) -> str:
    return text(dig(item, "metadata", "name"))


def _spec(pod: JsonObject) -> JsonObject:
    spec = dig(pod, "spec")
    return spec if isinstance(spec, dict) else {}


def _containers(pod: JsonObject) -> list[JsonObject]:
    spec = _spec(pod)
    return [*objects(spec.get("initContainers")), *objects(spec.get("containers"))]


def _has_run(pod: JsonObject, container: str, *, previous: bool) -> bool:
    fields = ("initContainerStatuses", "containerStatuses")
    states = [state for field in fields for state in objects(dig(pod, "status", field))]
    state = next((state for state in states if state.get("name") == container), {})
    if previous:
        return dig(state, "lastState", "terminated") is not None
    return any(dig(state, "state", kind) is not None for kind in ("running", "terminated"))


def _claims(pods: list[JsonObject]) -> list[str]:
    """Names of the claims that the pods mount."""
    volumes = (volume for pod in pods for volume in objects(_spec(pod).get("volumes")))
    names = (text(dig(volume, "persistentVolumeClaim", "claimName")) for volume in volumes)
    return sorted({name for name in names if name})


def _concerns(event: JsonObject, name: str, pods: list[JsonObject]) -> bool:
    """Whether an event is about the job, its Service and claims, or a pod of it, be it there or not."""
    kind, subject = text(dig(event, "regarding", "kind")), text(dig(event, "regarding", "name"))
    if kind == "Pod":
        return subject in map(_name, pods) or replica_named(subject, job=name) != ""
    return subject == name or (kind == "PersistentVolumeClaim" and subject in _claims(pods))


def _capacity(node: JsonObject) -> JsonObject:
    """What matters of a node for a job that does not run there; the rest is the cluster's own business."""
    conditions = {text(c.get("type")): text(c.get("status")) for c in objects(dig(node, "status", "conditions"))}
    return {
        "name": _name(node),
        "ready": conditions.get("Ready", ""),
        "pressure": [kind for kind, status in conditions.items() if kind.endswith("Pressure") and status == "True"],
        "unschedulable": dig(node, "spec", "unschedulable") is True,
        "taints": dig(node, "spec", "taints") or [],
        "labels": dig(node, "metadata", "labels") or {},
        "capacity": dig(node, "status", "capacity") or {},
        "allocatable": dig(node, "status", "allocatable") or {},
        "kubeletVersion": text(dig(node, "status", "nodeInfo", "kubeletVersion")),
        "containerRuntimeVersion": text(dig(node, "status", "nodeInfo", "containerRuntimeVersion")),
    }


def _version(operator: JsonObject) -> JsonObject:
    return {
        "pod": f"{text(dig(operator, 'metadata', 'namespace'))}/{_name(operator)}",
        "version": text(dig(operator, "metadata", "labels", "app.kubernetes.io/version")),
        "image": text(main_container(_spec(operator)).get("image")),
        "phase": text(dig(operator, "status", "phase")),
        "node": text(dig(operator, "spec", "nodeName")),
    }


def _job_of(line: str) -> str:
    """The job that a line of the operator's log is about; empty where it is about none, or not JSON."""
    with suppress(ValueError):
        record = json.loads(line.partition(" ")[2])
        return text(record.get("job")) if isinstance(record, dict) else ""
    return ""
