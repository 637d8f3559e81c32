"""Whether the means of a train step are over its examples, found by tracing it with made-up ones. Imports TensorFlow.

The graph of a step says which means its loss is the sum of, but not whether a value before the mean depends on one
example alone, as it does not where examples are left out, or compared with each other.
"""

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.keras_fit.replica_losses import noting

_FIRST = 4
"""Examples of the first part."""
_TOLERANCE = 1e-4


def mixes_examples(model: Any, batch: Any) -> bool:
    """Whether a mean or a sum of the step's loss is not that of what the examples give each by itself.

    What draws random numbers is not compared. BatchNormalization takes the statistics that it has.
    """
    drawn = False

    @tf.function(autograph=False)
    def traced(batch: Any) -> Any:
        nonlocal drawn
        before = [(variable, tf.convert_to_tensor(variable.value)) for variable in model.variables]
        with keras.StatelessScope(state_mapping=before, collect_losses=True) as scope, noting(model) as noted:
            model.train_step(batch)
            drawn = any(
                keras3.is_seed(variable) and scope.get_current_value(variable) is not value
                for variable, value in before
            )
        return noted.means, noted.sums

    known = [
        layer
        for layer in keras3.sublayers(model, recursive=True)
        if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable
    ]
    for layer in known:
        layer.trainable = False
    try:
        specification = tf.nest.map_structure(lambda one: tf.TensorSpec([None, *one.shape[1:]], one.dtype), batch)
        values = traced.get_concrete_function(specification)
        rows = int(tf.nest.flatten(batch)[0].shape[0])
        parts = (slice(0, rows), slice(0, rows), slice(0, _FIRST), slice(_FIRST, rows))
        whole, again, first, rest = (
            values(tf.nest.map_structure(lambda one, part=part: one[part], batch)) for part in parts
        )
    finally:
        for layer in known:
            layer.trainable = True
    if drawn:
        return False
    shares = (_FIRST / rows, 1 - _FIRST / rows), (1.0, 1.0)
    return any(
        _equal(one, same) and not _equal(one, a * share[0] + b * share[1])
        for share, *kind in zip(shares, whole, again, first, rest, strict=True)
        for one, same, a, b in zip(*kind, strict=True)
    )


def _equal(one: Any, other: Any) -> bool:
    return not np.isfinite([one, other]).all() or bool(np.isclose(one, other, rtol=_TOLERANCE, atol=1e-6))
