"""The moving average of the weights (EMA) that an optimizer keeps with `use_ema`, and when it replaces them.

An optimizer here is none that wraps another one. Imports TensorFlow.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import optimizers as compat


def follow(optimizer: Any) -> None:
    """What Keras does with the moving average of the weights at the end of an update."""
    compat.average(optimizer)
    if optimizer.ema_overwrite_frequency:
        tf.cond(
            tf.equal((optimizer.iterations + 1) % optimizer.ema_overwrite_frequency, 0),
            lambda: compat.overwrite(optimizer),
            lambda: None,
        )


def overwriting(optimizer: Any, overwrite: Callable[[Any], None]) -> Callable[[Any], None]:
    """Overwrites weights with their moving average, which Keras 3 cannot do in a replica."""

    def overwrite_anywhere(weights: Sequence[Any]) -> None:
        if tf.distribute.in_cross_replica_context() or not tf.distribute.has_strategy():
            overwrite(weights)
            return
        for weight, average in zip(weights, compat.averages_of(optimizer), strict=True):
            if average is not None:
                weight.assign(average)

    return overwrite_anywhere


def finalize(optimizer: Any, weights: Sequence[Any], strategy: Any) -> None:
    """What an optimizer does once, after the last step: with `use_ema`, the weights become their moving average.

    To be called after the last checkpoint, which holds the weights as trained.
    """
    if optimizer.use_ema:
        with strategy.scope():
            optimizer.finalize_variable_values(weights)
