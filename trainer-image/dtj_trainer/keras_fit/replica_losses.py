"""The losses and gradients of one replica's step, so that their sum over the replicas is that of the whole batch.

A replica computes its losses as one device would that has its examples alone. A gradient of weights is linear: each
replica's counts by its share of the whole batch, and then all are summed. What has another divisor than the number of
examples, such as a mask, a sum of weights, or none in a loss that is a sum, is corrected in the loss itself.
`override` puts these functions in the place of those of Keras. Imports TensorFlow.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import incompatible, mentions, private
from dtj_trainer.compat.keras3 import as_on_one_replica, mask_of
from dtj_trainer.compat.optimizers import reduced
from dtj_trainer.errors import UsageError
from dtj_trainer.training.layers import counting
from dtj_trainer.training.loss_division import Parts, loss_of_parts
from dtj_trainer.training.weight_update import are_of_whole_batch

try:
    from keras.src import tree
    from keras.src.losses.losses import LossFunctionWrapper
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_MEANS = ("sum_over_batch_size", "mean")
_WHOLE = "_dtj_whole"
"""Attribute of a gradient that is the same on all replicas."""
_CHANCE = ("Random", "TruncatedNormal", "Multinomial", "RngReadAndSkip")
"""Words in the names of operations that draw numbers."""
_CALLED = ("f", "then_branch", "else_branch")
"""Attributes of operations that name what they call."""


class OfReplica(threading.local):
    """What holds for the replica whose step this thread traces."""

    share: Any = None
    """Its part of the examples of the whole batch; None outside of a step."""
    present: Any = None
    """0 where its example only stands in for none, else 1; None where this cannot be."""
    differentiates = False
    """Whether a gradient of weights is computed, which may compute others."""
    by_batch = False
    """Whether a loss is noted once a batch, whatever number of examples it has."""
    once_a_batch: Sequence[Any] = ()
    """Metrics that note a loss so, to which each replica of the step gives its part."""
    within = 0
    """How many losses are computed for another one, which counts them."""
    parts: Parts | None = None
    """How the loss that is computed divides."""
    loss_name = ""
    """Of the loss that is computed."""
    model: Any = None
    """Whose step it is, where it is the user's own."""
    divides: bool = False
    """Whether the step makes each loss the replica's part by itself, such that its gradients are only summed."""
    noted: list[Any] | None = None
    """Takes the losses of a step that is only looked at."""


here = OfReplica()


def several(strategy: Any) -> bool:
    """Whether a strategy has several replicas that the override is for."""
    return has_scope(strategy) and strategy.num_replicas_in_sync > 1


def has_scope(strategy: Any) -> bool:
    """Whether a strategy trains, on any number of replicas, what is made in its scope."""
    kinds = tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy | tf.distribute.OneDeviceStrategy
    return isinstance(strategy, kinds)


@contextmanager
def noting(share: Any) -> Iterator[list[Any]]:
    """Around a train step that is traced to look at its losses: no gradient is taken, and no weight is updated.

    Args:
        share: of the examples that this part of a batch has.
    """
    here.noted, here.share = [], share
    try:
        yield here.noted
    finally:
        here.noted = here.share = None


@contextmanager
def own_step(model: Any, *, divides: bool) -> Iterator[None]:
    """In a replica's step that is the user's own."""
    here.model, here.divides = model, divides
    try:
        yield
    finally:
        here.model, here.divides = None, False


@contextmanager
def share_of(count: Any) -> Iterator[None]:
    """In a replica's step: which part of the whole batch it has.

    Args:
        count: how many of its examples are its own, 0 if there is one that only stands in for none. None: all replicas
            are known to have as many examples.
    """
    context = tf.distribute.get_replica_context()
    before = here.share, here.present
    if count is None:
        here.share, here.present = tf.constant(1.0 / context.num_replicas_in_sync), None
    else:
        examples = tf.cast(count, tf.float32)
        here.share = tf.math.divide_no_nan(examples, context.all_reduce("SUM", examples))
        here.present = tf.cast(count > 0, tf.float32)
    try:
        with counting(here.present):
            yield
    finally:
        here.share, here.present = before


def counted_here(value: Any) -> Any:
    """A value that is summed over the replicas; 0 where this one's example only stands in."""
    return value if here.present is None else value * tf.cast(here.present, value.dtype)


_DIVIDING = ("num_replicas_in_sync", "compute_average_loss")
"""Names by which a train step says that it divides its means by the number of replicas itself."""
_parts: dict[int, tuple[Any, Parts | None]] = {}
"""By its identity, each loss that a step of several replicas has computed, and how it divides."""


def compute_loss(original: Any, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    """A loss of a replica's examples; as on one device if another loss is computed of it, which is divided."""
    if here.share is None:
        return original(loss, y_true, y_pred, sample_weight)
    here.within += 1
    try:
        if here.noted is not None:
            # Known to divide, and so as good as any mean over the examples.
            return tf.reduce_mean(tf.square(tf.cast(tree.flatten(y_pred)[0], loss.dtype)))
        if here.within == 1:
            _find_parts(loss, y_true, y_pred, weighted=sample_weight is not None or mask_of(y_pred) is not None)
        return original(loss, y_true, y_pred, sample_weight)
    finally:
        here.within -= 1


def _find_parts(loss: Any, y_true: Any, y_pred: Any, *, weighted: bool) -> None:
    if id(loss) not in _parts:
        call = lambda labels, outputs: loss.call(_cast(labels, loss), _cast(outputs, loss))  # noqa: E731 - one line
        _parts[id(loss)] = loss, loss_of_parts(call, y_true, y_pred)
    _, here.parts = _parts[id(loss)]
    function = getattr(loss, "fn", loss) if type(loss) is LossFunctionWrapper else loss
    here.loss_name = getattr(function, "__name__", type(function).__name__)
    if here.parts in (Parts.MEAN, Parts.SUM) and weighted:
        raise _undivided("gives one number for a batch, which weights or masks of the examples cannot divide")


def reduce_weighted_values(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Divides what a loss gives, unless another loss is computed of it."""
    if here.within != 1:
        return original(*args, **kwargs)
    here.within = 0
    try:
        return original(*args, **kwargs)
    finally:
        here.within = 1


def divided(compute: Callable[..., Any], model: Any, *, mean: bool) -> Callable[..., Any]:
    """A `compute_loss` of the user's: computed as on one device of a replica's examples."""

    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        share = here.share
        if share is None:
            return compute(model, *args, **kwargs)
        here.share = None
        try:
            with as_on_one_replica():
                loss = compute(model, *args, **kwargs)
        finally:
            here.share = share
        return _counted(loss, mean=mean)

    return compute_loss


def is_own(step: Any) -> bool:
    """Whether a step is the user's own."""
    return not getattr(step, "__module__", "").startswith("keras.")


def divides_itself(model: Any, step: Any) -> bool:
    """Whether a step of the user's own divides its means by the number of replicas itself.

    Looks into the functions that the step calls by name, and the methods of the model.
    """
    waiting, seen = [step], set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        code = getattr(function, "__code__", None)
        if code is None or function in seen or (function.__module__ or "").startswith(("keras.", "tensorflow.")):
            continue
        seen.add(function)
        if any(mentions(function, name) for name in _DIVIDING):
            return True
        cells = [_content(cell) for cell in function.__closure__ or ()]
        known = {**function.__globals__, **{name: getattr(type(model), name, None) for name in dir(type(model))}}
        waiting += [one for one in (*cells, *(known.get(name) for name in code.co_names)) if inspect.isfunction(one)]
    return False


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


@tf.autograph.experimental.do_not_convert
def gradient(original: Any, tape: Any, target: Any, sources: Any, output_gradients: Any = None, **kwargs: Any) -> Any:
    """Gradients of weights in a step: those of the whole batch, which the step may change as on one device."""
    weights = all(isinstance(one, tf.Variable | keras.Variable) for one in tree.flatten(sources))
    if here.share is None or here.differentiates or not weights:
        return original(tape, target, sources, output_gradients, **kwargs)
    targets = tree.flatten(target)
    if here.noted is not None:
        here.noted += [one for one in targets if one.shape.rank == 0]
        return tree.map_structure(lambda one: tf.zeros(one.shape, one.dtype), sources)
    given = [None] * len(targets) if output_gradients is None else tree.flatten(output_gradients)
    given = [tf.ones_like(to) if one is None else one for one, to in zip(given, targets, strict=True)]
    if not here.divides:
        # A loss for each example is summed, and so is the replica's part already.
        given = [_part(one) if to.shape.rank == 0 else one for one, to in zip(given, targets, strict=True)]
    given = [counted_here(one) for one in given]
    here.differentiates = True
    try:
        return _reduced("SUM", original(tape, targets, sources, given, **kwargs))
    finally:
        here.differentiates = False


def _reduced(how: str, gradients: Any) -> Any:
    """Over all replicas, and noted as such."""
    found = reduced(how, tf.nest.flatten(gradients))
    for one in _tensors(found):
        setattr(one, _WHOLE, True)
    return tf.nest.pack_sequence_as(gradients, found)


def _tensors(gradients: Any) -> list[Any]:
    return [one for one in tf.nest.flatten(gradients, expand_composites=True) if one is not None]


def apply(original: Any, optimizer: Any, grads: Any, trainable_variables: Any = None) -> Any:
    """Updates the weights by gradients that are the same on all replicas, unless the step is only looked at.

    Raises:
        UsageError: each replica would have gradients of its own.
    """
    if here.noted is not None:
        return None
    grads = list(grads)
    changed = [one for one in _tensors(grads) if not hasattr(one, _WHOLE)] if here.share is not None else []
    if changed and tf.executing_eagerly():
        grads = _reduced("MEAN", grads)
    elif parts := [part for one in changed for part in _parts_of_replica(one)]:
        raise UsageError(
            f"fit with {tf.distribute.get_strategy().num_replicas_in_sync} replicas: {type(here.model).__name__}"
            f".train_step gives the optimizer {type(optimizer).__name__} what is not made of tape.gradient, weights "
            f"and constants alone ({parts[0].op.type}), and each replica would have its own; leave out what depends on "
            "examples or chance, or train on one device"
        )
    return original(optimizer, grads, trainable_variables)


def _parts_of_replica(tensor: Any) -> Iterator[Any]:
    """What a tensor of a graph is made of that each replica has of its own: examples, and numbers drawn by chance.

    What is made of constants, variables and whole tensors alone is the same on each replica. Looks into the functions
    that are called, and the branches of `tf.cond`; of loops it knows what they are given.
    """
    waiting, seen = [tensor], set()
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen or hasattr(tensor, _WHOLE):
            continue
        seen.add(id(tensor))
        if isinstance(tensor, tf.__internal__.EagerTensor):
            if tensor.dtype in (tf.resource, tf.variant):
                yield tensor
            continue
        operation = tensor.op
        captures = getattr(tensor.graph, "captures", ()) if operation.type == "Placeholder" else ()
        if outers := [outer for outer, one in captures if one is tensor]:
            waiting += outers
        elif called := _called(operation):
            waiting += operation.inputs[:1] if "If" in operation.type else ()
            for graph in called:
                given = operation.inputs[len(operation.inputs) - len(graph.inputs) :]
                outer = {id(one): value for one, value in zip(graph.inputs, given, strict=True)}
                for part in _parts_of_replica(graph.outputs[tensor.value_index]):
                    if id(part) in outer:
                        waiting.append(outer[id(part)])
                    else:
                        yield part
        elif operation.type in ("Const", "ReadVariableOp"):
            continue
        elif not operation.inputs or any(word in operation.type for word in _CHANCE):
            yield tensor
        else:
            waiting += operation.inputs


def _called(operation: Any) -> list[Any]:
    """The graphs that an operation calls and whose outputs it has."""
    names = [operation.get_attr(one).name for one in _CALLED if one in operation.node_def.attr]
    return [private(operation.graph, "_get_function", library="tensorflow")(name).graph for name in names]


def _cast(values: Any, loss: Any) -> Any:
    return tree.map_structure(lambda one: tf.cast(one, loss.dtype), values)


def _undivided(how: str) -> UsageError:
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return UsageError(
        f"fit and evaluate with {replicas} replicas: the loss {here.loss_name} {how}, so nothing says how replicas "
        "divide it; return one value for each example, such as Dice(axis=(1, 2, 3)), or train on one device"
    )


def _part(value: Any) -> Any:
    """What a replica's mean adds to the mean over the whole batch."""
    return value * tf.cast(here.share, value.dtype)


def _counted(value: Any, *, mean: bool = True) -> Any:
    """A mean over the replica's examples, or a sum, as the step takes it: as a mean, unless it divides by itself."""
    if mean:
        return _part(value) if here.divides else value
    return counted_here(value) if here.divides else tf.math.divide_no_nan(value, tf.cast(here.share, value.dtype))


def scale_loss_for_distribution(original: Any, value: Any) -> Any:
    """Of a mean over the replica's examples, what the step takes."""
    if here.within:
        return value
    return original(value) if here.share is None else _counted(value)


def unscale_loss_for_distribution(original: Any, value: Any) -> Any:
    """The mean over the replica's examples again; 0 for a replica without examples."""
    if here.share is None:
        return original(value)
    if here.by_batch:
        return original(value if here.divides else _part(value))
    return tf.math.divide_no_nan(value, tf.cast(here.share, value.dtype)) if here.divides else value


def weigh_outputs(original: Any, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    """The losses of several outputs: Keras weights each by the number of examples, where that is static."""
    for _, one, *_ in (private(loss, "_flat_losses", library="keras") or ()) if here.share is not None else ():
        if isinstance(one, keras.losses.Loss) and type(one).__call__ is not keras.losses.Loss.__call__:
            here.loss_name = type(one).__name__
            raise _undivided("has a __call__ of its own instead of call(y_true, y_pred)")
    here.by_batch = tree.flatten(y_pred)[0].shape[0] is None
    here.once_a_batch = loss.metrics if here.by_batch else ()
    try:
        return original(loss, y_true, y_pred, sample_weight)
    finally:
        here.by_batch = False


def apply_mask(original: Any, sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
    """Weights by which the mean over a replica's examples is one over the entries of all replicas that are valid."""
    weights = original(sample_weight, mask, dtype, reduction)
    if mask is None or here.share is None or here.within or reduction not in _MEANS:
        return weights
    valid = tf.reduce_sum(tf.cast(mask, weights.dtype))
    return weights * _of_whole(valid)


def reduce_values(original: Any, values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size") -> Any:
    """A replica's part of the mean; where weights are the divisor, those of all replicas."""
    if here.share is None or here.within:
        return original(values, sample_weight, reduction)
    # Keras leaves a batch that is known to be empty as it is.
    empty = reduction not in (None, "none") and tuple(values.shape) == (0,)
    loss = tf.reduce_sum(values) if empty else original(values, sample_weight, reduction)
    if here.parts is Parts.NONE:
        raise _undivided("is neither the mean nor the sum of what the examples give each by itself")
    if not values.shape.rank:
        if here.parts is None:
            raise _undivided("gives one number for a batch, of which nothing says how the examples make it up")
        return _counted(loss, mean=here.parts is Parts.MEAN)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        loss *= _of_whole(tf.cast(tf.reduce_sum(sample_weight), loss.dtype))
    return _counted(loss, mean=False) if reduction == "sum" else loss


def _of_whole(divisor: Any) -> Any:
    """The factor that turns a mean by this replica's divisor, scaled by its share, into one by that of all replicas."""
    divisor = counted_here(divisor)
    whole = tf.distribute.get_replica_context().all_reduce("SUM", tf.stop_gradient(divisor))
    return tf.math.divide_no_nan(divisor, whole * tf.cast(here.share, divisor.dtype))


def _all_reduce_sum_gradients(original: Any, optimizer: Any, pairs: list[Any]) -> list[Any]:
    """In `fit`, the gradients are those of the whole batch already."""
    return pairs if are_of_whole_batch() else original(optimizer, pairs)


def check_finite(original: Any, optimizer: Any, gradients: list[Any]) -> Any:
    """Whether the gradients of all replicas are finite: each alone could decide otherwise, and wait for the others."""
    finite = original(optimizer, gradients)
    context = tf.distribute.get_replica_context()
    if context is None or not several(context.strategy):
        return finite
    return tf.equal(context.all_reduce("SUM", 1.0 - tf.cast(finite, tf.float32)), 0.0)
