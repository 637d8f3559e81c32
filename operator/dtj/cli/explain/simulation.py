"""What the planner would create for a manifest, without a cluster: it plans, and gets the answers that it hopes for.

The API server takes the pods, the gang scheduler that the job names is there, Kueue admits, and all pods run. Decides
nothing: each object comes out of :func:`dtj.core.planner.plan`, as in the operator.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from dtj.api.form import Form
from dtj.api.job import Job, form_of
from dtj.api.json import JsonObject, dig, fields_of, name_of, object_at, text
from dtj.api.names import Annotation
from dtj.core.actions import (
    Action,
    BestEffort,
    CheckPods,
    Create,
    CreatePod,
    LookForGangs,
    PatchStatus,
    ReadPriorityClass,
)
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.manifests.metadata import claim_name
from dtj.core.observed import Child, GangApi, GangObject, GangsFound, Observed, Phase, Pod, TemplateVerdict
from dtj.core.planner import plan
from dtj.core.platform import PLATFORM_OF_TFJOBS, Platform
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object

UID: Final = "00000000-0000-0000-0000-000000000000"
"""Stands for the UID that the API server will give to the job."""

_MAX_PASSES: Final = 20
"""Far more than a job needs to have all its objects."""

_ADMITTED: Final[JsonObject] = {"conditions": [{"type": "Admitted", "status": "True"}]}


@dataclass(frozen=True, slots=True)
class Simulation:
    """What would be created, in this order. ``gang`` is the API that learns which pods belong together, if any."""

    job: Job
    objects: tuple[JsonObject, ...]
    gang: GangApi | None = None


def simulate(body: JsonObject, platform: Platform, *, namespace: str, now: datetime) -> Simulation:
    """Plan a valid manifest until nothing more is created.

    A suspended job is planned as if it were resumed; a job of another controller gets nothing. ``namespace`` holds
    where the manifest names none.
    """
    job = _begun(body, namespace=namespace)
    if job.form.chart_section:
        platform = PLATFORM_OF_TFJOBS
    cluster = _SimulatedCluster(job, platform, now)
    for _ in range(_MAX_PASSES):
        if not cluster.apply(plan(cluster.observed(), now)):
            break
    return Simulation(cluster.job, tuple(cluster.objects.values()), cluster.api)


def _begun(body: JsonObject, *, namespace: str) -> Job:
    """The job as an API server would hold it when it begins."""
    body = copy.deepcopy(body)
    metadata = object_at(body, "metadata")
    metadata.setdefault("namespace", namespace)
    metadata["uid"] = UID
    run_policy = dig(body, "spec", "runPolicy")
    if isinstance(run_policy, dict):
        run_policy.pop("suspend", None)
    record: JsonObject = {"attempt": 1}
    field = form_of(body).recorded_in
    body["status"] = {field: record} if field else record
    return Job.from_object(body)


@dataclass(slots=True)
class _SimulatedCluster:
    """The world as the planner sees it, which fills with what the planner asks for."""

    job: Job
    platform: Platform
    now: datetime
    objects: dict[tuple[str, str], JsonObject] = field(default_factory=dict)
    verdict: TemplateVerdict | None = None
    found: GangsFound | None = None
    api: GangApi | None = None
    priorities: dict[str, int] = field(default_factory=dict)

    def observed(self) -> Observed:
        form = self.job.form
        pods = tuple(_pod(item, form) for item in self.objects.values() if item["kind"] == "Pod")
        served = (name for kind, name in self.objects if kind == "Service" and form.replica_services)
        services = (self._child("Service", name) for name in served)
        return Observed(
            job=self.job,
            platform=self.platform,
            pods=pods,
            service=self._child("Service", self.job.name),
            services=tuple(child for child in services if child is not None),
            claim=self._child("PersistentVolumeClaim", claim_name(self.job)),
            tensorboard=self._child("Service", tensorboard_name(self.job.name)),
            verdict=self.verdict,
            gangs=self.found,
            gang=self._gang(),
            workload_priorities=self.priorities,
        )

    def apply(self, actions: tuple[Action, ...]) -> bool:
        """Answer what is asked; whether anything was."""
        before = self._filling()
        for action in actions:
            match action.action if isinstance(action, BestEffort) else action:
                case CheckPods(generation=generation, restricted=restricted):
                    self.verdict = TemplateVerdict(generation, self.now, restricted=restricted)
                case LookForGangs():
                    self.found = GangsFound(APIS, self.now)
                case ReadPriorityClass(name=name):
                    self.priorities[name] = 0
                case PatchStatus(status=status):
                    self.job = replace(self.job, status=status)
                case Create() | CreatePod() as creation:
                    if isinstance(creation, Create) and isinstance(creation.kind, GangApi):
                        self.api = creation.kind
                    self._add(creation.render())
        return self._filling() != before

    def _filling(self) -> tuple[object, ...]:
        """What a plan may change."""
        return len(self.objects), self.verdict, self.found, self.job.status.ready_time, len(self.priorities)

    def _add(self, manifest: JsonObject) -> None:
        self.objects.setdefault((str(manifest["kind"]), name_of(manifest)), manifest)

    def _child(self, kind: str, name: str) -> Child | None:
        found = self.objects.get((kind, name))
        if found is None:
            return None
        selector = dig(found, "spec", "selector")
        labels = {key: text(value) for key, value in fields_of(selector).items()}
        return Child(self.job.namespace, name, UID, UID, labels)

    def _gang(self) -> GangObject | None:
        found = self.objects.get((self.api.kind, self.job.name)) if self.api is not None else None
        if found is None or self.api is None:
            return None
        return GangObject(
            self.job.namespace,
            self.job.name,
            UID,
            UID,
            self.api,
            size=text(dig(found, "metadata", "annotations", Annotation.GANG_SIZE)),
            status=_ADMITTED,
        )


def _pod(manifest: JsonObject, form: Form) -> Pod:
    """A pod that runs and is ready, as the planner sees it."""
    created = pod_from(pod_from_object(manifest), form)
    return replace(created, uid=UID, owner_uid=UID, phase=Phase.RUNNING, ready=True)
