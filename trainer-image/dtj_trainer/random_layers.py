"""What random layers draw, such as dropout: a function of the layer's seed, the step and the replica.

So a run that resumes draws what an uninterrupted one would have, whatever strategy wrote the checkpoint, which holds
nothing of it. Were the layers' own count kept instead, replicas whose shares of a batch differ in size would stand at
different places. (Pipeline does the same for each micro-batch by itself.) Imports TensorFlow and Keras.
"""

import random
import threading
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import keras3


class RngState:
    """Where the random layers of one model stand."""

    def __init__(self, model: Any) -> None:
        """To be called in the strategy's scope, before the first step.

        Args:
            model: built.
        """
        # Each is a seed and a count.
        found = [(state, tf.convert_to_tensor(state).numpy()) for state in states(model)]
        self._seeds = [(state, (int(values[0]), int(values[-1]))) for state, values in found]
        self._unseeded = _Unseeded()

    def fold_in(self, step: Any) -> None:
        """Puts the layers where this step begins; to be called by each replica.

        Args:
            step: int64 tensor, steps done before it.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        stateless_fold_in = tf.random.experimental.stateless_fold_in
        # Keras has one generator for each thread, and each replica is one.
        keras3.draw_unseeded_by(self._unseeded)
        self._unseeded.begin(step, replica)
        for state, seed in self._seeds:
            here = stateless_fold_in(stateless_fold_in(tf.constant(seed, tf.int64), step), replica)
            state.assign(tf.random.stateless_uniform(state.shape, here, minval=None, maxval=None, dtype=state.dtype))


class _Unseeded:
    """In place of Keras' generator of what is drawn without a seed, whose state no checkpoint holds."""

    def __init__(self) -> None:
        # Keras takes it from there as well, and every task has the same.
        self._seed = random.randint(1, 10**9)
        # The replicas of a process are threads.
        self._here = threading.local()

    def begin(self, step: Any, replica: Any) -> None:
        """A replica begins a step; the number of draws within it follows from the code."""
        self._here.place, self._here.drawn = (step, replica), 0

    def next(self, ordered: bool = True) -> Any:
        """A seed, as Keras' generators give it."""
        del ordered
        drawn = self._here.drawn = getattr(self._here, "drawn", 0) + 1
        seed = tf.constant((self._seed, drawn), tf.int64)
        place = getattr(self._here, "place", ())
        if place and _is_here(place[0]):
            for number in place:
                seed = tf.random.experimental.stateless_fold_in(seed, number)
        return tf.random.stateless_uniform([2], seed, minval=None, maxval=None, dtype=tf.int64)


def _is_here(tensor: Any) -> bool:
    """Whether a tensor can be used: it may be of a function that was traced before, such as the train step."""
    if tf.executing_eagerly():
        return False
    graph = tf.compat.v1.get_default_graph()
    while graph is not None and graph is not tensor.graph:
        graph = getattr(graph, "outer_graph", None)
    return graph is not None


def states(model: Any) -> list[Any]:
    """The tf.Variables that say where the random layers of a model stand; none is a weight. None in tf_keras."""
    return [variable.value for variable in model.variables if keras3.is_seed(variable)]
