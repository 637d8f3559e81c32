"""From an accelerator in the manifest to what its pod needs, by the platform's profiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dtj.api import quantities
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of, objects, whole_number
from dtj.api.names import Env
from dtj.api.profiles import TPU_TOPOLOGY_LABEL, Profile, TpuHosts
from dtj.api.spec import Accelerator, JobSpec, Role
from dtj.core.platform import Network, Platform, address_of
from dtj.core.replicas import TRAINING_ROLES, Replica, drives_slice, training_replicas

_NVIDIA: Final = "nvidia.com/"
_RDMA: Final = "rdma/"
EFA: Final = "vpc.amazonaws.com/efa"
_LONGEST_SIDE: Final = 9999
"""As the rule of topologies has it."""


@dataclass(frozen=True, slots=True)
class AcceleratorNeeds:
    """What one pod needs for its accelerator: what the profile says, so many of its resource, and these nodes."""

    profile: Profile
    count: int | None
    """As many as the container asks for itself, or one, where it is None."""
    node_selector: dict[str, str]


def accelerator_of(spec: JobSpec, role: Role) -> Accelerator | None:
    """The accelerator of a role: its own, or the job's where the role trains."""
    if drives_slice(spec, role):
        return None
    role_spec = spec.replica_specs.get(role)
    if role_spec is not None and role_spec.accelerator is not None:
        return role_spec.accelerator
    return spec.accelerator if role in TRAINING_ROLES else None


def accelerator_field(spec: JobSpec, role: Role) -> str:
    """Where the manifest says it, for messages."""
    role_spec = spec.replica_specs.get(role)
    own = role_spec is not None and role_spec.accelerator is not None
    return f"spec.replicaSpecs.{role}.accelerator" if own else "spec.accelerator"


def chips(topology: str) -> int:
    """Number of chips in a slice: ``2x2x4`` has 16. What is no shape, which an older CRD may let in, has none."""
    return math.prod(whole_number(side, most=_LONGEST_SIDE) or 0 for side in topology.split("x"))


def chips_per_host(hosts: TpuHosts, *, total: int, replicas: int, count: int | None) -> int:
    """Chips of each host of a slice with ``total`` chips.

    What the user says wins; a slice that is one host has all its chips there; else the generation decides.
    """
    if count is not None:
        return count
    if total in hosts.single_host and (replicas == 1 or total <= hosts.chips_per_host):
        return total
    return hosts.chips_per_host


def needs(spec: JobSpec, role: Role, platform: Platform) -> AcceleratorNeeds | None:
    """What pods of ``role`` need, or None where they need no accelerator (or its profile is not known)."""
    accelerator = accelerator_of(spec, role)
    profile = platform.profiles.get(accelerator.profile) if accelerator is not None else None
    if accelerator is None or profile is None:
        return None
    selector = dict(profile.node_selector)
    if profile.tpu is not None and accelerator.topology is not None:
        selector[TPU_TOPOLOGY_LABEL] = accelerator.topology
    return AcceleratorNeeds(profile, _count(accelerator, profile, hosts=len(slice_hosts(spec, role))), selector)


def nvidia_gpus(container: JsonObject) -> int:
    """How many of NVIDIA's devices a container asks for, parts of a GPU included."""
    limits = fields_of(dig(container, "resources", "limits"))
    return sum(
        int(quantities.parse(amount) or 0) for resource, amount in limits.items() if resource.startswith(_NVIDIA)
    )


def fabrics(template: JsonObject) -> tuple[str, ...]:
    """The resources of a pod that are networks for GPUs, such as ``rdma/hca`` and ``vpc.amazonaws.com/efa``."""
    limits = (dig(container, "resources", "limits") for container in objects(dig(template, "spec", "containers")))
    asked = {resource for limit in limits for resource in fields_of(limit)}
    return tuple(sorted(one for one in asked if one.startswith(_RDMA) or one == EFA))


def slice_hosts(spec: JobSpec, role: Role) -> tuple[Replica, ...]:
    """The replicas with which one of ``role`` shares a TPU slice, by rank: those that train are the hosts of one slice,
    and any other role, such as an evaluator, has a slice of its own."""
    if role in TRAINING_ROLES:
        return tuple(replica for replica in training_replicas(spec) if not drives_slice(spec, replica.role))
    return tuple(Replica(role, index) for index in range(spec.replicas(role)))


@dataclass(frozen=True, slots=True)
class SliceHosts:
    """The hosts of a TPU slice, as libtpu reads them. Source: Google Cloud, "TPUs in GKE"."""

    ranks: dict[Replica, int]
    names: str

    @classmethod
    def of(cls, job: Job, spec: JobSpec, role: Role, network: Network) -> SliceHosts:
        """The slice of the replicas of ``role``."""
        hosts = slice_hosts(spec, role)
        names = (address_of(host, job, spec, network).rpartition(":")[0] for host in hosts)
        return cls({host: rank for rank, host in enumerate(hosts)}, ",".join(names))

    def environment(self, replica: Replica) -> dict[str, str]:
        """TPU_WORKER_ID and TPU_WORKER_HOSTNAMES of one host."""
        return {Env.TPU_WORKER_ID: str(self.ranks[replica]), Env.TPU_WORKER_HOSTNAMES: self.names}


def _count(accelerator: Accelerator, profile: Profile, *, hosts: int) -> int | None:
    if profile.tpu is None or accelerator.topology is None:
        return accelerator.count
    return chips_per_host(
        profile.tpu,
        total=chips(accelerator.topology),
        replicas=hosts,
        count=accelerator.count,
    )
