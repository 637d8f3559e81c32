"""The synchronous strategies of TensorFlow, what must be set before one of them is made, and how batches reach it.

Imports TensorFlow. The parameter-server strategy has a room of its own.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from dtj_launch import rendezvous
from dtj_launch.communication import RING
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import CHIEF, OUTSIDERS, WORKER, Address, Cluster
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution import tpu
from dtj_trainer.errors import NotSaved, PeerLost

HEARTBEAT_SECONDS = 5.0
"""After so long without a sign of life a peer is lost. TensorFlow's own default is 10."""

_LEADER_SECONDS = 10.0
_LAST_MOMENTS = 0.5


def make_strategy(config: Config) -> Any:
    """The strategy of the job, on this machine's GPUs where it has any. To be made before anything else runs."""
    if config.strategy == "TPU":
        return tpu.make_tpu_strategy(config.tpu_name)
    # Physical devices: asking for the logical ones would start TensorFlow, and then nothing can be configured.
    gpus = tf.config.list_physical_devices("GPU")
    if config.strategy == "OneDevice":
        return tf.distribute.OneDeviceStrategy("GPU:0" if gpus else "CPU:0")
    if config.strategy in ("Mirrored", "CentralStorage"):
        # Named one by one: left to itself, the strategy would look for remote devices in TF_CONFIG.
        kind, count = ("GPU", len(gpus)) if gpus else ("CPU", config.logical_cpus)
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * config.logical_cpus)
        devices = [f"{kind}:{index}" for index in range(count)]
        if config.strategy == "Mirrored":
            # Its own choice for GPUs is NCCL.
            without = tf.distribute.HierarchicalCopyAllReduce() if gpus and config.communication == RING else None
            return tf.distribute.MirroredStrategy(devices, cross_device_ops=without)
        # One copy of the variables: on the only GPU, or in the memory of the machine.
        home = devices[0] if count == 1 else "CPU:0"
        return tf.distribute.experimental.CentralStorageStrategy(compute_devices=devices, parameter_device=home)
    _follow_leader(config)
    configure_coordination(config.cluster, register_seconds=config.start_timeout)
    return tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=config.communication)
    )


def _follow_leader(config: Config) -> None:
    """Lets the leader go first, whose coordination service the others register with: coming too soon costs a second.

    One that does not come is for the strategy to miss.
    """
    cluster = config.cluster
    if not cluster.leads:
        address = cluster.addresses[cluster.leader]
        rendezvous.wait_for_server(
            (address.host, address.port),
            name=str(cluster.task),
            attempt=config.attempt,
            key=config.gate_key,
            timeout=min(_LEADER_SECONDS, config.start_timeout),
        )


def configure_coordination(cluster: Cluster, *, register_seconds: float) -> None:
    """Sets the coordination service up as the strategy would, but with time limits that fit a job.

    It is the service that notices lost peers; there is no public way to set its limits.
    """
    compat.configure_coordination(
        leader=cluster.leader.role,
        heartbeat_seconds=HEARTBEAT_SECONDS,
        register_seconds=register_seconds,
        jobs={role: cluster.count(role) for role in (CHIEF, WORKER) if cluster.count(role)},
    )


@contextmanager
def peer_loss(config: Config) -> Iterator[None]:
    """Turns what TensorFlow raises when another task is gone into `PeerLost`, with the tasks that do not answer."""
    try:
        yield
    except (tf.errors.OpError, NotSaved) as error:
        if lost := lost_peer(error, config):
            raise lost from error
        raise


def lost_peer(error: Exception, config: Config) -> PeerLost | None:
    """What the error means, where TensorFlow raises it when another task is gone.

    Storage that cannot be reached raises the same, so that it says nothing where there is no other task. A checkpoint
    may not have been saved for either, so that a task must not answer.
    """
    cause = error.__cause__ if isinstance(error, NotSaved) else error
    if not isinstance(cause, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.DeadlineExceededError):
        return None
    cluster = config.cluster
    peers: Mapping[Any, Address] = cluster.peers(*({task.role for task in cluster.addresses} - OUTSIDERS)) or {
        name: Address(*runtime) for name, runtime in config.tpu_runtimes.items()
    }
    if not peers:
        return None
    gone = silent(peers)
    if not gone:
        # A process that is being killed closes its connections one by one, and the port perhaps last.
        time.sleep(_LAST_MOMENTS)
        gone = silent(peers)
    if cause is not error and not gone:
        return None
    who = f"{', '.join(map(str, gone))} not reachable" if gone else "a task of this job failed"
    return PeerLost(f"peer lost: {who}; {type(cause).__name__}: {first_line(cause)}")


def silent(peers: Mapping[Any, Address]) -> list[Any]:
    """Those on whose ports nobody answers."""
    return [task for task, a in peers.items() if rendezvous.probe((a.host, a.port), timeout=0.5) is not None]


def first_line(error: tf.errors.OpError) -> str:
    """The first that says something: of what a function of TensorFlow's raises, where it was defined comes before."""
    about = ("Graph execution error", "Detected at node", "File ", "<stack traces")
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(about)), "no message")[:200]
