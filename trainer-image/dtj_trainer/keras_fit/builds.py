"""What Keras 3 builds for `fit` of several replicas, which cannot be built in the midst of a step.

On one device Keras builds nothing before the first step: a model without a `call` of its own, as the one around the two
networks of a GAN, is never called, and an optimizer that it holds is built by its first update. Under several replicas
Keras calls each model first, and variables that are made within a step have no value. Imports TensorFlow and Keras.
"""

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import private
from dtj_trainer.compat.keras3 import sublayers
from dtj_trainer.compat.optimizers import made_under
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.adoption import check_made_in_scope, take
from dtj_trainer.keras_fit.replica_losses import has_scope, several


def build(model: Any, strategy: Any, examples: Any) -> None:
    """Builds a model for examples, which may be specifications. One without a `call` has to be built already.

    Raises:
        UsageError: it has no `call`, and one of its layers is not built.
    """
    if type(model).call is not keras.Model.call:
        with strategy.scope():
            private(model, "_symbolic_build", library="keras")(data_batch=examples)
        return
    unbuilt = [layer.name for layer in sublayers(model, recursive=True) if not layer.built]
    if unbuilt:
        raise UsageError(
            f"{type(model).__name__} has no call(), so with several replicas its layers have to be built before fit: "
            f"{unbuilt[0]} is not; give the model that it is in an Input, or call build()"
        )


def apply(original: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Builds an optimizer between the replicas before its first update within a step, and for the scope of one replica.

    Raises:
        UsageError: it was made outside the scope of the strategy, or the weights were.
    """
    context = tf.distribute.get_replica_context()
    weights = None if trainable_variables is None else list(trainable_variables)
    if context is not None and several(context.strategy):
        check_made_in_scope(context.strategy, weights or (), "a weight of the model")
        check_made_in_scope(context.strategy, optimizer.variables, f"the optimizer {type(optimizer).__name__}")
    elif context is not None and has_scope(context.strategy):
        if not optimizer.built:
            take(context.strategy, optimizer)
        if made_under(optimizer) is context.strategy:
            check_made_in_scope(context.strategy, weights or (), "a weight of the model")
    if not optimizer.built and weights is not None and context is not None:

        def across(strategy: Any) -> None:
            with tf.init_scope(), strategy.scope():
                optimizer.build(weights)

        if context.num_replicas_in_sync > 1:
            context.merge_call(across)
    return original(optimizer, grads, weights)
