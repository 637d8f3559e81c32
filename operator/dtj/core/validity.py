"""Why a job cannot be planned: rules that its manifest breaks, and configuration that it names and that does not exist.

The API server enforces the rules of :mod:`dtj.api.rules` at apply time; they are checked again here because a
cluster's CRD may be older than its operator. What needs the operator's configuration is checked here alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dtj.api import kueue, names
from dtj.api.job import Job
from dtj.api.names import Env, Reason
from dtj.api.profiles import Profile
from dtj.api.rules import NO_SPARES
from dtj.api.spec import Accelerator, Gang, JobSpec, Role, Strategy
from dtj.core.manifests import accelerators
from dtj.core.manifests.accelerators import (
    accelerator_field,
    accelerator_of,
    chips,
    chips_per_host,
    slice_hosts,
)
from dtj.core.manifests.tf_config import Cluster, Delivery
from dtj.core.membership import has_world
from dtj.core.platform import Platform
from dtj.core.replicas import TRAINING_ROLES, drives_slice


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a job: field path, what is wrong, what to do."""

    reason: Reason
    message: str
    of_queue: bool = False
    """Whether it is about how the job is to be queued: labels and annotations, which anybody changes at any time."""


def problems(job: Job, platform: Platform) -> tuple[Problem, ...]:
    """Everything that keeps ``job`` from being planned on ``platform``; empty where nothing does."""
    if job.spec is None:
        return tuple(Problem(Reason.INVALID_SPEC, problem) for problem in job.problems)
    broken = job.form.check(job.name, job.raw_spec)
    if broken:
        return tuple(Problem(Reason.INVALID_SPEC, str(violation)) for violation in broken)
    # A TFJob that our operator does not queue leaves its labels to Kueue's integration.
    left = job.form.kueue_integration and job.spec.scheduling.gang is not Gang.KUEUE
    queued = () if left else kueue.problems(job.spec, job.labels, job.annotations)
    return (
        *(Problem(Reason.INVALID_SPEC, problem, of_queue=True) for problem in queued),
        *_prebuilt_workload(job),
        *_spares(job, job.spec),
        *dict.fromkeys(_accelerators(job.spec, platform)),
        *_variables(job, job.spec, platform),
    )


def _prebuilt_workload(job: Job) -> Iterator[Problem]:
    if job.prebuilt_workload not in ("", job.name):
        yield Problem(
            Reason.INVALID_SPEC,
            f"metadata.annotations: {kueue.PREBUILT_WORKLOAD} names the Workload {job.prebuilt_workload}, but the "
            f"Workload of a job has the name of the job: remove it, or set it to {job.name}",
        )


def _spares(job: Job, spec: JobSpec) -> Iterator[Problem]:
    """The manifest may name no queue, and the job be in the default queue of its namespace."""
    if spec.spares and not has_world(job, spec):
        yield Problem(Reason.INVALID_SPEC, f"spec.elastic: {NO_SPARES}")


def _variables(job: Job, spec: JobSpec, platform: Platform) -> tuple[Problem, ...]:
    """Variables with the addresses of all peers must stay below Linux's limit, else no container can start."""
    if sum(spec.replicas(role) for role in spec.roles()) <= _SURELY_FIT:
        return ()
    cluster = Cluster(job, spec, platform)
    lengths = (
        [(Env.TF_CONFIG, f"spec.{job.form.roles_field}", cluster.longest)]
        if cluster.delivery is not Delivery.DERIVED
        else []
    )
    for role in spec.roles():
        needs = accelerators.needs(spec, role, platform)
        if needs is not None and needs.profile.tpu is not None:
            hosts = accelerators.SliceHosts.of(job, spec, role, platform.network)
            lengths.append((Env.TPU_WORKER_HOSTNAMES, f"spec.replicaSpecs.{role}", len(hosts.names)))
    return tuple(
        Problem(
            Reason.INVALID_SPEC,
            f"{field}: {name} lists all peers and would have {length:,} bytes, but Linux starts no program with more "
            f"than {names.MAX_VARIABLE_LENGTH - len(name) - 1:,} in one variable: use fewer replicas, or shorter names "
            "of the job and its namespace",
        )
        for name, field, length in lengths
        if len(f"{name}=") + length > names.MAX_VARIABLE_LENGTH
    )


_SURELY_FIT: Final = 300
"""This many addresses are below the limit, however long their names: a DNS name has 253 characters at most."""


def _accelerators(spec: JobSpec, platform: Platform) -> Iterator[Problem]:
    yield from _chiefs_own(spec)
    for role in spec.roles():
        accelerator, field = accelerator_of(spec, role), accelerator_field(spec, role)
        if accelerator is None:
            continue
        profile = platform.profiles.get(accelerator.profile)
        if profile is None:
            known = ", ".join(sorted(platform.profiles)) or "none"
            message = f'{field}.profile: there is no accelerator profile "{accelerator.profile}"; known are {known}'
            yield Problem(Reason.UNKNOWN_ACCELERATOR_PROFILE, message)
            continue
        message = (_of_gpus if profile.tpu is None else _of_tpus)(spec, role, profile, accelerator)
        if message:
            yield Problem(Reason.TOPOLOGY_MISMATCH, f"{field}.{message}")


def _chiefs_own(spec: JobSpec) -> Iterator[Problem]:
    chief = spec.replica_specs.get(Role.CHIEF)
    if drives_slice(spec, Role.CHIEF) and chief is not None and chief.accelerator is not None:
        yield Problem(
            Reason.TOPOLOGY_MISMATCH,
            "spec.replicaSpecs.chief.accelerator: the chief drives the hosts of the TPU from a pod without one: "
            "remove it",
        )


def _of_gpus(spec: JobSpec, role: Role, profile: Profile, accelerator: Accelerator) -> str:
    if spec.strategy is Strategy.TPU and role in TRAINING_ROLES:
        return f'profile: strategy TPU needs a TPU profile; "{profile.name}" is none'
    if accelerator.topology is not None:
        return (
            f'topology: only TPU profiles have a topology; remove it, or name a TPU profile instead of "{profile.name}"'
        )
    return ""


def _of_tpus(spec: JobSpec, role: Role, profile: Profile, accelerator: Accelerator) -> str:
    assert profile.tpu is not None
    topology = accelerator.topology
    if topology is None:
        return f'topology: TPU profile "{profile.name}" needs the shape of the slice, such as 2x4'
    if drives_slice(spec, Role.CHIEF) and role in TRAINING_ROLES and profile.tpu.not_driven:
        return (
            f'profile: no chief drives the hosts of a slice of "{profile.name}": {profile.tpu.not_driven}; use '
            "tpu-v5e, or one worker on a slice of one host, without a chief"
        )
    hosts, total = len(slice_hosts(spec, role)), chips(topology)
    per_host = chips_per_host(profile.tpu, total=total, replicas=hosts, count=accelerator.count)
    if total % per_host:
        return (
            f"topology: {topology} has {total} chips, which {per_host} chips per host do not divide; "
            "choose another topology or count"
        )
    wanted = total // per_host
    if wanted == hosts:
        return ""
    needed = _hosts_needed(spec, role, wanted)
    return f"topology: {topology} has {total} chips, {per_host} per host: it needs {needed}"


def _hosts_needed(spec: JobSpec, role: Role, wanted: int) -> str:
    """How many hosts a slice needs, and where to say so."""
    if role not in TRAINING_ROLES:
        return f"{wanted} replicas of {role}, not {spec.replicas(role)}; choose another topology, or set their number"
    return (
        f"{wanted} workers, not {len(slice_hosts(spec, role))}; set replicaSpecs.worker.replicas to {wanted}, with a "
        "chief that drives them"
    )
