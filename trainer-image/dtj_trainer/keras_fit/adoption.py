"""What several replicas need of a model's state before its first step. Imports TensorFlow and Keras.

Keras 3 takes an optimizer, metrics and layers that were made anywhere. What is made outside the scope is a variable of
each worker's own: nothing sums a loss over the workers, and callbacks that read it part them. So it is made anew there.

On one device Keras builds nothing before the first step: a model without a `call` of its own, as the one around the two
networks of a GAN, is never called, and an optimizer that it holds is built by its first update. Under several replicas
Keras calls each model first, and variables that are made within a step have no value: `build` makes them.
"""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import keras3, private
from dtj_trainer.compat.keras3 import given_metrics, metrics_of, sublayers
from dtj_trainer.compat.optimizers import made_under
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.replica_losses import has_scope, here, several
from dtj_trainer.training.weight_update import fails_in_replica, sum_first

_COMPILED = ("_compile_loss", "_compile_metrics")
"""Attributes of a model."""
_SUMMED = ("sum", "mean")
"""How variables are read that each replica sets by its own examples."""


def adopt(strategy: Any, owners: Iterable[Any]) -> None:
    """Makes each variable of Keras 3 that these own anew in the scope, with the leader's value, unless it is there.

    Args:
        owners: models, layers, metrics and optimizers; anything else is left as it is. The same on all workers.

    Raises:
        UsageError: one of them has a tf.Variable of another scope, which cannot be made anew.
    """
    for owner in owners:
        if several(strategy):
            _refuse_others(strategy, owner)
        take(strategy, owner)
        for variable in getattr(owner, "variables", ()):
            value = private(variable, "_value", library="keras") if isinstance(variable, keras.Variable) else None
            if value is not None and not strategy.extended.variable_created_in_scope(value):
                with tf.init_scope(), strategy.scope():
                    private(variable, "_initialize", library="keras")(value.numpy())


def take(strategy: Any, owner: Any) -> None:
    """Lets an optimizer make its variables in a scope, and update them; anything else is left as it is."""
    for optimizer in (owner, getattr(owner, "inner_optimizer", None)):
        if isinstance(optimizer, keras.optimizers.Optimizer):
            made_under(optimizer)
            optimizer._distribution_strategy = strategy


def check_made_in_scope(strategy: Any, variables: Iterable[Any], what: str) -> None:
    """Refuses variables that the replicas of a loop of the user's own do not share.

    Args:
        variables: of Keras 3, or of TensorFlow; those that have no value yet are left out.
        what: they are, for the message.

    Raises:
        UsageError: one of them was made outside the scope.
    """
    for variable in variables:
        value = private(variable, "_value", library="keras") if isinstance(variable, keras.Variable) else variable
        if value is not None and not strategy.extended.variable_created_in_scope(value):
            raise UsageError(
                f"strategy.run: {what} ({getattr(variable, 'path', variable.name)}) was made outside the scope of the "
                f"{_name(strategy)}, and each replica would have its own; make it in strategy.scope()"
            )


def check_made_apart(model: Any) -> None:
    """Refuses a model that is of no strategy, whose optimizer belongs to one: none of the two can train it.

    Raises:
        UsageError: it has such an optimizer.
    """
    optimizer = getattr(model, "optimizer", None)
    if isinstance(optimizer, keras.optimizers.Optimizer):
        strategy = made_under(optimizer)
        if has_scope(strategy) and strategy is not model.distribute_strategy:
            raise UsageError(
                f"fit: the model {model.name} was made outside the scope of the {_name(strategy)}, and its "
                "optimizer within; make the model in strategy.scope()"
            )


def assign(original: Callable[..., Any], variable: Any, value: Any) -> Any:
    """Sets a variable of Keras 3; one of a metric that a worker has of its own is refused in a step of several."""
    context = tf.distribute.get_replica_context()
    strategy = getattr(context, "strategy", None)
    of_workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy) and several(strategy)
    if of_workers and variable.aggregation in _SUMMED:
        check_made_in_scope(strategy, [variable], "a metric or a layer with state")
    count, gradients = here.counts or (None, ())
    with tf.control_dependencies(gradients) if variable is count else nullcontext():
        return original(variable, value)


def as_float(original: Callable[..., Any], variable: Any) -> float:
    """The number, as on one device, also of a variable that has a copy on each replica."""
    return float(_number(original, variable))


def as_int(original: Callable[..., Any], variable: Any) -> int:
    """See `as_float`."""
    return int(_number(original, variable))


def _number(original: Callable[..., Any], variable: Any) -> Any:
    copied = tf.executing_eagerly() and isinstance(variable.value, tf.distribute.DistributedValues)
    return tf.convert_to_tensor(variable.value).numpy() if copied else original(variable)


def check_keeps_nothing_of_batches(model: Any) -> None:
    """A stateful layer goes on with each example where that one ended which had its place in the batch before.

    Raises:
        UsageError: the model has one. Replicas have parts of a batch, and Keras would not say what is wrong.
    """
    for layer in sublayers(model, recursive=True):
        if isinstance(layer, keras.layers.RNN) and layer.stateful:
            raise UsageError(
                f"the layer {layer.name} of {type(model).__name__} is stateful: it takes whole batches, and goes on "
                "with the next where each example of the last one ended, but replicas have parts of a batch; leave out "
                "stateful=True, or train on one device"
            )


def owners_of(model: Any) -> list[Any]:
    """A model and all that it is compiled with or has as an attribute: optimizers and metrics."""
    attributes = [*vars(model).values(), *model.metrics, getattr(model, "optimizer", None)]
    if (compiled := metrics_of(model)) is not None:
        attributes += keras.tree.flatten(given_metrics(compiled))
    kinds = keras.Metric | keras.optimizers.Optimizer
    found = [one for value in attributes for one in members(value) if isinstance(one, kinds)]
    return [model, *{id(one): one for one in found}.values()]


def members(value: Any) -> Iterable[Any]:
    """What an attribute of a model holds: itself, or what is in it."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)


def _name(strategy: Any) -> str:
    several_workers = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)
    return "MultiWorkerMirroredStrategy" if several_workers else type(strategy).__name__


def _refuse_others(strategy: Any, owner: Any) -> None:
    if not isinstance(owner, keras.Metric | keras.optimizers.Optimizer):
        return
    for name, value in vars(owner).items():
        if isinstance(value, tf.Variable) and not strategy.extended.variable_created_in_scope(value):
            raise UsageError(
                f"{type(owner).__name__}.{name} is a tf.Variable that was made outside the scope of the strategy, and "
                "each worker would have its own; make it with add_variable of Keras, or in strategy.scope()"
            )


def build(model: Any, strategy: Any, examples: Any) -> None:
    """Builds a model for examples, which may be specifications. One that is not called has to be built already.

    Raises:
        UsageError: one of its layers is not built, and it has no `call`, or a `train_step` of its own that calls
            something else; or it takes sparse tensors, which Keras takes for dense ones here.
    """
    why = f"{type(model).__name__} has no call()"
    if type(model).call is not keras.Model.call:
        # What is compiled is not for data without labels: a step of the model's own does without.
        labels = keras.utils.unpack_x_y_sample_weight(examples)[1]
        hidden = dict.fromkeys(_COMPILED if labels is None else ())
        compiled = {name: private(model, name, library="keras") for name in hidden}
        vars(model).update(hidden)
        try:
            with strategy.scope():
                private(model, "_symbolic_build", library="keras")(data_batch=examples)
            return
        except Exception as error:
            _refuse_sparse(examples, error)
            # Such a step may take the data apart in its own way: three images, of which Keras takes one for inputs.
            if not keras3.overrides(model, "train_step"):
                raise
            why = f"{type(model).__name__} cannot be called with the first part of a batch"
        finally:
            vars(model).update(compiled)
    unbuilt = [layer.name for layer in sublayers(model, recursive=True) if not layer.built]
    if unbuilt:
        raise UsageError(
            f"{why}, so with several replicas its layers have to be built before fit: {unbuilt[0]} is not; give the "
            "model that it is in an Input, or call build()"
        )


def _refuse_sparse(examples: Any, error: Exception) -> None:
    given = zip(("inputs", "labels", "weights"), keras.utils.unpack_x_y_sample_weight(examples), strict=True)
    sparse = [name for name, one in given if any(isinstance(each, tf.SparseTensor) for each in keras.tree.flatten(one))]
    if sparse:
        said = " ".join(str(error).split())[:100]
        raise UsageError(
            f"the {' and '.join(sparse)} of the data are sparse tensors, for which Keras builds no model, loss or "
            f"metric under a strategy ({said}); make them dense in the data, with tf.sparse.to_dense, or use none"
        ) from None


def apply(original: Callable[..., Any], optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Builds an optimizer between the replicas before its first update within a step, and for the scope of one replica.

    One that accumulates gradients does it across the replicas from its first update on.

    Raises:
        UsageError: it was made outside the scope of the strategy, or the weights were.
    """
    context = tf.distribute.get_replica_context()
    weights = None if trainable_variables is None else list(trainable_variables)
    if context is not None and several(context.strategy):
        check_made_in_scope(context.strategy, weights or (), "a weight of the model")
        check_made_in_scope(context.strategy, optimizer.variables, f"the optimizer {type(optimizer).__name__}")
        if fails_in_replica(optimizer):  # the first replica comes here, before it waits for the others
            sum_first(optimizer)
            return optimizer.apply(grads, weights)
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
