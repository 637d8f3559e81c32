"""TF_CONFIG: the cluster as each replica sees it.

Source: TensorFlow's guide "Distributed training with TensorFlow", section "Setting up the TF_CONFIG environment
variable", and ``tf.distribute.cluster_resolver.TFConfigClusterResolver``, which must be able to read each one.
"""

from __future__ import annotations

import json

from dtj.api.job import Job
from dtj.api.spec import CLUSTER_ROLES, JobSpec
from dtj.core.platform import Network
from dtj.core.replicas import Replica


def cluster(job: Job, spec: JobSpec, network: Network) -> dict[str, list[str]]:
    """``{task type: [host:port, …]}`` of the roles that form the cluster, each list in order of index.

    An evaluator is in nobody's cluster: with one, the others would wait for a peer that never joins
    (tensorflow#46169).
    """
    return {
        str(role): [
            network.address(namespace=job.namespace, job=job.name, role=role, index=index, port=spec.port)
            for index in range(spec.replicas(role))
        ]
        for role in CLUSTER_ROLES
        if spec.replicas(role) > 0
    }


def tf_config(job: Job, spec: JobSpec, *, replica: Replica, network: Network) -> str:
    """The value of TF_CONFIG for one replica; the same ``cluster`` for all of them."""
    return json.dumps(
        {
            "cluster": cluster(job, spec, network),
            "task": {"type": str(replica.role), "index": replica.index},
        },
        separators=(",", ":"),
    )
