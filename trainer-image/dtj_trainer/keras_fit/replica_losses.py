"""The losses and gradients of one replica's step, so that their sum over the replicas is that of the whole batch.

`override` puts these functions in the place of those of Keras. Imports TensorFlow.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import incompatible, mentions, private
from dtj_trainer.compat.keras3 import as_on_one_replica, mask_of
from dtj_trainer.compat.optimizers import reduced
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.sums_of_losses import UnknownSumError, is_whole, mark_whole, means_of, parts_of_replica
from dtj_trainer.training.loss_division import Parts, loss_of_parts

try:
    from keras.src import tree
    from keras.src.losses.losses import LossFunctionWrapper
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_MEANS = ("sum_over_batch_size", "mean")


class OfReplica(threading.local):
    """What holds for the replica whose step this thread traces."""

    share: Any = None
    """Its part of the examples of the whole batch; None outside of a step."""
    differentiates = False
    """Whether a gradient of weights is computed, which may compute others."""
    by_batch = False
    """Whether a loss is noted once a batch, whatever number of examples it has."""
    within = 0
    """How many losses are computed for another one, which counts them."""
    parts: Parts | None = None
    """How the loss that is computed divides."""
    loss_name = ""
    """Of the loss that is computed."""
    shares: list[Any] | None = None
    """Losses of this step that are this replica's parts; None where the step is Keras' own."""
    model: Any = None
    """Whose step it is."""
    noted: Any = None
    """Where the means of a step are noted that is only looked at."""


class Noted:
    """The means and the sums over the examples that the losses of a step are made of."""

    def __init__(self) -> None:
        self.means: list[Any] = []
        self.sums: list[Any] = []


here = OfReplica()
_training_steps = 0
"""How many steps of `fit` are under way in the process: a LossScaleOptimizer updates in threads of its own."""


def several(strategy: Any) -> bool:
    """Whether a strategy has several replicas that the override is for."""
    return has_scope(strategy) and strategy.num_replicas_in_sync > 1


def has_scope(strategy: Any) -> bool:
    """Whether a strategy trains, on any number of replicas, what is made in its scope."""
    kinds = tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy | tf.distribute.OneDeviceStrategy
    return isinstance(strategy, kinds)


@contextmanager
def step_of_fit(trains: bool) -> Iterator[None]:
    """Around the replicas' part of a step."""
    global _training_steps
    _training_steps += trains
    try:
        yield
    finally:
        _training_steps -= trains


@contextmanager
def noting(model: Any) -> Iterator[Noted]:
    """Around a train step that is traced to look at its losses: no gradient is taken, and no weight is updated."""
    noted = Noted()
    here.shares, here.model, here.noted, here.share = [], model, noted, tf.constant(1.0)
    try:
        yield noted
    finally:
        here.shares = here.model = here.noted = here.share = None


@contextmanager
def share_of(data: Any, *, equal: bool) -> Iterator[None]:
    """In a replica's step: which part of the whole batch it has.

    Args:
        equal: in a graph, whether a number of examples that is known shows that all replicas have it.
    """
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    tensor = next((one for one in tree.flatten(data) if one is not None), None)
    shape = getattr(tensor, "shape", None)
    static = equal and not tf.executing_eagerly() and shape is not None and shape.rank and shape[0] is not None
    if shape is None or shape.rank == 0 or static:
        share = tf.constant(1.0 / replicas)
    else:
        rows = tensor.nrows() if isinstance(tensor, tf.RaggedTensor) else _first_dimension(tensor)
        examples = tf.cast(rows, tf.float32)
        share = tf.math.divide_no_nan(examples, context.all_reduce("SUM", examples))
    before, here.share = here.share, share
    try:
        yield
    finally:
        here.share = before


def _first_dimension(tensor: Any) -> Any:
    return tensor.dense_shape[0] if isinstance(tensor, tf.SparseTensor) else tf.shape(tensor)[0]


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
        if here.within == 1:
            _find_parts(loss, y_true, y_pred, weighted=sample_weight is not None or mask_of(y_pred) is not None)
        value = original(loss, y_true, y_pred, sample_weight)
        return _note(value) if here.within == 1 else value
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
    """A `compute_loss` of the user's: computed as on one device of a replica's examples, then the replica's share."""

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
        return _note(loss * tf.cast(share, loss.dtype) if mean else loss)

    return compute_loss


def means_are_whole(model: Any, *, trains: bool) -> bool:
    """Whether a model's step is the user's own, and does not divide its means by the number of replicas itself.

    Looks into the functions that the step calls by name, and the methods of the model.

    Args:
        trains: whether the step is its train step, else its test step.
    """
    step = type(model).train_step if trains else type(model).test_step
    if getattr(step, "__module__", "").startswith("keras."):
        return False
    waiting, seen = [step], set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        code = getattr(function, "__code__", None)
        if code is None or function in seen or (function.__module__ or "").startswith(("keras.", "tensorflow.")):
            continue
        seen.add(function)
        if any(mentions(function, name) for name in _DIVIDING):
            return False
        cells = [_content(cell) for cell in function.__closure__ or ()]
        known = {**function.__globals__, **{name: getattr(type(model), name, None) for name in dir(type(model))}}
        waiting += [one for one in (*cells, *(known.get(name) for name in code.co_names)) if inspect.isfunction(one)]
    return True


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty yet
        return None


def is_noted(tensor: Any) -> bool:
    """Whether a tensor is a loss of this step, divided already."""
    return any(tensor is one for one in here.shares or ())


def _note(share: Any) -> Any:
    if here.shares is not None:
        here.shares.append(share)
    return share


@tf.autograph.experimental.do_not_convert
def gradient(original: Any, tape: Any, target: Any, sources: Any, output_gradients: Any = None, **kwargs: Any) -> Any:
    """Gradients of weights in a step: those of the whole batch, which the step may change as on one device."""
    weights = all(isinstance(one, tf.Variable | keras.Variable) for one in tree.flatten(sources))
    if here.share is None or here.differentiates or not weights:
        return original(tape, target, sources, output_gradients, **kwargs)
    here.differentiates = True
    try:
        parts = _gradient_of_replica(original, tape, target, sources, output_gradients, **kwargs)
    finally:
        here.differentiates = False
    return parts if here.noted is not None else _reduced("SUM", parts)


def _gradient_of_replica(
    original: Any, tape: Any, target: Any, sources: Any, output_gradients: Any = None, **kwargs: Any
) -> Any:
    """Of the means that a train step computes by itself, the replica's part."""
    shares, model, losses = here.shares, here.model, tree.flatten(target)
    scalars = all(tf.is_tensor(one) and one.shape.rank == 0 for one in losses)
    if shares is None or output_gradients is not None or not scalars or tf.executing_eagerly():
        return original(tape, target, sources, output_gradients, **kwargs)
    penalties, sums = model.losses, list[Any]()
    try:
        means = means_of(
            losses,
            divided=lambda tensor: any(tensor is one for one in shares),
            whole=lambda tensor: any(tensor is one for one in penalties),
            sums=sums,
        )
    except UnknownSumError as error:
        raise UsageError(
            f"fit with {tf.distribute.get_strategy().num_replicas_in_sync} replicas: {type(model).__name__}.train_step "
            f"takes gradients of what is no sum of means, nor of losses of Keras ({error}), so nothing says how "
            "replicas divide it; compute a mean, or train on one device"
        ) from None
    if here.noted is not None:
        here.noted.means += [mean for mean, _ in means]
        here.noted.sums += sums
        return tree.map_structure(lambda one: tf.zeros(one.shape, one.dtype), sources)
    if not means:
        return original(tape, target, sources, output_gradients, **kwargs)
    parts = [factor * (tf.cast(here.share, factor.dtype) - 1) for _, factor in means]
    targets = [*losses, *(mean for mean, _ in means)]
    return original(tape, targets, sources, [*(tf.ones([], one.dtype) for one in losses), *parts], **kwargs)


def _reduced(how: str, gradients: Any) -> Any:
    """Over all replicas, and noted as such."""
    found = reduced(how, tf.nest.flatten(gradients))
    for one in _tensors(found):
        mark_whole(one)
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
    changed = [one for one in _tensors(grads) if not is_whole(one)] if here.share is not None else []
    if changed and tf.executing_eagerly():
        grads = _reduced("MEAN", grads)
    elif parts := [part for one in changed for part in parts_of_replica(one)]:
        raise UsageError(
            f"fit with {tf.distribute.get_strategy().num_replicas_in_sync} replicas: {type(here.model).__name__}"
            f".train_step gives the optimizer {type(optimizer).__name__} what is not made of tape.gradient, weights "
            f"and constants alone ({parts[0].op.type}), and each replica would have its own; leave out what depends on "
            "examples or chance, or train on one device"
        )
    return original(optimizer, grads, trainable_variables)


def _cast(values: Any, loss: Any) -> Any:
    return tree.map_structure(lambda one: tf.cast(one, loss.dtype), values)


def _undivided(how: str) -> UsageError:
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return UsageError(
        f"fit and evaluate with {replicas} replicas: the loss {here.loss_name} {how}, so nothing says how replicas "
        "divide it; return one value for each example, such as Dice(axis=(1, 2, 3)), or train on one device"
    )


def scale_loss_for_distribution(original: Any, value: Any) -> Any:
    """What a replica's mean adds to the mean over the batch."""
    if here.within:
        return value
    return original(value) if here.share is None else _note(value * tf.cast(here.share, value.dtype))


def unscale_loss_for_distribution(original: Any, value: Any) -> Any:
    """Takes back what `scale_loss_for_distribution` does; 0 for a replica without examples."""
    if here.share is None or here.by_batch:
        return original(value)
    return tf.math.divide_no_nan(value, tf.cast(here.share, value.dtype))


def weigh_outputs(original: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
    """The losses of several outputs: Keras weights each by a static number of examples; in a graph there is none."""
    for _, one, *_ in (private(loss, "_flat_losses", library="keras") or ()) if here.share is not None else ():
        if isinstance(one, keras.losses.Loss) and type(one).__call__ is not keras.losses.Loss.__call__:
            here.loss_name = type(one).__name__
            raise _undivided("has a __call__ of its own instead of call(y_true, y_pred)")
    here.by_batch = not tf.executing_eagerly()
    try:
        return original(loss, *args, **kwargs)
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
        return loss if here.parts is Parts.SUM else scale_loss_for_distribution(lambda value: value, loss)
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        loss *= _of_whole(tf.cast(tf.reduce_sum(sample_weight), loss.dtype))
    return loss


def _of_whole(divisor: Any) -> Any:
    """The factor that turns a mean by this replica's divisor, scaled by its share, into one by that of all replicas."""
    whole = tf.distribute.get_replica_context().all_reduce("SUM", tf.stop_gradient(divisor))
    return tf.math.divide_no_nan(divisor, whole * tf.cast(here.share, divisor.dtype))


def _all_reduce_sum_gradients(original: Any, optimizer: Any, pairs: list[Any]) -> list[Any]:
    """In `fit`, the gradients are those of the whole batch already."""
    return pairs if _training_steps else original(optimizer, pairs)


def check_finite(original: Any, optimizer: Any, gradients: list[Any]) -> Any:
    """Whether the gradients of all replicas are finite: each alone could decide otherwise, and wait for the others."""
    finite = original(optimizer, gradients)
    context = tf.distribute.get_replica_context()
    if context is None or not several(context.strategy):
        return finite
    return tf.equal(context.all_reduce("SUM", 1.0 - tf.cast(finite, tf.float32)), 0.0)
