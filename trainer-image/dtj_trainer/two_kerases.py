"""The two Kerases: Keras 3, and tf_keras, which is the Keras of TensorFlow 2.15 and before.

What differs between their variables. Parameter servers train models of tf_keras, all else trains models of Keras 3.
tf_keras is imported only where it is needed: it costs 0.2 s. Imports TensorFlow.
"""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import keras3, optimizers
from dtj_trainer.errors import UsageError

REMEDY = "make it with `import keras`, or use strategy ParameterServer, which needs tf_keras"
"""What to do with a model of tf_keras under any other strategy."""


def is_of_tf_keras(part: Any) -> bool:
    """Whether something is a layer, a model or an optimizer of tf_keras; imports it for nobody."""
    library = sys.modules.get("tf_keras")
    if library is None:
        return False
    kinds = library.optimizers
    return isinstance(part, (library.layers.Layer, kinds.Optimizer, kinds.legacy.Optimizer))


def check_counted(optimizer: Any, given: str) -> None:
    """Makes sure that an optimizer counts its updates where it takes them, in a variable.

    tf_keras' Nadam counts the traces of its update, in a number of Python's. So its weights depend on how often it was
    traced, and no checkpoint holds where it stands.

    Args:
        given: where the user gave it, for the message.

    Raises:
        UsageError: it does not.
    """
    if is_of_tf_keras(optimizer) and isinstance(optimizer, sys.modules["tf_keras"].optimizers.Nadam):
        raise UsageError(
            f"{given}: the Nadam of tf_keras counts how often TensorFlow traces it in place of its updates; use Adam, "
            "AdamW or another optimizer"
        )


def keras_of(model: Any) -> ModuleType:
    """The Keras that a model belongs to, whatever it was asked for: a user's model may be of either."""
    return sys.modules["tf_keras"] if is_of_tf_keras(model) else keras


_BATCH_HOOKS = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")


def sees_batches(callback: Any, library: ModuleType) -> bool:
    """Whether a callback of this Keras does anything before or after a batch of the training."""
    base = library.callbacks.Callback
    return any(getattr(getattr(callback, hook), "__func__", None) is not getattr(base, hook) for hook in _BATCH_HOOKS)


def given_losses(model: Any) -> tuple[Any, Any]:
    """The losses and their weights that a model was compiled with, as the user gave them; None where there are none."""
    losses = model.compiled_loss if is_of_tf_keras(model) else keras3.losses_of(model)
    return (None, None) if losses is None else keras3.given_losses(losses)


def compiled_metrics(model: Any) -> dict[str, Any]:
    """The arguments of `compile` that are metrics, as the user gave them; empty without any."""
    compiled = model.compiled_metrics if is_of_tf_keras(model) else keras3.metrics_of(model)
    given = [] if compiled is None else keras3.given_metrics(compiled)
    return dict(zip(("metrics", "weighted_metrics"), given, strict=False))


def given_metrics(model: Any) -> list[Any]:
    """The metrics that a model was compiled with, weighted ones included, as the user gave them."""
    return [one for one in tf.nest.flatten(compiled_metrics(model)) if one is not None]


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
    left_out = [optimizers.rate_of(inner)]
    if inner is not optimizer:
        # Of a LossScaleOptimizer, its own rate and count are of no use to anybody.
        left_out += [optimizers.rate_of(optimizer), optimizers.count_of(optimizer)]
    if getattr(inner, "momentum", None) == 0:
        # SGD of tf_keras makes slots for a momentum that is not there; Keras 3 makes none.
        left_out += getattr(inner, "momentums", [])
    return [variable for variable in optimizer.variables if all(variable is not one for one in left_out)]


def state(optimizer: Any) -> list[Any]:
    """What an optimizer must remember, the same in both Kerases: its count of steps, and its slots by variable.

    Not the learning rate, which Keras 3 counts as its state: the command line decides it.
    """
    return variables(saved_variables(optimizer))
