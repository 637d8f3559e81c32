"""A finished job at rest: compressed JSON in place of objects, until an event or its time to live wakes it.

Nothing is left to do for most jobs that a cluster holds. `bench/finished.py` measures what such a job takes. To read it
again from the API server would cost a call for each late event.
"""

from __future__ import annotations

from dataclasses import dataclass

from dtj.api.job import SPEC_PROBLEM, SPEC_TEXT, Job
from dtj.api.json import JsonObject
from dtj.api.kueue import PREBUILT_WORKLOAD
from dtj.engine.packed_json import SMALLEST, packed, unpacked
from dtj.engine.stores import JobRecord


@dataclass(frozen=True, slots=True)
class PackedJob:
    """One finished job, with what is asked of it without unpacking."""

    namespace: str
    uid: str
    resource_version: str
    state: str
    packed: bytes

    @classmethod
    def of(cls, record: JobRecord) -> PackedJob:
        """Pack a record whose spec is kept as text, as :meth:`JobRecord.from_object` makes it."""
        job = record.job
        return cls(
            job.namespace, job.uid, job.resource_version, job.status.state or "", packed(_body(record), level=SMALLEST)
        )

    def record(self) -> JobRecord:
        """The job as it was packed."""
        return JobRecord.from_object(unpacked(self.packed))


def _body(record: JobRecord) -> JsonObject:
    job = record.job
    body: JsonObject = {"metadata": _metadata(job), "status": record.raw_status, SPEC_TEXT: record.spec}
    return {**body, SPEC_PROBLEM: job.problems[0]} if record.refused else body


def _metadata(job: Job) -> JsonObject:
    metadata: JsonObject = {
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
        "resourceVersion": job.resource_version,
        "generation": job.generation,
        "labels": {**job.labels},
        "annotations": {
            **job.annotations,
            **({PREBUILT_WORKLOAD: job.prebuilt_workload} if job.prebuilt_workload else {}),
        },
        "creationTimestamp": job.created_at.isoformat() if job.created_at is not None else None,
    }
    return {**metadata, "deletionTimestamp": ""} if job.deleting else metadata
