"""The synchronous strategies of TensorFlow, and what must be set before one of them is made.

Imports TensorFlow. The parameter-server strategy has a room of its own.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import tensorflow as tf

from dtj_launch import rendezvous
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import CHIEF, WORKER, Address, Cluster, Task
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.source import Source
from dtj_trainer.distribution import tpu
from dtj_trainer.errors import FOUND_TOGETHER, NotSaved, PeerLost, TrainerError, WorkersDiffer
from dtj_trainer.export import conversion

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5.0
"""After so long without a sign of life a peer is lost. TensorFlow's own default is 10."""

_LEADER_SECONDS = 10.0
_LAST_MOMENTS = 0.5
_EVALUATION_SECONDS = 86400.0
"""More than any evaluation and export of a SavedModel takes; that the leader is gone is noticed by its heartbeat."""
_LAST_ONE_SECONDS = 5.0
_KNOWN_TO_ALL_SECONDS = 10.0
_LEFT_WORD_SECONDS = 10.0
_SEEN_SECONDS = 60.0
"""What NFS may take, by its defaults, to show a new file to another machine."""
_NOT_RESTORED = -1


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
        rendezvous.wait_for_server(
            (address.host, address.port),
            name=str(cluster.task),
            attempt=config.attempt,
            key=config.job_uid,
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


def restore_together(
    config: Config,
    strategy: Any,
    store: Store,
    *,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Restores the checkpoint that the leader chooses, on all tasks.

    The leader first waits for an earlier run that still saves, and a network volume may show its files to another
    machine later: each task by itself could choose another one.

    Args:
        waiting: entered while this task waits for the others.

    Raises:
        UsageError: there are sound checkpoints, but of another model; or another run uses the directory; or not all
            tasks have the checkpoint.
        PeerLost: the leader cannot restore one.
    """
    if config.strategy != "MultiWorkerMirrored":
        store.restore_newest()
        return
    chosen, failure = _NOT_RESTORED, None
    if config.cluster.leads:
        try:
            store.restore_newest()
            chosen = store.last_step or 0
        except TrainerError as error:
            failure = error
    with waiting():
        # The first replica is the leader's.
        chosen = of_each_replica(strategy, chosen)[0]
    if chosen == _NOT_RESTORED:
        with suppress(tf.errors.OpError):
            compat.wait_at_barrier("dtj-restore", seconds=_LEFT_WORD_SECONDS)
        if failure is None:
            store.restore_newest()  # ends as the leader does, if it is for the checkpoints
            failure = PeerLost(f"peer lost: {config.cluster.leader} cannot restore; its last words say why")
        raise failure
    if not config.cluster.leads and chosen:
        store.restore_when_seen(chosen, seconds=min(_SEEN_SECONDS, config.start_timeout))
    elif not config.cluster.leads:
        store.restore_newest()
    with waiting():
        agree_on_start(config, strategy, store.last_step or 0)


def agree_on_start(config: Config, strategy: Any, step: int) -> None:
    """Makes sure that all tasks restored the same step: a directory that is not shared would train two models.

    Raises:
        WorkersDiffer: they did not.
    """
    if config.strategy != "MultiWorkerMirrored":
        return
    steps = of_each_replica(strategy, step)
    if any(other != step for other in steps):
        raise WorkersDiffer(
            f"checkpoint directory {config.checkpoint.directory}: tasks found different steps in it "
            f"({', '.join(map(str, steps))}); it must be one volume that all tasks share"
        )


def agree_on_data(config: Config, strategy: Any, data: Source) -> None:
    """Makes sure that all tasks have the same data: each takes its part of every batch, by the examples' places.

    Raises:
        WorkersDiffer: they have not.
    """
    if config.strategy != "MultiWorkerMirrored":
        return
    mine = {
        "training examples": str(data.examples),
        "held-out examples": str(data.validation_examples),
        "inputs": str(data.input_spec),
        "first examples": getattr(data, "order", ""),
    }
    text = json.dumps(mine)
    compat.leave_word(_data_key(config.cluster.task), text)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    found = of_each_replica(strategy, number)
    if len(set(found)) == 1:
        return
    # All have left word by now.
    tasks = sorted((t for t in config.cluster.addresses if t.role in (CHIEF, WORKER)), key=lambda t: (t.role, t.index))
    leader, *others = tasks
    theirs = {t: json.loads(compat.read_word(_data_key(t), seconds=_LEFT_WORD_SECONDS)) for t in tasks}
    other = next(task for task in others if theirs[task] != theirs[leader])
    what = next(what for what in mine if theirs[leader][what] != theirs[other][what])
    if what == "first examples":
        seen = f"{leader} and {other} do not read the same examples in the same order"
    else:
        seen = f"{leader} has {theirs[leader][what]} {what}, {other} has {theirs[other][what]}"
    raise WorkersDiffer(
        f"data: {seen}; give all workers the same files and the same order, without shard(), and with "
        "shuffle(…, seed=…, reshuffle_each_iteration=False): the trainer divides each batch among them"
    )


def _data_key(task: Task) -> str:
    return f"dtj-data/{task}"


def of_each_replica(strategy: Any, number: int) -> list[int]:
    """A whole number that each task brings, as all of them see it: of each replica, in order."""
    replicas = strategy.num_replicas_in_sync

    def own_place() -> Any:
        place = tf.distribute.get_replica_context().replica_id_in_sync_group
        return number * tf.one_hot(place, replicas, dtype=tf.int64)

    # A sum, since `strategy.gather` does not run eagerly.
    return [int(each) for each in strategy.reduce("SUM", strategy.run(own_place), axis=None).numpy()]


def save_together(config: Config, strategy: Any, store: Store, step: int) -> None:
    """Saves, and returns when the leader has saved. All tasks of a collective have to call it.

    Raises:
        NotSaved: this task is the leader, and cannot save.
        PeerLost: the leader cannot save; it is the cause, and this task is not.
    """
    collective = config.strategy == "MultiWorkerMirrored" and store.enabled
    # The leader may have left this step out while its storage was slow. To read the values can take all tasks.
    if collective and not of_each_replica(strategy, int(store.has_read(step)))[0]:
        store.read_again(step)
    failure = None
    try:
        store.save(step)
    except NotSaved as error:
        failure = error
    if collective:
        # The first replica is the leader's.
        saved = of_each_replica(strategy, int(failure is None))[0]
        if not saved and not failure:
            raise PeerLost(f"peer lost: {config.cluster.leader} cannot save step {step}; its last words say why")
    if failure:
        raise failure


def end_seconds(export_formats: Sequence[str]) -> float:
    """Longer than what the leader does after the last step, while the others wait for it."""
    return _EVALUATION_SECONDS + len(export_formats) * conversion.LIMIT_SECONDS


def exit_barrier(config: Config) -> None:
    """Leaves together: the leader carries the coordination service, so it goes when the others have gone.

    Raises:
        PeerLost: the leader left before.
    """
    cluster = config.cluster
    try:
        compat.wait_at_barrier("dtj-end", seconds=end_seconds(config.export_formats))
    except tf.errors.OpError as error:
        if not cluster.leads:
            raise PeerLost(
                f"peer lost: {cluster.leader} left before the end; its last words say why; {_first_line(error)}"
            ) from None
        log.info(f"a task left before the end ({type(error).__name__}); the training was complete, so that is no loss")
    if not cluster.leads:
        log.info(f"{cluster.task}: done")
        return
    _outlast_the_others(cluster)


@contextmanager
def ending_together(config: Config, *, collective: bool) -> Iterator[None]:
    """Lets all tasks end for what they have found together: see `end_together`."""
    try:
        yield
    except FOUND_TOGETHER:
        if collective:
            end_together(config.cluster)
        raise


def end_together(cluster: Cluster) -> None:
    """Waits, before this task ends for one of `FOUND_TOGETHER`, until all others know it too.

    They learn it by an all-reduce. A task that left at once could take its part of the result with it, and the others
    would end as having lost a peer.
    """
    with suppress(tf.errors.OpError):  # one of them has gone for another reason
        compat.wait_at_barrier("dtj-found-together", seconds=_KNOWN_TO_ALL_SECONDS)
    if cluster.leads:
        _outlast_the_others(cluster)


def _outlast_the_others(cluster: Cluster) -> None:
    """Waits until no other task answers, for a few seconds at most."""
    peers = [(address.host, address.port) for address in cluster.peers(CHIEF, WORKER).values()]
    until = time.monotonic() + _LAST_ONE_SECONDS
    while time.monotonic() < until and any(rendezvous.probe(peer, timeout=0.2) is None for peer in peers):
        time.sleep(0.02)


@contextmanager
def peer_loss(cluster: Cluster, *, remote: bool = False) -> Iterator[None]:
    """Turns what TensorFlow raises when another task is gone into `PeerLost`, with the tasks that do not answer.

    Args:
        remote: whether there is another process than those of the cluster, as that of a remote TPU.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if lost := lost_peer(error, cluster, remote=remote):
            raise lost from error
        raise


def lost_peer(error: Exception, cluster: Cluster, *, remote: bool = False) -> PeerLost | None:
    """What the error means, where TensorFlow raises it when another task is gone.

    Storage that cannot be reached raises the same, so that it says nothing where there is no other task.
    """
    if not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError | tf.errors.DeadlineExceededError):
        return None
    if len(cluster.addresses) < 2 and not remote:
        return None
    peers = cluster.peers(*{task.role for task in cluster.addresses})
    gone = silent(peers)
    if not gone:
        # A process that is being killed closes its connections one by one, and the port perhaps last.
        time.sleep(_LAST_MOMENTS)
        gone = silent(peers)
    who = f"{', '.join(map(str, gone))} not reachable" if gone else "a task of this job failed"
    return PeerLost(f"peer lost: {who}; {type(error).__name__}: {_first_line(error)}")


def silent(peers: Mapping[Task, Address]) -> list[Task]:
    """Those on whose ports nobody answers."""
    return [task for task, a in peers.items() if rendezvous.probe((a.host, a.port), timeout=0.5) is not None]


def _first_line(error: tf.errors.OpError) -> str:
    """The first that says something: of what a function of TensorFlow's raises, where it was defined comes before."""
    about = ("Graph execution error", "Detected at node", "File ", "<stack traces")
    lines = [line.strip() for line in str(error.message).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith(about)), "no message")[:200]
