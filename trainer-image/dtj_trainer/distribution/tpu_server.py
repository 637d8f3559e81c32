"""The server of TensorFlow on a host of a TPU slice. Imports TensorFlow: its part for servers alone knows no TPU."""

import logging
from typing import NoReturn

import tensorflow as tf

from dtj_launch.progress import Phase, ProgressStore
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.distribution import tf_server
from dtj_trainer.process.sigterm import Termination

log = logging.getLogger(__name__)

_JOB = "tpu_worker"


def serve(cluster: Cluster, progress_store: ProgressStore, termination: Termination) -> NoReturn:
    """Serves the chips of this host to the chief, as the TPU's own VMs do (tensorflow/python/tools/grpc_tpu_worker.py).

    Raises:
        Terminated: asked to stop.
    """
    progress_store.update(phase=Phase.BUILDING)
    # The chief tells it who the others are when it connects.
    alone = tf.train.ClusterSpec({_JOB: [str(cluster.own_address)]})
    server = tf.distribute.Server(alone, job_name=_JOB, task_index=0, protocol="grpc", start=False)
    server.start()
    progress_store.update(phase=Phase.TRAINING)
    log.info(f"{cluster.task}: serving the TPU of this host at {cluster.own_address}")
    tf_server.wait_for_request(termination)
    raise tf_server.outlast_leader(cluster)
