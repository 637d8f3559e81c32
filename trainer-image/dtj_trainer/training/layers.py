"""What the layers of a model of Keras 3 need where several replicas of a process share them. Imports TensorFlow."""

import threading
from collections import UserList
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import values_here
from dtj_trainer.distribution.agreement import of_any_task
from dtj_trainer.distribution.gathering import described
from dtj_trainer.errors import Undivided, UsageError, accept
from dtj_trainer.training.layers_by_parts import Seen, aggregated, look
from dtj_trainer.training.layers_of_all import OfStep, calling, compute_of_all
from dtj_trainer.training.loss_division import Parts


def separate_losses(model: Any) -> None:
    """Lets each replica of a process have its own list of the losses that layers add.

    The replicas are threads, which take turns in the midst of a model wherever they meet, as in a synchronized
    BatchNormalization; with one list, one clears or counts what the other has added.
    """
    for layer in (model, *keras3.sublayers(model, recursive=True)):
        keras3.separate_losses(layer, _List(), _Set())


class _List(threading.local, UserList[Any]):
    def __getitem__(self, place: Any) -> Any:
        return self.data[place]


class _Set(_List):
    add = _List.append


def batch_normalizations(model: Any) -> list[Any]:
    """All of a model, in whatever layers they are."""
    return [
        layer for layer in keras3.sublayers(model, recursive=True) if isinstance(layer, keras.layers.BatchNormalization)
    ]


def check_shared(
    model: Any,
    inputs: Any,
    *,
    what: str,
    otherwise: str,
    trains: bool = True,
    exchanging: bool = True,
    evaluates_alone: bool = False,
    losses_count: bool = True,
    unchecked: Sequence[str],
) -> Seen:
    """Makes sure that several replicas can share a model.

    Args:
        inputs: real examples, some tens of them.
        what: is trained, which the line begins with.
        otherwise: the last remedy.
        trains: whether the model is called to train.
        exchanging: whether replicas can give each other their examples.
        evaluates_alone: whether each replica evaluates batches of its own.
        losses_count: whether what the layers add is used.
        unchecked: names of what the user accepts as it is.

    Raises:
        Undivided: they cannot.
        Exception: what the model raises for these examples.
    """
    changed = changed_by_data(model, inputs, training=trains) if exchanging or trains else []
    setting = [weight for weight, by_chance in changed if exchanging and not by_chance]
    if evaluates_alone and setting:
        apart = {id(weight) for weight, _ in changed_by_data(model, inputs, training=False)}
        setting = [one for one in setting if id(one) not in apart]
    of_all = [layer for layer in keras3.sublayers(model, recursive=True) if sets(layer, setting)]
    seen = look(model, inputs, training=trains, of_all=of_all if exchanging else None, as_they_are=unchecked)
    seen = seen if losses_count else replace(seen, added=[])
    alike = {id(one) for one in setting if any(sets(layer, [one]) for layer in seen.of_all)}
    own = [weight for weight, _ in changed if trains and id(weight) not in alike]
    if problem := _not_shared(model, inputs, seen, own, what=what, otherwise=otherwise, trains=trains):
        accept(problem, unchecked)
    return seen


def check_micro_batches(model: Any, inputs: Any, *, name: str) -> None:
    """Makes sure that a model can be called with a few examples of a batch at a time, as a pipeline does.

    Args:
        inputs: real examples, some tens of them.
        name: of the model, which the line begins with.

    Raises:
        UsageError: it cannot.
        Exception: what the model raises for these examples.
    """
    seen = look(model, inputs)
    if seen.comparing:
        raise UsageError(
            f"{name}: {seen.comparing} gives for an example what depends on the other examples of the batch, of which "
            "strategy Pipeline computes a few at once; compute it over the last axes, or use strategy OneDevice"
        )
    weights = _set_by_calls(model)
    for weight, value in zip(weights, _after(model, weights, inputs), strict=True):
        if not np.array_equal(value, weight.numpy()):
            raise UsageError(
                f"{name}: {weight.path} is set by each call of the model, and strategy Pipeline calls it for each "
                "micro-batch; set it in a callback, or use strategy MultiWorkerMirrored"
            )
    for loss in seen.added:
        if loss.parts is not Parts.MEAN:
            raise UsageError(
                f"{name}: strategy Pipeline takes the mean of what its micro-batches give, and a loss of add_loss is "
                f"not the mean over the examples ({loss.by or 'of a weight'}); add the mean, or use strategy "
                "MultiWorkerMirrored"
            )


def share_examples(model: Any, seen: Seen, strategy: Any) -> Mapping[Any, int]:
    """Lets the layers that a task has found have the examples of all replicas, on all tasks.

    All tasks of the strategy have to call it, with the same model.

    Returns:
        These layers, with the bytes that an example has there; 0 where only another task has found it.
    """
    layers = keras3.sublayers(model, recursive=True)
    found = of_any_task(strategy, [layer in seen.of_all for layer in layers])
    shared = {layer: seen.of_all.get(layer, 0) for layer, is_so in zip(layers, found, strict=True) if is_so}
    for layer in shared:
        compute_of_all(layer)
    return shared


def sent_for(layers: Mapping[Any, int], rows: int, *, replicas: int) -> list[str]:
    """What the replicas send each other for such layers, as lines say it.

    Args:
        layers: of `share_examples`.
        rows: examples in a batch of all replicas.

    Raises:
        UsageError: it is too much.
    """
    return [
        described(f"layer {layer.name} ({type(layer).__name__})", size * rows, replicas=replicas, of="its inputs")
        for layer, size in layers.items()
    ]


def sets(layer: Any, weights: Sequence[Any]) -> bool:
    """Whether one of these weights is a layer's own."""
    if not weights:
        return False
    of_layers = {id(one) for inner in keras3.sublayers(layer, recursive=True) for one in inner.weights}
    own = {id(one) for one in layer.weights} - of_layers
    return any(id(one) in own for one in weights)


def _not_shared(
    model: Any, inputs: Any, seen: Seen, changed: Sequence[Any], *, what: str, otherwise: str, trains: bool
) -> Undivided | None:
    """What several replicas cannot share, as a line says it, with a remedy; None if nothing.

    Args:
        inputs: real examples, some tens of them.
        seen: of these.
        changed: weights that each replica would set to something of its own.
        what: is trained, which the line begins with.
        otherwise: the last remedy.
        trains: whether the model is called to train.

    Raises:
        Exception: what the model raises for these examples.
    """

    def found(name: str, problem: str) -> Undivided:
        return Undivided(name, f"{what}: {problem}, or {otherwise}")

    own = "and each replica would have its own; "
    if changed:
        paths = [getattr(one, "path", one.name) for one in changed]
        return found(
            paths[0],
            f"{', '.join(paths)} depends on the examples that the model is called with, or on chance, {own}give "
            "add_weight an aggregation, such as 'mean'",
        )
    if trains and (unsaved := unsaved_state(model, inputs)):
        return found(
            unsaved[0],
            f"{unsaved[0]} is a tf.Variable that the model sets when it is called, {own}make it with add_weight and an "
            "aggregation, such as 'mean'",
        )
    if seen.comparing:
        return found(
            _name_in(seen.comparing),
            f"{seen.comparing} gives for an example what depends on the other examples of the batch, of which each "
            "replica has only its own; compute it over the last axes, or with BatchNormalization",
        )
    for loss in seen.added:
        if loss.parts is Parts.NONE:
            return found(
                _name_in(loss.by) if loss.by else "add_loss",
                f"a loss of add_loss is neither the mean over the examples nor their sum ({loss.by or 'of a weight'}), "
                "and nothing says how replicas divide it; add the mean over the examples, or compute it in the loss "
                "that is compiled",
            )
    return None


def _name_in(layer: str) -> str:
    """Of a layer as a user knows it: `layer dense_1 (Dense)`."""
    return layer.split()[1]


def changed_by_data(model: Any, inputs: Any, *, training: bool) -> list[tuple[Any, bool]]:
    """The weights that a forward pass sets to something that depends on the examples, or on chance; and if on chance.

    Left out are those of BatchNormalization, and those that say how the replicas' values are to be aggregated.

    Args:
        training: how the model is called.
    """
    found = [weight for weight in _set_by_calls(model) if not aggregated(weight)]
    if not found:
        return []
    other = tf.nest.map_structure(tf.zeros_like, inputs)
    passes = ((inputs, 0), (other, 0), (inputs, 1))
    one, *others = (_after(model, found, given, seed, training=training) for given, seed in passes)
    return [
        (weight, not np.array_equal(value, by_seed))
        for weight, value, by_examples, by_seed in zip(found, one, *others, strict=True)
        if not (np.array_equal(value, by_examples) and np.array_equal(value, by_seed))
    ]


def _set_by_calls(model: Any) -> list[Any]:
    """The weights that a call may set, but for those of BatchNormalization and the seeds of generators."""
    known = {id(weight) for layer in batch_normalizations(model) for weight in layer.weights}
    return [one for one in model.non_trainable_weights if id(one) not in known and not keras3.is_seed(one)]


def unsaved_state(model: Any, inputs: Any) -> list[str]:
    """The `tf.Variable`s in layers that a forward pass in training changes; Keras saves none of them."""
    found = {
        f"{layer.name}.{name}": value
        for layer in (model, *keras3.sublayers(model, recursive=True))
        for name, value in vars(layer).items()
        if isinstance(value, tf.Variable)
    }
    if not found:
        return []
    before = {name: variable.numpy() for name, variable in found.items()}
    _after(model, [], inputs)
    changed = [name for name, variable in found.items() if not np.array_equal(variable.numpy(), before[name])]
    for name in changed:
        found[name].assign(before[name])
    return changed


def added_times(model: Any, losses: Sequence[Any], parts: Sequence[Parts], *, mean: Any, sum_: Any) -> list[Any]:
    """Losses that layers add for a replica's examples, each times what a mean or a sum is to be multiplied by.

    Args:
        losses: of the whole model, or of one that is a part of it.
        parts: what each of `model.losses` is. A weight's penalty, which is made anew each time, counts as a mean.
    """
    added = model.losses
    sums = [loss for loss, one in zip(added, parts, strict=False) if one is Parts.SUM]

    def times(loss: Any) -> Any:
        factor = sum_ if any(loss is one for one in sums) else mean
        number = loss if loss.dtype.is_floating else tf.cast(loss, tf.float32)
        return number * tf.cast(factor, number.dtype)

    return [times(loss) for loss in losses]


def adds_losses(model: Any, inputs: Any) -> bool:
    """Whether a forward pass in training adds losses, or weights have penalties."""
    added: list[Any] = []
    _after(model, [], inputs, then=lambda: added.extend(model.losses))
    return bool(added)


def _after(
    model: Any,
    weights: list[Any],
    inputs: Any,
    seed: int = 0,
    *,
    training: bool = True,
    then: Callable[[], object] = lambda: None,
) -> list[Any]:
    """The values of these weights after a forward pass, which changes nothing.

    Args:
        seed: what the seeds of the model's generators are moved by.
        training: how the model is called.
        then: called after the pass.
    """
    arguments = keras3.call_arguments(model, training=training)
    values = values_here(model.variables)
    mapping = [(one, value + tf.cast(seed, value.dtype) if keras3.is_seed(one) else value) for one, value in values]
    with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
        model(inputs, **arguments)
        then()
        return [np.asarray(scope.get_current_value(weight)) for weight in weights]


class _Replica(threading.local):
    """Of the thread that traces a replica's step."""

    present: Any = None
    """0 where its examples do not count, else 1; None where all do."""
    graph: Any = None
    """That of the step, in which the replicas meet; None outside of a step."""


_replica = _Replica()


@contextmanager
def counting(present: Any) -> Iterator[None]:
    """In a replica's step: whether its examples count in what is synchronized, and in layers of the examples of all.

    Args:
        present: 0 or 1; None if they do.
    """
    before = _replica.present, _replica.graph
    _replica.present, _replica.graph = present, tf.compat.v1.get_default_graph()
    try:
        with calling(OfStep(present)):
            yield
    finally:
        _replica.present, _replica.graph = before


def replicas_meet() -> bool:
    """Whether replicas can exchange numbers here: in the graph of their step, or eagerly."""
    return tf.executing_eagerly() or _replica.graph in (None, tf.compat.v1.get_default_graph())


def synchronize_batch_normalization(model: Any) -> int:
    """Lets every BatchNormalization of a model take its statistics over all replicas; returns how many there are."""
    found = batch_normalizations(model)
    for layer in found:
        layer.synchronized = True
        keras3.replace_moments(layer, partial(_exact_moments, layer.name))
    return len(found)


def _exact_moments(name: str, inputs: Any, axes: Any, mask: Any) -> tuple[Any, Any]:
    """Mean and variance over all replicas, in two passes.

    Keras computes the variance as the mean of squares less the square of the mean, which has no digit left where the
    mean is large; and it does not synchronize what a mask selects.

    Args:
        name: of the layer.

    Raises:
        UsageError: the replicas do not meet there.
    """
    if not replicas_meet():
        raise UsageError(
            f"BatchNormalization {name} is called in a loop or a condition of TensorFlow, or in a function that XLA "
            "compiles, where replicas cannot exchange their statistics; give a recurrent layer unroll=True, "
            "TimeDistributed inputs with a fixed number of time steps, call it outside of that, or train on one device"
        )
    small = keras.config.epsilon() if mask is not None else 0.0
    mean, variance = _moments(inputs, axes, mask, small=small)
    return tf.reshape(mean, [-1]), tf.reshape(variance, [-1])


def _moments(inputs: Any, axes: Any, mask: Any, *, small: float) -> tuple[Any, Any]:
    axes = list(axes)
    counts = tf.ones_like(inputs)
    if mask is not None:
        counts *= tf.cast(mask, inputs.dtype)[..., tf.newaxis]
    if _replica.present is not None:
        counts *= tf.cast(_replica.present, inputs.dtype)
    total = tf.reduce_sum(tf.where(counts > 0, inputs, 0), axes, keepdims=True)
    total, count = tf.unstack(_summed(tf.stack([total, tf.reduce_sum(counts, axes, keepdims=True)])))
    mean = tf.math.divide_no_nan(total, count + small)
    squares = tf.where(counts > 0, tf.math.squared_difference(inputs, mean), 0)
    return mean, tf.math.divide_no_nan(_summed(tf.reduce_sum(squares, axes, keepdims=True)), count + small)


def _summed(value: Any) -> Any:
    """Over all replicas."""
    context = tf.distribute.get_replica_context()
    return value if context is None else context.all_reduce(tf.distribute.ReduceOp.SUM, value)
