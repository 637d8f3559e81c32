"""``runPolicy.onOutOfMemory``: more memory for the pods of a role each time that one of them ran out of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from dtj.api import kueue, quantities
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.spec import JobSpec, ReplicaSpec, Role

_MAX_INCREASES: Final = 1000
"""Increases that are computed; by then any most is reached."""


def raised(job: Job, spec: JobSpec, role: Role, resources: JsonObject) -> dict[str, str]:
    """The memory that pods of a role have by now in place of that of ``resources``, by ``limits`` and ``requests``.

    It is empty for a role that has what its manifest says, and for all roles of a job of MultiKueue: the Workload of
    its copy cannot change.
    """
    policy, counts = spec.run_policy.on_out_of_memory, job.status.replica_statuses.get(role)
    if policy is None or counts is None or counts.memory_increases == 0:
        return {}
    if job.prebuilt_workload or kueue.is_dispatched(job.raw_spec):
        return {}
    most = quantities.parse(policy.max_memory)
    factor = Fraction(100 + policy.increase_percent, 100) ** min(counts.memory_increases, _MAX_INCREASES)
    found: dict[str, str] = {}
    for kind in ("limits", "requests"):
        before = quantities.parse(dig(resources, kind, "memory"))
        if before is not None and most is not None and before < most:
            found[kind] = quantities.as_memory(min(before * factor, most))
    return found


def in_words(job: Job, spec: JobSpec) -> str:
    """What has been raised, by role; empty if nothing has. It changes with the memory of the pods, and only then."""
    memory = ((role, raised(job, spec, role, resources_of(job, spec, role))) for role in spec.roles())
    return ",".join(f"{role}={'/'.join(found.values())}" for role, found in memory if found)


def resources_of(job: Job, spec: JobSpec, role: Role) -> JsonObject:
    """The resources of the container that trains, as the manifest says them."""
    given = spec.replica_specs.get(role) or ReplicaSpec()
    if given.resources is not None:
        return given.resources
    return fields_of(job.form.main_container(dig(given.template or spec.template or {}, "spec")).get("resources"))
