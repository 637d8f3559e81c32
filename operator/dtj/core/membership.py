"""The world of an elastic job: the replicas that train together, and how their pods learn of it.

Pods live longer than a list of their peers. So the list is an annotation of each pod, which the kubelet writes into a
file (a downward API volume), and the launcher starts the program again when the members change. The highest generation
counts, in the status and on the pods alike. ``trainer-image/dtj_launch/world.py`` reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.lenient import MAX_INTEGER
from dtj.api.spec import CLUSTER_ROLES, ELASTIC, MAX_REPLICAS, JobSpec, RestartScope, Role, as_role
from dtj.api.status import WorldStatus
from dtj.core.observed import Pod
from dtj.core.platform import Network, address_of
from dtj.core.pod_state import replica_of
from dtj.core.replicas import TRAINING_ROLES, Replica, format_indexes, parse_indexes, replicas, training_replicas


@dataclass(frozen=True, slots=True)
class World:
    """The members of one generation."""

    generation: int
    members: frozenset[Replica]

    def with_members(self, members: Iterable[Replica]) -> World:
        """The world that follows this one."""
        return World(self.generation + 1, frozenset(members))

    def recorded(self) -> WorldStatus:
        """The world as the status has it."""
        return WorldStatus(generation=self.generation, members=self._ranges())

    def text(self, job: Job, spec: JobSpec, network: Network) -> str:
        """The world as the pods have it: JSON, with the addresses of the members, or the pattern that they follow.

        It lists the parameter servers too, since TF_CONFIG is made of it. They are no members: they never change.
        """
        listed = World(self.generation, self.members | frozenset(replicas(spec, (Role.PS,))))
        content: dict[str, object] = {"generation": self.generation, "members": listed._ranges()}
        pattern = network.pattern(namespace=job.namespace, job=job.name, port=spec.port)
        if pattern is not None:
            content["address"] = pattern
        else:
            content["addresses"] = {
                role: [address_of(replica, job, spec, network) for replica in of_role]
                for role, of_role in listed._by_role().items()
            }
        return json.dumps(content, separators=(",", ":"))

    def _ranges(self) -> dict[str, str]:
        return {
            str(role): format_indexes(replica.index for replica in of_role) for role, of_role in self._by_role().items()
        }

    def _by_role(self) -> dict[Role, list[Replica]]:
        found = {role: sorted(replica for replica in self.members if replica.role is role) for role in CLUSTER_ROLES}
        return {role: of_role for role, of_role in found.items() if of_role}


def has_world(job: Job, spec: JobSpec) -> bool:
    """Whether the members of this job could change while their pods live.

    Members of a gang are admitted together, and the hosts of a TPU slice have fixed places.
    """
    tpu = (spec.accelerator, *(role.accelerator for role in spec.replica_specs.values() if role is not None))
    return (
        spec.elastic is not None
        and spec.strategy in ELASTIC
        and job.form.pod_defaults
        and spec.run_policy.scheduling is None
        and spec.run_policy.restart_scope is not RestartScope.JOB
        and not any(each is not None and each.topology is not None for each in tpu)
    )


def told_of_members(job: Job, pods: Iterable[Pod]) -> list[Pod]:
    """Those of a job's pods that know a world of this attempt: no evaluator, no parameter server. Of a pod that is no
    replica, what it has was written by somebody else."""
    return [pod for pod in pods if pod.world and pod.attempt == job.attempt and replica_of(pod) is not None]


def world_of(job: Job, spec: JobSpec, texts: Iterable[str] = ()) -> World | None:
    """The newest world that the status or the pods know of; None if the job has none.

    ``texts`` are what the pods of this attempt have. An attempt begins with all of its replicas.
    """
    if not has_world(job, spec):
        return None
    counts = job.status.replica_statuses.get(Role.WORKER)
    desired = min(counts.desired, MAX_REPLICAS) if counts is not None else 0  # others may write a status, too
    first = (Replica(Role.WORKER, index) for index in range(desired))
    chief = (replica for replica in training_replicas(spec) if replica.role is Role.CHIEF)
    begun = World(0, frozenset((*chief, *first)) if counts is not None else frozenset(training_replicas(spec)))
    told = [world for text in dict.fromkeys(texts) if (world := _parsed(text)) is not None]
    status = job.status.world
    if status is not None and status.generation <= _LATEST:
        told.append(World(status.generation, _members(status.members.items())))
    return max(told, key=lambda world: world.generation, default=begun)


_LATEST: Final = MAX_INTEGER // 2
_LATEST_OF_PODS: Final = _LATEST // 2
"""The latest generations that a status and a pod are believed. What anybody may write on a pod must leave room for the
next ones, which are recorded in the status, and those in a status room for what it can hold."""

_LONGEST: Final = 2**16
"""Most characters of what a pod has. 5,000 ranges, the most that members of two roles can need, have 25,000."""


def _parsed(text: str) -> World | None:
    """The world that a pod has; None if it is not as :meth:`World.text` writes it: somebody else has written it."""
    if len(text) > _LONGEST:
        return None
    try:
        content: JsonObject = json.loads(text)
        generation, members = content["generation"], content["members"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(generation, int) or not 0 <= generation <= _LATEST_OF_PODS or not isinstance(members, dict):
        return None
    found = World(generation, _members((role, text) for role, text in members.items() if isinstance(text, str)))
    of_training = {role: text for role, text in members.items() if as_role(role) in TRAINING_ROLES}
    return found if found.members and found._ranges() == of_training else None


def _members(ranges: Iterable[tuple[str, str]]) -> frozenset[Replica]:
    return frozenset(
        Replica(Role(role), index)
        for role, text in ranges
        if as_role(role) in TRAINING_ROLES
        for index in parse_indexes(text)
    )
