"""The `fit` of tf_keras under several replicas, which is TensorFlow's own: a line says so. Imports tf_keras."""

import functools
import logging
from typing import Any

import tensorflow as tf
import tf_keras

log = logging.getLogger(__name__)

_told = False


def tell_at_fit() -> None:
    """From now on, the first `fit` of several replicas says what differs from one device."""
    fit = tf_keras.Model.fit

    @functools.wraps(fit)
    def telling(model: Any, *args: Any, **kwargs: Any) -> Any:
        _tell(model.distribute_strategy)
        return fit(model, *args, **kwargs)

    tf_keras.Model.fit = telling


def _tell(strategy: Any) -> None:
    global _told
    parameters = isinstance(strategy, tf.distribute.experimental.ParameterServerStrategy)
    if _told or parameters or strategy.num_replicas_in_sync == 1 or not strategy.extended.should_checkpoint:
        return
    _told = True
    log.warning(
        f"fit of tf_keras with {strategy.num_replicas_in_sync} replicas is not adapted, and differs from one device "
        "where a batch has other numbers of examples or weights on each replica, a loss leaves examples out, gradients "
        "are clipped, or there is BatchNormalization (docs/scripts.md, tf_keras); fit of Keras 3 is adapted"
    )
