"""TF_CONFIG: the cluster as each replica sees it.

Source: TensorFlow's guide "Distributed training with TensorFlow", section "Setting up the TF_CONFIG environment
variable", and ``tf.distribute.cluster_resolver.TFConfigClusterResolver``, which must be able to read each one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from dtj.api.job import Job
from dtj.api.spec import CLUSTER_ROLES, JobSpec
from dtj.core.platform import Network, address_of
from dtj.core.replicas import Replica


@dataclass(frozen=True, slots=True)
class Cluster:
    """The roles that form the cluster: ``{task type: [host:port, …]}``, each list in order of index.

    An evaluator is in nobody's cluster: with one, the others would wait for a peer that never joins
    (tensorflow#46169). Nor is the data service, whose servers are no tasks of the strategy. ``json`` is the cluster as
    text, made once for all replicas of a plan.
    """

    addresses: dict[str, list[str]]
    json: str

    @classmethod
    def of(cls, job: Job, spec: JobSpec, network: Network) -> Cluster:
        """The cluster of a job on a network."""
        addresses = {
            str(role): [address_of(Replica(role, index), job, spec, network) for index in range(spec.replicas(role))]
            for role in CLUSTER_ROLES
            if spec.replicas(role) > 0
        }
        return cls(addresses=addresses, json=json.dumps(addresses, separators=(",", ":")))

    def tf_config(self, replica: Replica) -> str:
        """The value of TF_CONFIG for one replica; the same ``cluster`` for all of them."""
        return f'{{"cluster":{self.json},"task":{{"type":"{replica.role}","index":{replica.index}}}}}'


def longest_tf_config(job: Job, spec: JobSpec, network: Network) -> int:
    """Characters of the longest TF_CONFIG of a job, to the byte, found without making any."""
    listed = [
        (role, [Replica(role, index) for index in range(spec.replicas(role))])
        for role in CLUSTER_ROLES
        if spec.replicas(role) > 0
    ]
    cluster = sum(
        len(f'"{role}":[],') + _length(address_of(replica, job, spec, network) for replica in replicas)
        for role, replicas in listed
    )
    task = max(len(f'"{role}","index":{spec.replicas(role) - 1}') for role in spec.roles())
    return len('{"cluster":{},"task":{"type":}}') + max(cluster - 1, 0) + task


def _length(addresses: Iterable[str]) -> int:
    """Characters of addresses in quotes, with commas between them."""
    return sum(len(address) + len('"",') for address in addresses) - 1
