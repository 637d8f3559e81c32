"""The two Kerases: Keras 3, and tf_keras, which is the Keras of TensorFlow 2.15 and before.

What differs between their variables. tf_keras is imported only where it is needed: it costs 0.2 s.
Imports TensorFlow.
"""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import keras

from dtj_trainer import rng_state
from dtj_trainer.compat import optimizers, tf_keras


def keras_of(model: Any) -> ModuleType:
    """The Keras that a model belongs to, whatever it was asked for: a user's model may be of either."""
    return sys.modules["tf_keras"] if rng_state.is_of_tf_keras(model) else keras


_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def sees_batches(callback: Any, library: ModuleType) -> bool:
    """Whether a callback of this Keras does anything before or after a batch of the training."""
    base = library.callbacks.Callback
    return any(getattr(getattr(callback, hook), "__func__", None) is not getattr(base, hook) for hook in _BATCH_HOOKS)


def scales_loss(model: Any) -> bool:
    """Whether Keras would scale the loss of this model: it computes in float16, which has no small numbers."""
    policy = getattr(model, "dtype_policy", None)
    return getattr(policy, "name", None) == "mixed_float16"


def variables(of_keras: Iterable[Any]) -> list[Any]:
    """The tf.Variables behind variables of either Keras."""
    return [variable.value if isinstance(variable, keras.Variable) else variable for variable in of_keras]


def saved_variables(optimizer: Any) -> list[Any]:
    """The optimizer's own variables behind `state`."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    scales = inner is not optimizer
    left_out = [optimizers.rate_of(inner)]
    if scales and isinstance(optimizer, keras.optimizers.Optimizer):
        # Of a LossScaleOptimizer of Keras 3, its own rate and count are of no use to anybody.
        left_out += [optimizers.rate_of(optimizer), optimizers.count_of(optimizer)]
    if getattr(inner, "momentum", None) == 0:
        # SGD of tf_keras makes slots for a momentum that is not there; Keras 3 makes none.
        left_out += getattr(inner, "momentums", [])
    found = [variable for variable in optimizer.variables if all(variable is not one for one in left_out)]
    if scales and not isinstance(optimizer, keras.optimizers.Optimizer) and optimizer.dynamic:
        # tf_keras keeps them apart.
        found += tf_keras.state_of_loss_scale(optimizer)
    return found


def state(optimizer: Any) -> list[Any]:
    """What an optimizer must remember, the same in both Kerases: its count of steps, and its slots by variable.

    Not the learning rate, which Keras 3 counts as its state: the command line decides it.
    """
    return variables(saved_variables(optimizer))
