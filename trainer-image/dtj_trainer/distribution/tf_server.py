"""The ps and worker tasks of ParameterServer and Pipeline: a TensorFlow server that does what the coordinator says.

It never ends by itself: the operator stops it. SIGTERM ends a task of ParameterServer at once, since it has nothing
to save; for those of Pipeline see `dtj_trainer.pipeline_parallel.worker`.
"""

import logging
import threading

from dtj_launch.progress import Phase, ProgressStore
from dtj_trainer.compat import lean
from dtj_trainer.config.cluster import Cluster

log = logging.getLogger(__name__)


def serve_cluster(cluster: Cluster, progress_store: ProgressStore) -> None:
    """Serves until the process is asked to stop; never returns."""
    start(cluster, progress_store)
    threading.Event().wait()


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
