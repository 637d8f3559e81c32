"""Functions and conditions of TensorFlow that a replica's step calls.

TensorFlow makes graphs of them, in which a replica cannot meet the others: no gradient is summed there, no optimizer
updates across replicas, no BatchNormalization is synchronized. So a `tf.function`, such as a `train_step` or a `call`
with this decorator, becomes a part of the graph of the step. In the branches of a condition, an optimizer updates each
replica's copy of the weights by itself: gradients are the same on all replicas, and so is such a condition.

`override` puts these functions in the place of those of TensorFlow. Imports TensorFlow.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dtj_trainer.compat.tensorflow import body_of, parts_of_replica
from dtj_trainer.keras_fit.replica_gradients import is_whole
from dtj_trainer.keras_fit.replica_losses import here
from dtj_trainer.training.layers import replicas_meet


def call(original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a `tf.function`; in a replica's step, what it is made of, unless XLA compiles it."""
    body = None if here.share is None else body_of(function)
    return original(function, *args, **kwargs) if body is None else body(*args, **kwargs)


def cond(original: Any, pred: Any, true_fn: Any = None, false_fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """A condition; it is noted where all replicas of a step take the same branch."""
    in_step = here.share is not None and not tf.executing_eagerly() and (replicas_meet() or _in_branch())
    if in_step and tf.is_tensor(pred) and next(parts_of_replica(pred, known=is_whole), None) is None:
        true_fn, false_fn = _noting(true_fn), _noting(false_fn)
    return original(pred, true_fn, false_fn, *args, **kwargs)


def _in_branch() -> bool:
    return here.branch is tf.compat.v1.get_default_graph()


def _noting(branch: Callable[[], Any]) -> Callable[[], Any]:
    def taken() -> Any:
        with here.having(branch=tf.compat.v1.get_default_graph()):
            return branch()

    return taken
