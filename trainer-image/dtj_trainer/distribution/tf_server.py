"""The ps and worker tasks of ParameterServer and Pipeline: a TensorFlow server that does what the coordinator says.

It never ends by itself: the operator stops it. It holds variables, or takes steps, that only the coordinator can save,
and all tasks of a job are asked to stop at the same time. So it stays until the coordinator has left.
"""

import logging
import time
from typing import NoReturn

from dtj_launch.progress import Phase, ProgressStore
from dtj_launch.rendezvous import probe
from dtj_trainer.compat import lean
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.errors import Terminated
from dtj_trainer.process.sigterm import Termination

log = logging.getLogger(__name__)

LONGEST_STAY_SECONDS = 20.0
"""Less than the 30 s that Kubernetes gives by default."""
_LOOK_SECONDS = 0.1


def serve_cluster(cluster: Cluster, progress_store: ProgressStore, termination: Termination) -> NoReturn:
    """Serves until the process is asked to stop and the coordinator has saved; never returns.

    Raises:
        Terminated: asked to stop.
    """
    start(cluster, progress_store)
    wait_for_request(termination)
    raise outlast_leader(cluster)


def start(cluster: Cluster, progress_store: ProgressStore) -> None:
    """Starts the server; it serves as long as the process lives."""
    progress_store.update(phase=Phase.BUILDING)
    library = lean.server_library()
    tasks: dict[str, list[str]] = {}
    for task, address in sorted(cluster.addresses.items()):
        tasks.setdefault(task.role, []).append(str(address))
    role, index = cluster.task.role, cluster.task.index
    server = library.Server(library.ClusterSpec(tasks), job_name=role, task_index=index, protocol="grpc", start=False)
    server.start()
    progress_store.update(phase=Phase.TRAINING)
    log.info(f"{cluster.task}: serving {cluster.own_address}")


def wait_for_request(termination: Termination) -> None:
    """Waits until this process is asked to stop. From now on, the first request does not end it."""
    termination.saves = True
    while not termination.requested:
        time.sleep(_LOOK_SECONDS)


def outlast_leader(cluster: Cluster) -> Terminated:
    """Waits until the leader's server ends, which does so with the leader; how this task ends then."""
    address, until, how = cluster.addresses[cluster.leader], time.monotonic() + LONGEST_STAY_SECONDS, "has left"
    while probe((address.host, address.port), timeout=1.0) is None:
        if time.monotonic() > until:
            how = f"is still there after {LONGEST_STAY_SECONDS:g} s"
            break
        time.sleep(_LOOK_SECONDS)
    return Terminated(f"{cluster.task}: asked to stop, and {cluster.leader} {how}")
