"""The tf.data service of a job: a dispatcher, and data workers that prepare examples for the replicas that train.

Its servers are no tasks of the strategy: they are found by variables of their own rather than by TF_CONFIG. Source:
``tf.data.experimental.service``, "Distributed tf.data".
"""

from __future__ import annotations

from dtj.api.job import Job
from dtj.api.names import Env
from dtj.api.spec import DATA_SERVICE, JobSpec, Role
from dtj.core.platform import Network, address_of
from dtj.core.replicas import Replica


def environment(job: Job, spec: JobSpec, replica: Replica, network: Network) -> dict[str, str]:
    """What a replica learns of the job's data service, if any: the dispatcher's address; and the service's
    own replicas, by which host and port they are reached."""
    if spec.replicas(Role.DISPATCHER) == 0:
        return {}
    values = {Env.DATA_SERVICE_ADDRESS: address_of(Replica(Role.DISPATCHER, 0), job, spec, network)}
    if replica.role in DATA_SERVICE:
        values[Env.HOST], _, values[Env.DATA_SERVICE_PORT] = address_of(replica, job, spec, network).rpartition(":")
    return values
