"""The synchronous strategies of TensorFlow, and what must be set before one of them is made.

Imports TensorFlow. The parameter-server strategy has a room of its own.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2
from tensorflow.python.eager import context

from dtj_trainer import tpu
from dtj_trainer.cluster import CHIEF, WORKER, Address, Cluster, Task
from dtj_trainer.config import Config
from dtj_trainer.errors import PeerLost, UsageError
from dtj_trainer.launcher import gate

HEARTBEAT_SECONDS = 5.0
"""After so long without a sign of life a peer is lost. TensorFlow's own default is 10."""

_LEADER_SECONDS = 10.0
_LAST_MOMENTS = 0.5
_OTHERS_SECONDS = 3600.0
_LAST_ONE_SECONDS = 5.0


def make_strategy(config: Config) -> Any:
    """The strategy of the job, on this machine's GPUs where it has any. To be made before anything else runs."""
    if config.strategy == "TPU":
        return tpu.make_strategy(config.tpu_name)
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
            return tf.distribute.MirroredStrategy(devices)
        # One copy of the variables: on the only GPU, or in the memory of the machine.
        home = devices[0] if count == 1 else "CPU:0"
        return tf.distribute.experimental.CentralStorageStrategy(compute_devices=devices, parameter_device=home)
    _follow_leader(config)
    configure_coordination(config.cluster, register_seconds=config.start_timeout)
    return tf.distribute.MultiWorkerMirroredStrategy()


def _follow_leader(config: Config) -> None:
    """Lets the leader go first, whose coordination service the others register with: coming too soon costs a second.

    One that does not come is for the strategy to miss.
    """
    cluster = config.cluster
    if not cluster.leads:
        address = cluster.addresses[cluster.leader]
        gate.wait_for_server(
            (address.host, address.port),
            name=str(cluster.task),
            attempt=config.attempt,
            timeout=min(_LEADER_SECONDS, config.start_timeout),
        )


def configure_coordination(cluster: Cluster, *, register_seconds: float) -> None:
    """Sets the coordination service up as the strategy would, but with time limits that fit a job.

    It is the service that notices lost peers; there is no public way to set its limits.
    """
    context.context().configure_coordination_service(
        service_type="standalone",
        service_leader=f"/job:{cluster.leader.role}/replica:0/task:0",
        heartbeat_timeout_in_ms=round(HEARTBEAT_SECONDS * 1000),
        cluster_register_timeout_in_ms=round(register_seconds * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=role, num_tasks=cluster.count(role))
            for role in (CHIEF, WORKER)
            if cluster.count(role)
        ],
    )


def agree_on_start(config: Config, strategy: Any, step: int) -> None:
    """Makes sure that all tasks restored the same step: a directory that is not shared would train two models.

    Raises:
        UsageError: they did not.
    """
    if config.strategy != "MultiWorkerMirrored":
        return
    replicas = strategy.num_replicas_in_sync

    def own_place() -> Any:
        return step * tf.one_hot(tf.distribute.get_replica_context().replica_id_in_sync_group, replicas, dtype=tf.int64)

    # A sum, since `strategy.gather` does not run eagerly.
    steps = strategy.reduce("SUM", strategy.run(own_place), axis=None).numpy()
    if any(other != step for other in steps):
        raise UsageError(
            f"checkpoint directory {config.checkpoint.directory}: tasks found different steps in it "
            f"({', '.join(map(str, steps))}); it must be one volume that all tasks share"
        )


def part(cluster: Cluster, *, say: Callable[[str], object]) -> None:
    """Leaves together: the leader carries the coordination service, so it goes when the others have gone."""
    try:
        context.context().wait_at_barrier("dtj-end", round(_OTHERS_SECONDS * 1000))
    except tf.errors.OpError as error:
        if not cluster.leads:
            raise
        say(f"a task left before the end ({type(error).__name__}); the training was complete, so that is no loss")
    if not cluster.leads:
        say(f"{cluster.task}: done")
        return
    peers = [(address.host, address.port) for address in cluster.peers(CHIEF, WORKER).values()]
    until = time.monotonic() + _LAST_ONE_SECONDS
    while time.monotonic() < until and any(gate.knock(peer, timeout=0.2) is None for peer in peers):
        time.sleep(0.02)


@contextmanager
def peer_loss(cluster: Cluster) -> Iterator[None]:
    """Turns what TensorFlow raises when another task is gone into `PeerLost`, naming who does not answer."""
    try:
        yield
    except tf.errors.OpError as error:
        if lost := lost_peer(error, cluster):
            raise lost from error
        raise


def lost_peer(error: Exception, cluster: Cluster) -> PeerLost | None:
    """What the error means, where TensorFlow raises it when another task is gone."""
    if not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.DeadlineExceededError):
        return None
    peers = cluster.peers(*{task.role for task in cluster.addresses})
    silent = _silent(peers)
    if not silent:
        # A process that is being killed closes its connections one by one, and the port perhaps last.
        time.sleep(_LAST_MOMENTS)
        silent = _silent(peers)
    who = f"{', '.join(silent)} not reachable" if silent else "a task of this job failed"
    return PeerLost(f"peer lost: {who}; {type(error).__name__}: {_first_line(error)}")


def _silent(peers: Mapping[Task, Address]) -> list[str]:
    return [str(task) for task, a in peers.items() if gate.knock((a.host, a.port), timeout=0.5) is not None]


def _first_line(error: tf.errors.OpError) -> str:
    """The first that says something: of what a function of TensorFlow's raises, where it was defined comes before."""
    about = ("Graph execution error", "Detected at node", "File ", "<stack traces")
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(about)), "no message")[:200]
