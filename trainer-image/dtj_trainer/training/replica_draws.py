"""Random numbers in the steps of several replicas: each of them draws its own.

One device draws a number for each example of a batch. Replicas that begin with the same seed would all draw what the
first examples of that batch get. So the number of the replica is folded into the seeds of `SeedGenerator`s and of the
operations of `tf.random`; 0 changes none. What has a seed of the user's own and no state, such as
`tf.random.stateless_normal`, stays as it is. Imports TensorFlow and Keras.
"""

import functools
import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from dtj_trainer.compat import keras3, replace
from dtj_trainer.compat.tensorflow import replace_draws, strategy_of

_SEEDS = 2**31 - 1
"""TensorFlow's seeds of operations are below."""
_REPLICA_SEEDS, _SHARED_SEEDS = 1_000_003, 982_451_653
"""How far apart the seeds of replicas are, and of what one of them draws in a step from a state that all share."""


class _Here(threading.local):
    """What holds for the replica whose step this thread traces."""

    draws: "ReplicaDraws | None" = None
    replica = 0
    graph: Any = None
    """That of the step; None if it is computed eagerly."""
    place = 0
    """Which of the graphs of a step this is, counted from 0."""
    leads = False
    """Whether it is the first replica of this process."""
    taken = 0
    """Of how many operations it has taken the seeds."""
    shared = 0
    """How often it has drawn from a generator that was made outside of the scope."""


_here = _Here()


class ReplicaDraws:
    """What the replicas draw in all graphs of one step, such as one for the first batch and one for the others."""

    def __init__(self) -> None:
        """Replaces the functions of TensorFlow and Keras that draw, once for all."""
        _install()
        self._places: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._next = itertools.count()
        self._of_first: list[Any] = []
        """The seeds of operations that the first replica of this process has taken in this step."""

    @contextmanager
    def differing(self) -> Iterator[None]:
        """In a replica's step: what is drawn differs from what other replicas draw, and other graphs of the step."""
        context = tf.distribute.get_replica_context()
        # None on a TPU, which compiles one step for all replicas.
        _here.replica = int(tf.get_static_value(context.replica_id_in_sync_group) or 0)
        _here.leads = _here.replica % len(context.strategy.extended.worker_devices) == 0
        _here.graph = _graph()
        _here.draws, _here.place, _here.taken, _here.shared = self, self._place(_here.graph), 0, 0
        if _here.leads:
            self._of_first = []
        try:
            yield
        finally:
            _here.draws, _here.graph, _here.replica = None, None, 0

    def _place(self, graph: Any) -> int:
        if graph is None:
            return 0
        if graph not in self._places:
            self._places[graph] = next(self._next)
        return self._places[graph]

    def seeds(self, draw: Callable[[Any], Any], seed: Any) -> Any:
        """The two seeds of an operation.

        TensorFlow counts what it draws without a seed, also outside of the step. The first replica of each process
        counts, as one device does, and the others take what it has taken.
        """
        taken, _here.taken = _here.taken, _here.taken + 1
        counts = _here.leads or seed is not None or taken >= len(self._of_first)
        seeds = draw(seed) if counts else self._of_first[taken]
        if _here.leads:
            self._of_first.append(seeds)
        if not (_here.replica or _here.place) or not all(isinstance(one, Integral) for one in seeds):
            return seeds
        return _folded(*map(int, seeds), _here.replica, _here.place, taken)


def _graph() -> Any:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _folded(*numbers: int) -> tuple[int, int]:
    digest = hashlib.sha256(repr(numbers).encode()).digest()
    return int.from_bytes(digest[:4], "big") % _SEEDS, int.from_bytes(digest[4:8], "big") % _SEEDS or 1


@functools.cache
def _install() -> None:
    replace_draws(seeds=_seeds_of_operation)
    replace(keras.random.SeedGenerator, "next", _next_seed, library="keras")
    replace(tf.random.Generator, "skip", _skip, library="tensorflow")


def _seeds_of_operation(draw: Callable[[Any], Any], seed: Any) -> Any:
    return draw(seed) if _here.draws is None else _here.draws.seeds(draw, seed)


def _next_seed(draw: Callable[..., Any], generator: Any, *args: Any, **kwargs: Any) -> Any:
    """A seed of a SeedGenerator, whose state goes on alike on all replicas."""
    if not _here.replica:
        return draw(generator, *args, **kwargs)
    state = keras3.storage_of(generator.state)
    part = _here.replica * _REPLICA_SEEDS
    if isinstance(state, tf.distribute.DistributedValues) or not _follows():
        seed = draw(generator, *args, **kwargs)
    else:
        seed, part = generator.state.value * 1, part + _next_shared() * _SHARED_SEEDS
    return seed + tf.constant([part, 0], seed.dtype)


def _skip(draw: Callable[..., Any], generator: Any, delta: Any) -> Any:
    """Where a `tf.random.Generator` stands; one that was made in the scope is another on each replica by itself."""
    if not _here.replica or strategy_of(generator) is not None:
        return draw(generator, delta)
    part = _here.replica
    if _follows():
        delta, part = tf.zeros_like(delta), part + (_next_shared() << 32)
    # A counter and a key, or the counter is of two words, of which the second one is enough for each replica.
    return tf.tensor_scatter_nd_add(draw(generator, delta), [[1]], tf.constant([part], tf.int64))


def _follows() -> bool:
    """Whether a state that the replicas of this process share is left to the first of them, which moves it on.

    In a loop or a function that is called, what is drawn has to move on by itself.
    """
    return not _here.leads and _graph() is _here.graph


def _next_shared() -> int:
    _here.shared += 1
    return _here.shared
