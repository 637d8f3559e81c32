"""The pods of a job as a person asks about them: the planner's view, and which containers they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dtj.api.form import Form
from dtj.api.job import Job
from dtj.api.spec import Role
from dtj.core.observed import Pod
from dtj.kube.gateway import PODS, Gateway
from dtj.kube.observed import pod_from
from dtj.kube.records import PodRecord, decode_pod

_ORDER: Final = {str(role): place for place, role in enumerate(Role)}


@dataclass(frozen=True, slots=True)
class JobPod:
    """A pod that a job owns."""

    record: PodRecord
    pod: Pod

    @classmethod
    def of(cls, record: PodRecord, form: Form) -> JobPod:
        """What is known of a pod of a job of this form."""
        return cls(record, pod_from(record, form))

    @property
    def uid(self) -> str:
        return self.pod.uid

    @property
    def title(self) -> str:
        """The pod's name without the job's: ``worker-0``, of a later incarnation ``worker-0-r1``."""
        return self.pod.name.removeprefix(f"{self.pod.job_name}-")

    @property
    def replica(self) -> tuple[str, int]:
        """Role and index."""
        return self.pod.role, self.pod.index

    @property
    def containers(self) -> tuple[str, ...]:
        """The names of its containers, those that only begin it last."""
        found = (*self.record.spec.containers, *(self.record.spec.init_containers or ()))
        return tuple(container.name for container in found)


def selector_of(job: Job) -> str:
    """Selects the pods of a job, and those of an earlier one of the same name."""
    return f"{job.form.job_label}={job.name}"


def owned(pods: Iterable[JobPod], job: Job) -> tuple[JobPod, ...]:
    """Those that belong to this very job, by role as TF_CONFIG orders them, index and age."""
    mine = (each for each in pods if job.owns(each.pod))
    return tuple(sorted(mine, key=_place))


async def pods_of(gateway: Gateway, job: Job) -> tuple[JobPod, ...]:
    """The pods of a job, all incarnations that are still there. Raises ApiError."""
    listing = await gateway.list(PODS, namespace=job.namespace, selector=selector_of(job))
    return owned((JobPod.of(decode_pod(item), job.form) for item in listing.items), job)


def _place(each: JobPod) -> tuple[int, int, float, str]:
    pod = each.pod
    created = pod.created_at.timestamp() if pod.created_at is not None else 0.0
    return _ORDER.get(pod.role, len(_ORDER)), pod.index, created, pod.name
