"""Partial admission: Kueue lets an elastic job begin with fewer workers than it asks for.

The Workload names the least number (``minCount``), Kueue admits as many as its quota has, and the job runs as if it had
asked for these.
"""

from __future__ import annotations

from dataclasses import replace

from dtj.api import kueue
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.kueue import topology_request
from dtj.api.spec import Gang, JobSpec, Role
from dtj.core.admission.group import Group
from dtj.core.manifests.accelerators import accelerator_of
from dtj.core.observed import GangObject


def least_workers(job: Job, spec: JobSpec, pod: JsonObject) -> int | None:
    """With how few workers the job may begin; None if it needs all. ``pod`` is the manifest of a worker.

    The hosts of a TPU slice and pods that Kueue places in groups are needed all. MultiKueue counts the pods in the
    manager cluster, and another Kueue admits them.
    """
    if spec.elastic is None or not job.form.partial_admission or kueue.is_dispatched(job.raw_spec):
        return None
    accelerator, topology = accelerator_of(spec, Role.WORKER), topology_request(pod)
    in_a_slice = accelerator is not None and accelerator.topology is not None
    if in_a_slice or "podSetSliceSize" in topology or "podSetGroupName" in topology:
        return None
    least = spec.elastic.min_replicas
    return least if least < spec.replicas(Role.WORKER) else None


def as_admitted(job: Job, workload: GangObject | None) -> Job:
    """The job as if it had asked for the workers that it was given.

    While it runs, and when it has ended, this is recorded: others may delete the Workload.
    """
    spec = job.spec
    if spec is None or spec.elastic is None or not job.form.partial_admission:
        return job
    if job.status.gang not in ("", Gang.KUEUE):
        return job
    given = _admitted(job, spec, workload) if workload is not None and job.owns(workload) else None
    if given is None and job.status.gang and (job.status.start_time is not None or job.status.terminal):
        recorded = job.status.replica_statuses.get(Role.WORKER)
        given = recorded.desired if recorded is not None else None
    worker = spec.replica_specs.get(Role.WORKER)
    if worker is None or not given or given >= worker.replicas:
        return job
    fewer = {**spec.replica_specs, str(Role.WORKER): worker.model_copy(update={"replicas": given})}
    return replace(job, spec=spec.model_copy(update={"replica_specs": fewer}))


def pod_sets(workload: GangObject) -> list[JsonObject]:
    """What each role was given when Kueue admitted the job."""
    return objects(dig(workload.status, "admission", "podSetAssignments"))


def _admitted(job: Job, spec: JobSpec, workload: GangObject) -> int | None:
    """How many workers Kueue has admitted; None if it has not, or to a Workload of another size of the job."""
    if workload.api.gang is not Gang.KUEUE or workload.size != Group(workload.api, job, spec).size:
        return None
    for assignment in pod_sets(workload):
        count = assignment.get("count")
        if assignment.get("name") == Role.WORKER and isinstance(count, int):
            return count
    return None
