"""One update of the weights: on every strategy what the optimizer would do on one device with the whole batch.

Keras 3 clips, accumulates and looks for overflow in the gradients of each replica, and sums them after that. Here they
are summed first, so all that follows sees the gradients of the global batch, the same on all
replicas. Two more of Keras' steps cannot be taken by a replica at all, since they branch around an update: gradient
accumulation, and overwriting the weights with their moving average. They are taken across replicas. Imports TensorFlow.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import optimizers as compat
from dtj_trainer.training import weight_average


def inner(optimizer: Any) -> Any:
    """The optimizer that a LossScaleOptimizer wraps, or the optimizer itself; of either Keras."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def scales(optimizer: Any) -> bool:
    """Whether it is a LossScaleOptimizer."""
    return inner(optimizer) is not optimizer


_steps_of_whole_batch = 0
"""How many such steps are under way in the process: a LossScaleOptimizer updates in threads of its own."""


@contextmanager
def gradients_of_whole_batch() -> Iterator[None]:
    """Around steps whose gradients are summed when they are taken, as those of `fit`: no optimizer sums again."""
    global _steps_of_whole_batch
    _steps_of_whole_batch += 1
    try:
        yield
    finally:
        _steps_of_whole_batch -= 1


def are_of_whole_batch() -> bool:
    """Whether such a step is under way."""
    return _steps_of_whole_batch > 0


def sum_first(optimizer: Any) -> None:
    """Lets an optimizer sum the gradients over the replicas before it does anything else with them.

    Args:
        optimizer: of Keras 3, built.

    Raises:
        UsageError: this Keras does it in another place.
    """
    one = inner(optimizer)
    apply = optimizer.apply

    def apply_sums(grads: Sequence[Any], trainable_variables: Any = None) -> None:
        weights = list(compat.weights_of(optimizer) if trainable_variables is None else trainable_variables)
        gradients = [gradient for gradient, _ in zip(grads, weights, strict=True)]
        sums = tf.distribute.get_replica_context() is not None and not are_of_whole_batch()
        apply(compat.reduced("SUM", gradients) if sums else gradients, weights)

    optimizer.apply = apply_sums
    compat.sum_gradients_by(one, list)
    if one.gradient_accumulation_steps:
        compat.replace_update(one, lambda _: _accumulating(one))
    if one.use_ema:
        compat.replace_overwriting(one, lambda overwrite: weight_average.overwriting(one, overwrite))


def fails_in_replica(optimizer: Any) -> bool:
    """Whether an optimizer of Keras 3 accumulates gradients in a branch that no replica can take, until `sum_first`."""
    one = inner(optimizer)
    return bool(getattr(one, "gradient_accumulation_steps", None)) and not compat.sums_otherwise(one)


def needs_sum_first(optimizer: Any) -> bool:
    """Whether an optimizer clips or accumulates the gradients of each replica until `sum_first`."""
    settings = ("clipnorm", "global_clipnorm", "clipvalue", "gradient_accumulation_steps")
    is_of_keras_3 = isinstance(optimizer, keras.optimizers.Optimizer)
    return is_of_keras_3 and any(getattr(inner(optimizer), name, None) for name in settings)


def _accumulating(optimizer: Any) -> Callable[[Any, Any], None]:
    """Keras' update with `gradient_accumulation_steps`: the branch is taken across the replicas."""
    steps = optimizer.gradient_accumulation_steps

    def apply_across(grads: Sequence[Any], weights: Sequence[Any]) -> None:
        sums = compat.accumulated(optimizer, weights)

        def update(grads: Sequence[Any]) -> None:
            means = [(gradient + sum_) / steps for gradient, sum_ in zip(grads, sums, strict=True)]
            compat.update_by_means(optimizer, means, weights)

        def add(grads: Sequence[Any]) -> None:
            for gradient, sum_ in zip(grads, sums, strict=True):
                sum_.assign(sum_ + gradient)

        def across(strategy: Any, grads: Sequence[Any]) -> None:
            def each(function: Callable[[Any], None]) -> Callable[[], Any]:
                def call() -> Any:
                    strategy.extended.call_for_each_replica(function, args=(grads,))
                    return tf.constant(0)

                return call

            tf.cond(tf.equal((compat.count_of(optimizer).value + 1) % steps, 0), each(update), each(add))

        tf.distribute.get_replica_context().merge_call(across, args=(list(grads),))
        if optimizer.use_ema:
            weight_average.follow(optimizer)

    return apply_across
