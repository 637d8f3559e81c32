"""A `tf.function` that a replica's step calls, such as a `train_step` or a `call` with this decorator.

TensorFlow makes a graph of it, in which a replica cannot meet the others: no gradient is summed there, no optimizer
updates, no BatchNormalization is synchronized. So it becomes a part of the graph of the step. `override` puts this
function in the place of that of TensorFlow. Imports TensorFlow.
"""

from typing import Any

from dtj_trainer.compat.tensorflow import body_of
from dtj_trainer.keras_fit.replica_losses import here


def call(original: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a `tf.function`; in a replica's step, what it is made of, unless XLA compiles it."""
    body = None if here.share is None else body_of(function)
    return original(function, *args, **kwargs) if body is None else body(*args, **kwargs)
