"""What the tasks of a collective tell each other, so that all do the same. Imports TensorFlow.

Each function here is called by all tasks, at the same place of their work.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from dtj_launch import rendezvous
from dtj_trainer import two_kerases
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import CHIEF, WORKER, Cluster, Task
from dtj_trainer.config.nonfinite import on_which, workers_of
from dtj_trainer.config.parsing import Config
from dtj_trainer.data.source import Source
from dtj_trainer.distribution.strategies import first_line
from dtj_trainer.errors import FOUND_TOGETHER, DataChanged, PeerLost, WorkersDiffer
from dtj_trainer.export import conversion

log = logging.getLogger(__name__)

_EVALUATION_SECONDS = 86400.0
"""More than any evaluation and export of a SavedModel takes; that the leader is gone is noticed by its heartbeat."""
_LAST_ONE_SECONDS = 5.0
_KNOWN_TO_ALL_SECONDS = 10.0
KEY_VALUE_SECONDS = 10.0
_has_left = False
"""Whether this task has passed the exit barrier: it waits at no other one."""
_BITS = 60
"""That a number holds which is summed."""
_STEP_AT = 32
"""The bit of a vote from which on it is the number of a step."""
_KNOWN = ("keras.", "dtj_trainer.", "dtj_launch.")
"""Callbacks that decide by what all workers know."""


def of_each_replica(strategy: Any, number: int) -> list[int]:
    """A whole number that each task brings, as all of them see it: of each replica, in order."""
    found: list[int] = numbers_of_each_replica(strategy, lambda: tf.constant([number], tf.int64))[0].numpy().tolist()
    return found


def of_any_task(strategy: Any, answers: Sequence[bool]) -> list[bool]:
    """Of each question, whether a task says yes."""
    if len(strategy.extended.worker_devices) == strategy.num_replicas_in_sync:
        return list(answers)
    found: list[bool] = []
    for first in range(0, len(answers), _BITS):
        own = answers[first : first + _BITS]
        votes = of_each_replica(strategy, sum(yes << place for place, yes in enumerate(own)))
        found += [any(vote >> place & 1 for vote in votes) for place in range(len(own))]
    return found


def numbers_of_each_replica(strategy: Any, own: Callable[[], Any]) -> Any:
    """Whole numbers that each replica brings, as all tasks see them: a tensor of shape (numbers, replicas).

    Args:
        own: called in each replica; as many int64 in each of them.
    """
    replicas = strategy.num_replicas_in_sync

    def in_place() -> Any:
        place = tf.distribute.get_replica_context().replica_id_in_sync_group
        return own()[:, tf.newaxis] * tf.one_hot(place, replicas, dtype=tf.int64)

    # A sum, since `strategy.gather` does not run eagerly.
    return strategy.reduce("SUM", strategy.run(in_place), axis=None)


@dataclass(frozen=True, kw_only=True)
class Vote:
    """What one task brings to the agreement. Save and next_steps count from the leader alone."""

    stop: bool
    save: bool
    next_steps: int

    def vector(self) -> list[float]:
        """The vote as numbers that a sum over the tasks can carry."""
        return [float(self.stop), float(self.save), float(self.next_steps)]


def agree_on_vote(strategy: Any, vote: Vote, not_finite: int) -> tuple[Vote, list[int]]:
    """What all tasks want, and of each replica the number of a step that its task found not finite; else 0."""
    votes = of_each_replica(strategy, not_finite << _STEP_AT | vote.next_steps << 2 | vote.save << 1 | vote.stop)
    # The first replica is the leader's.
    save, next_steps = bool(votes[0] & 2), votes[0] % (1 << _STEP_AT) >> 2
    agreed = Vote(stop=any(one & 1 for one in votes), save=save, next_steps=next_steps)
    return agreed, [one >> _STEP_AT for one in votes]


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
        "classes": ", ".join(data.classes),
        "counts of files": getattr(data, "counts", ""),
        "inputs": str(data.input_spec),
        "first examples": getattr(data, "order", ""),
    }
    text = json.dumps(mine)
    compat.set_key_value(_data_key(config.cluster.task), text)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
    found = of_each_replica(strategy, number)
    if len(set(found)) == 1:
        return
    # All have left word by now.
    leader, *others = tasks = config.cluster.trainers
    theirs = {t: json.loads(compat.get_key_value(_data_key(t), seconds=KEY_VALUE_SECONDS)) for t in tasks}
    other = next(task for task in others if theirs[task] != theirs[leader])
    what = next(what for what in mine if theirs[leader][what] != theirs[other][what])
    if what == "first examples":
        seen = f"{leader} and {other} do not read the same examples in the same order"
    elif what in ("classes", "counts of files"):
        seen = f"{leader} and {other} do not have the same {what.replace('counts of ', '')}"
    else:
        seen = f"{leader} has {theirs[leader][what]} {what}, {other} has {theirs[other][what]}"
    raise WorkersDiffer(
        f"data: {seen}; give all workers the same files and the same order, without shard(), and with "
        "shuffle(…, seed=…, reshuffle_each_iteration=False): the trainer divides each batch among them"
    )


def _data_key(task: Task) -> str:
    return f"dtj-data/{task}"


def agree_on_held_out(config: Config, strategy: Any, *, differs: bool, error: Callable[[str], DataChanged]) -> None:
    """Raises in every task if they differ in one; all tasks of a collective have to call it.

    Args:
        differs: whether they do here.
        error: ` on worker 1`, or nothing in a job of one process -> what to raise.

    Raises:
        DataChanged: they differ.
    """
    if config.strategy != "MultiWorkerMirrored":
        if differs:
            raise error("")
        return
    votes = of_each_replica(strategy, int(differs))
    if found := [replica for replica, vote in enumerate(votes) if vote]:
        raise error(on_which(workers_of(config.cluster, found, total=len(votes))))


def end_seconds(export_formats: Sequence[str]) -> float:
    """Longer than what the leader does after the last step, while the others wait for it."""
    return _EVALUATION_SECONDS + len(export_formats) * conversion.LIMIT_SECONDS


def exit_barrier(config: Config) -> None:
    """Leaves together: the leader carries the coordination service, so it goes when the others have gone.

    Raises:
        PeerLost: the leader left before.
    """
    global _has_left
    _has_left = True
    cluster = config.cluster
    try:
        compat.wait_at_barrier("dtj-end", seconds=end_seconds(config.export_formats))
    except tf.errors.OpError as error:
        if not cluster.leads:
            raise PeerLost(
                f"peer lost: {cluster.leader} left before the end; its last words say why; {first_line(error)}"
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
    """Waits, before this task ends, until all others have what they last computed together.

    That is one of `FOUND_TOGETHER`, or the last sum of a script. A task that left at once could take its part of the
    result with it, and the others would end as having lost a peer. A task that has more to do is not waited for.
    """
    if _has_left:
        return
    with suppress(tf.errors.OpError):  # one of them has gone for another reason, or is not done in time
        compat.wait_at_barrier("dtj-end-together", seconds=_KNOWN_TO_ALL_SECONDS)
    if cluster.leads:
        _outlast_the_others(cluster)


def _outlast_the_others(cluster: Cluster) -> None:
    """Waits until no other task answers, for a few seconds at most."""
    peers = [(address.host, address.port) for address in cluster.peers(CHIEF, WORKER).values()]
    until = time.monotonic() + _LAST_ONE_SECONDS
    while time.monotonic() < until and any(rendezvous.probe(peer, timeout=0.2) is None for peer in peers):
        time.sleep(0.02)


class FitAgreement:
    """Keeps the workers of Keras' `fit` together, whatever a callback of one of them decides.

    Callbacks see the same values on all workers. One that goes by its worker's own clock, memory or files decides
    alone: the others would wait for a worker that has left the loop, or go on with another learning rate.
    """

    def __init__(self, cluster: Cluster, keras: Any) -> None:
        """Args:
        keras: the module, as the script has imported it.
        """
        self._cluster = cluster
        self._keras = keras
        self._asks: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """By model, whether a callback of some worker may stop the training after a batch."""

    def begins(self, callbacks: Sequence[Any], model: Any, *, first_epoch: int) -> list[int]:
        """Finds out whether all workers ask after each batch, as each may have callbacks of its own.

        Returns:
            The first epoch of each replica; nothing where there is one worker.
        """
        if not _spans_workers(model):
            return []
        acts = any(self._acts_in_batches(callback) for callback in callbacks)
        each = of_each_replica(model.distribute_strategy, first_epoch << 1 | acts)
        self._asks[model] = any(one & 1 for one in each)
        return [one >> 1 for one in each]

    def after_batch(self, model: Any) -> None:
        """Lets all workers stop where a callback of one has stopped the training: asks where one may do so."""
        if _spans_workers(model) and self._asks.get(model):
            self._stop_together(model, of_each_replica(model.distribute_strategy, int(model.stop_training)))

    def after_epoch(self, model: Any, epoch: int) -> None:
        """The same; and compares what callbacks have made of the learning rate.

        Raises:
            WorkersDiffer: it differs between workers.
        """
        if not _spans_workers(model):
            return
        votes = of_each_replica(model.distribute_strategy, int(model.stop_training) << 32 | _bits(self._rate_of(model)))
        rates = [vote & 0xFFFFFFFF for vote in votes]
        for replica, rate in enumerate(rates):
            if rate != rates[0]:
                first, other = self._names([0], len(votes))[0], self._names([replica], len(votes))[0]
                raise WorkersDiffer(
                    f"fit: after epoch {epoch + 1} the learning rate is {_number(rates[0]):g} on {first} and "
                    f"{_number(rate):g} on {other}; let callbacks set it by what all workers know, such as their logs"
                )
        self._stop_together(model, [vote >> 32 for vote in votes])

    def _stop_together(self, model: Any, stopped: Sequence[int]) -> None:
        if not any(stopped):
            return
        model.stop_training = True
        if not all(stopped) and self._cluster.leads:
            names = self._names([replica for replica, stops in enumerate(stopped) if stops], len(stopped))
            log.warning(f"a callback on {', '.join(names)} has stopped the training: all workers stop")

    def _names(self, replicas: Sequence[int], total: int) -> Sequence[str]:
        return workers_of(self._cluster, replicas, total=total)

    def _acts_in_batches(self, callback: Any) -> bool:
        by_the_user = isinstance(callback, self._keras.callbacks.LambdaCallback)
        if type(callback).__module__.startswith(_KNOWN) and not by_the_user:
            return False
        return two_kerases.sees_batches(callback, self._keras)

    def _rate_of(self, model: Any) -> float:
        optimizer = model.optimizer
        if not isinstance(optimizer, self._keras.optimizers.Optimizer):
            return 0.0
        # One that is made of several may have a rate for each.
        rates = self._keras.tree.flatten(optimizer.learning_rate)
        return float(sum(float(self._keras.ops.convert_to_numpy(one)) for one in rates))


def _spans_workers(model: Any) -> bool:
    return isinstance(getattr(model, "distribute_strategy", None), tf.distribute.MultiWorkerMirroredStrategy)


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


def _number(bits: int) -> float:
    return float(np.uint32(bits).view(np.float32))
