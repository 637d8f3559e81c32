"""Private names of the optimizers of Keras 3, and of those that optimizers of tf_keras have too.

Imports TensorFlow and Keras 3.
"""

from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import mentions, private, require
from dtj_trainer.compat.tensorflow import parts_of_replica

_SUM = "_all_reduce_sum_gradients"
_CALLED_BY = {
    _SUM: "_backend_update_step",
    "_backend_apply_gradients": "apply",
    "_overwrite_model_variables_with_average_value": "finalize_variable_values",
}
"""What is replaced on an optimizer of Keras 3 -> the method that calls it there."""
_OVERWRITE = "_overwrite_model_variables_with_average_value"


def rate_of(optimizer: Any) -> Any:
    """The rate of an optimizer of either Keras: a variable, a schedule or a function."""
    return private(optimizer, "_learning_rate", library=_library(optimizer))


def count_of(optimizer: Any) -> Any:
    """The variable in which an optimizer of either Keras counts its updates, accumulated ones included."""
    return private(optimizer, "_iterations", library=_library(optimizer))


def reads_count(optimizer: Any) -> bool:
    """Whether an update of an optimizer of Keras 3 depends on how many there were, as Adam's does, or its rate."""
    rate, own = rate_of(optimizer), type(optimizer).__mro__
    methods = [
        one
        for kind in own[: own.index(keras.optimizers.Optimizer)]
        for one in vars(kind).values()
        if isinstance(one, FunctionType)
    ]
    by_rate = isinstance(rate, keras.optimizers.schedules.LearningRateSchedule) or callable(rate)
    return by_rate or any(mentions(one, name) for one in methods for name in ("iterations", "_iterations"))


def made_under(optimizer: Any) -> Any:
    """The strategy that an optimizer of either Keras was made under."""
    return private(optimizer, "_distribution_strategy", library=_library(optimizer))


def lets_decay(optimizer: Any, weight: Any) -> bool:
    """Whether an optimizer of Keras 3 lets a weight decay: see `exclude_from_weight_decay`."""
    return bool(private(optimizer, "_use_weight_decay", library="keras")(weight))


def weights_of(optimizer: Any) -> Sequence[Any]:
    """The weights that an optimizer of Keras 3 is built for."""
    weights: Sequence[Any] = private(optimizer, "_trainable_variables", library="keras")
    return weights


def reduced(how: str, gradients: Sequence[Any]) -> list[Any]:
    """Gradients over all replicas, each for itself; to be called by each of them. None stays.

    Args:
        how: `SUM` or `MEAN`.
    """
    return by_rows(lambda given: _reduced(how, given), gradients)


def _reduced(how: str, gradients: Sequence[Any]) -> list[Any]:
    found: dict[int, Any] = {}
    # TensorFlow sums several tensors together, if they are of one type.
    for dtype in dict.fromkeys(one.dtype for one in gradients if one is not None):
        places = [place for place, one in enumerate(gradients) if one is not None and one.dtype == dtype]
        sums = tf.distribute.get_replica_context().all_reduce(how, [gradients[place] for place in places])
        found.update(zip(places, sums, strict=True))
    return [found.get(place) for place in range(len(gradients))]


def by_rows(reduce: Callable[[list[Any]], Sequence[Any]], gradients: Sequence[Any]) -> list[Any]:
    """Gradients over all replicas, of which those of rows that all replicas have are summed row by row.

    Such rows are embeddings of positions. On one device each is there once. TensorFlow would put those of all replicas
    one behind the other, and Keras' optimizers square what is there several times before they sum it.

    Args:
        reduce: gradients -> the same over all replicas.
    """
    alike = [_has_rows_of_all(one) for one in gradients]
    sums = reduce([one.values if same else one for one, same in zip(gradients, alike, strict=True)])
    return [
        tf.IndexedSlices(sum_, one.indices, one.dense_shape) if same else sum_
        for one, same, sum_ in zip(gradients, alike, sums, strict=True)
    ]


def _has_rows_of_all(gradient: Any) -> bool:
    if not isinstance(gradient, tf.IndexedSlices) or isinstance(gradient.indices, tf.__internal__.EagerTensor):
        return False
    return next(parts_of_replica(gradient.indices), None) is None


def sum_gradients_by(optimizer: Any, reduce: Callable[[Any], Any]) -> None:
    """Replaces how an optimizer of Keras 3 sums its gradients over the replicas.

    Args:
        reduce: (gradient, variable) pairs -> the same with sums.
    """
    _replace(optimizer, _SUM, lambda _: reduce)


def sums_otherwise(optimizer: Any) -> bool:
    """Whether `sum_gradients_by` has replaced how it sums."""
    return _SUM in vars(optimizer)


def replace_update(optimizer: Any, wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Replaces what an optimizer of Keras 3 does with unscaled gradients.

    Args:
        wrap: the function of (gradients, weights) that does it -> the one in its place.
    """
    _replace(optimizer, "_backend_apply_gradients", wrap)


def replace_overwriting(optimizer: Any, wrap: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Replaces how an optimizer of Keras 3 overwrites weights with their moving average.

    Args:
        wrap: the function of weights that does it -> the one in its place.
    """
    _replace(optimizer, _OVERWRITE, wrap)


def accumulated(optimizer: Any, weights: Sequence[Any]) -> list[Any]:
    """The variables in which an optimizer of Keras 3 accumulates the gradients of these weights."""
    sums = private(optimizer, "_accumulated_gradients", library="keras")
    place = private(optimizer, "_get_variable_index", library="keras")
    return [sums[place(weight)] for weight in weights]


def update_by_means(optimizer: Any, means: Sequence[Any], weights: Sequence[Any]) -> None:
    """The update that Keras 3 makes of the means of accumulated gradients, which begin at zero after it."""
    clipped = private(optimizer, "_clip_gradients", library="keras")(means)
    private(optimizer, "_apply_weight_decay", library="keras")(weights)
    private(optimizer, "_backend_update_step", library="keras")(clipped, weights, optimizer.learning_rate)
    private(optimizer, "_backend_reset_gradient_accumulators", library="keras")()


def average(optimizer: Any) -> None:
    """Lets the moving average of the weights take them in."""
    private(optimizer, "_update_model_variables_moving_average", library="keras")(weights_of(optimizer))


def averages_of(optimizer: Any) -> Sequence[Any]:
    """The moving averages of an optimizer's weights."""
    averages: Sequence[Any] = private(optimizer, "_model_variables_moving_average", library="keras")
    return averages


def overwrite(optimizer: Any) -> None:
    """Overwrites an optimizer's weights with their moving average."""
    private(optimizer, _OVERWRITE, library="keras")(weights_of(optimizer))


def _library(optimizer: Any) -> str:
    return "keras" if isinstance(optimizer, keras.optimizers.Optimizer) else "tf_keras"


def _replace(optimizer: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    _check_replaced(name)
    setattr(optimizer, name, wrap(private(optimizer, name, library="keras")))


@cache
def _check_replaced(name: str) -> None:
    """What is replaced has an effect only if Keras calls it where it did."""
    caller = private(keras.optimizers.Optimizer, _CALLED_BY[name], library="keras")
    require(mentions(caller, name), f"Optimizer.{_CALLED_BY[name]} does not call {name}", library="keras")
