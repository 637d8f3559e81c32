"""TF_CONFIG: the cluster as each replica sees it, and how it comes to the pods.

Source: TensorFlow's guide "Distributed training with TensorFlow", section "Setting up the TF_CONFIG environment
variable", and ``tf.distribute.cluster_resolver.TFConfigClusterResolver``, which must be able to read each one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from typing import Final, TypeAlias

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import MAX_VARIABLE_LENGTH, Env
from dtj.api.spec import CLUSTER_ROLES, JobSpec, Role
from dtj.core.manifests.metadata import labels_of, metadata_of
from dtj.core.platform import Platform, address_of
from dtj.core.replicas import Replica

Variables: TypeAlias = Mapping[str, str | JsonObject]
"""Environment variables by name, in an order in which each may refer to those before it. An object is the variable's
``valueFrom``."""

CONFIG_MAP_KEY: Final = "cluster"
"""The key of the ConfigMap that holds the list of addresses."""

_TOO_LONG: Final = "too long for one variable: start the program with dtj-launch, which lists the addresses itself"
"""Stands where the cluster should be. TensorFlow refuses it, so that no program trains alone by mistake."""


class Delivery(Enum):
    """How the list of addresses comes to a pod."""

    INLINE = auto()
    """Each pod's manifest has it."""

    CONFIG_MAP = auto()
    """One ConfigMap of the job has it, and the kubelet puts it into TF_CONFIG."""

    DERIVED = auto()
    """It does not fit into one variable: the launcher makes it in the pod, from the number of replicas."""


@dataclass(frozen=True)
class Cluster:
    """The roles that form the cluster, with the addresses of their replicas in order of index.

    An evaluator is in nobody's cluster: with one, the others would wait for a peer that never joins
    (tensorflow#46169). Nor is the data service, whose servers are no tasks of the strategy. What all replicas share is
    computed once, when it is first needed.
    """

    job: Job
    spec: JobSpec
    platform: Platform

    @cached_property
    def delivery(self) -> Delivery:
        """How the addresses come to the pods of this job. All its pods get them in the same way."""
        limit = self.platform.inline_addresses
        if limit is None or self._length <= limit:
            return Delivery.INLINE
        if len(f"{Env.TF_CONFIG}=") + self.longest > MAX_VARIABLE_LENGTH and self._pattern is not None:
            return Delivery.DERIVED
        return Delivery.CONFIG_MAP

    @cached_property
    def addresses(self) -> dict[str, list[str]]:
        """``{task type: [host:port, …]}``."""
        return {
            self.job.form.word(role): [self._address(Replica(role, index)) for index in range(count)]
            for role, count in self._counts
        }

    def variables(self, replica: Replica) -> Variables:
        """TF_CONFIG of one replica, and the variables that it is made of; the same ``cluster`` for all replicas.

        The only replica of a TFJob has none, and each of several is told that it runs in a cloud.
        """
        form = self.job.form
        if form.tf_config_environment and sum(self.spec.replicas(role) for role in Role) == 1:
            return {}
        task = f'"task":{{"type":"{form.word(replica.role)}","index":{replica.index}}}'
        task += self._tail
        if form.dynamic_workers:
            return {Env.TF_CONFIG: f'{{"cluster":{_compact(self._known_to(replica))},{task}}}'}
        if self.delivery is Delivery.INLINE:
            return {Env.TF_CONFIG: f'{{"cluster":{self._json},{task}}}'}
        if self.delivery is Delivery.CONFIG_MAP:
            reference: JsonObject = {"configMapKeyRef": {"name": self.config_map_name, "key": CONFIG_MAP_KEY}}
            return {Env.CLUSTER: reference, Env.TF_CONFIG: f'{{"cluster":$({Env.CLUSTER}),{task}}}'}
        assert self._pattern is not None
        return {
            Env.CLUSTER_ADDRESS: self._pattern,
            Env.CLUSTER_COUNTS: _compact({str(role): count for role, count in self._counts}),
            Env.TF_CONFIG: f'{{"cluster":"{_TOO_LONG}",{task}}}',
        }

    def _known_to(self, replica: Replica) -> dict[str, object]:
        """What a replica of a job with dynamic workers knows: a worker itself and all servers, a server the servers,
        and whoever is neither the replicas that there are now.

        Kubeflow's operator lists a server alone, as the first one, and a chief nowhere; TensorFlow finds neither then.
        """
        if replica.role not in (Role.WORKER, Role.PS):
            return {**self.addresses}
        worker = {str(replica.index): self._address(replica)} if replica.role is Role.WORKER else {}
        return {"worker": worker, "ps": self.addresses.get(Role.PS, [])}

    @cached_property
    def config_map_name(self) -> str:
        """The name of the job's ConfigMap; empty if it has none.

        It changes with the content and with the UID of the job: a ConfigMap that has this name has this content.
        """
        if self.delivery is not Delivery.CONFIG_MAP:
            return ""
        digest = hashlib.sha256(f"{self.job.uid} {self._json}".encode()).hexdigest()[:_DIGITS]
        return f"{self.job.name}-cluster-{digest}"

    def config_map(self) -> JsonObject:
        """The ConfigMap of the job. It is immutable, so that no kubelet has to watch it."""
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata_of(self.job, self.config_map_name, labels=labels_of(self.job)),
            "immutable": True,
            "data": {CONFIG_MAP_KEY: self._json},
        }

    @cached_property
    def longest(self) -> int:
        """Characters of the longest TF_CONFIG of the job, to the byte, found without making any."""
        if self.job.form.dynamic_workers:  # no replica knows all others
            last = [Replica(role, self.spec.pods(role) - 1) for role in self.spec.roles()]
            return max(len(str(self.variables(replica).get(Env.TF_CONFIG, ""))) for replica in last)
        word = self.job.form.word
        task = max(len(f'"{word(role)}","index":{self.spec.pods(role) - 1}') for role in self.spec.roles())
        return len('{"cluster":,"task":{"type":}}') + self._length + task + len(self._tail)

    @property
    def _tail(self) -> str:
        form = self.job.form
        named = form.tf_config_environment if not form.dynamic_workers else ""
        return f',"environment":"{named}"' if named else ""

    @cached_property
    def _length(self) -> int:
        """Characters of the list of addresses."""
        lists = (
            len(f'"{self.job.form.word(role)}":[],') + self._length_of_addresses(role, count)
            for role, count in self._counts
        )
        return len("{}") + max(sum(lists) - 1, 0)

    def _length_of_addresses(self, role: Role, count: int) -> int:
        """Characters of the addresses of a role, in quotes, with commas between them."""
        if self._pattern is None:
            lengths = sum(len(self._address(Replica(role, index))) for index in range(count))
        else:
            lengths = count * len(self._pattern.format(role=role, index="")) + _digits(count)
        return lengths + count * len('"",') - 1

    @cached_property
    def _json(self) -> str:
        return _compact(self.addresses)

    @cached_property
    def _counts(self) -> tuple[tuple[Role, int], ...]:
        return tuple((role, count) for role in CLUSTER_ROLES if (count := self.spec.replicas(role)) > 0)

    @cached_property
    def _pattern(self) -> str | None:
        return self.platform.network.pattern(namespace=self.job.namespace, job=self.job.name, port=self.spec.port)

    def _address(self, replica: Replica) -> str:
        return address_of(replica, self.job, self.spec, self.platform.network)


_DIGITS: Final = 10
"""Of the digest in the name of a ConfigMap."""


def may_be_config_map_of(job: Job, name: str) -> bool:
    """Whether a ConfigMap of this job could have this name, with whatever number of replicas."""
    return re.fullmatch(f"{re.escape(job.name)}-cluster-[0-9a-f]{{{_DIGITS}}}", name) is not None


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _digits(count: int) -> int:
    """Digits of the numbers from 0 to below ``count``."""
    return sum(count - first for first in (0, *(10**power for power in range(1, len(str(count))))) if first < count)
