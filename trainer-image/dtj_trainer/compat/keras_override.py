"""Keras 3's `fit`, `evaluate` and `predict` under several replicas, as `--script` and sessions need them.

Under MultiWorkerMirrored Keras 3.15 fails before the first step, and several steps per execution fail under Mirrored
as well (keras-team/keras#20585). Where it runs, it takes the mean of the replicas' means and clips the gradient of each
replica. `install` replaces what is wrong in the classes of Keras, so that a model is trained as on one device with the
same global batch:

- the model is built from the specification of the data, and the data are not read for it;
- steps per execution are a loop that ends where the data end;
- each replica's loss counts by its share of the batch; masks and sums of sample weights are those of the whole batch;
- gradients are clipped after their reduction, and a loss scale follows the gradients of all replicas;
- BatchNormalization is synchronized;
- callbacks that write files (BackupAndRestore, CSVLogger, ModelCheckpoint, TensorBoard) write them on the leader alone.

One replica, and any other strategy, run the code of Keras. On all of them, a `fit` whose loss is not finite ends, and
nothing that is not finite is saved by Keras' callbacks. Replaces private functions, so the version is checked.
Imports TensorFlow and Keras.
"""

import atexit
import functools
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import keras_builds, private, unfit
from dtj_trainer.config.parsing import Config
from dtj_trainer.process.errors import UsageError
from dtj_trainer.user_code.fit_losses import FitLosses
from dtj_trainer.user_code.fit_watch import FitWatch
from dtj_trainer.user_code.reported_losses import LOSS

log = logging.getLogger(__name__)

try:
    from keras.src import tree
    from keras.src.backend.tensorflow import optimizer as keras_optimizer
    from keras.src.backend.tensorflow import trainer as keras_trainer
    from keras.src.losses import loss as keras_loss
    from keras.src.trainers import compile_utils as keras_compile
except ImportError as error:
    raise unfit(str(error), library="keras") from None

_MEANS = ("sum_over_batch_size", "mean")


class _OfReplica(threading.local):
    """What holds for the replica whose step this thread traces."""

    share: Any = None
    """Its part of the examples of the whole batch; None outside of a step."""
    reduced = False
    """Whether the gradients are reduced over the replicas."""
    by_batch = False
    """Whether a loss is noted once a batch, whatever number of examples it has."""


_here = _OfReplica()
_warned = False
_installed = False
losses: FitLosses
_watch: FitWatch


def install(config: Config) -> None:
    """Replaces the functions of Keras, once.

    Args:
        config: of this task.
    """
    global _installed, losses, _watch
    losses, _watch = FitLosses(config.cluster), FitWatch(config)
    if _installed:
        return
    _installed = True
    _replace(keras_trainer.TensorFlowTrainer, _maybe_symbolic_build, _make_function)
    _replace(keras_trainer.TFEpochIterator, _enumerate_iterator, __init__=_init_iterator)
    _replace(keras_optimizer.TFOptimizer, _clip_gradients, _all_reduce_sum_gradients)
    _replace(keras_loss, scale_loss_for_distribution, unscale_loss_for_distribution, apply_mask, reduce_values)
    _replace(keras_compile.CompileLoss, call=_weigh_outputs)
    _replace(keras.optimizers.LossScaleOptimizer, check_finite, keras_builds.apply)
    _replace(keras.optimizers.Optimizer, keras_builds.apply)
    callbacks = keras.callbacks
    _replace(callbacks.ModelCheckpoint, _save_model=_save_best)
    _replace(callbacks.BackupAndRestore, on_train_begin=_restore, _save_model=_back_up, on_train_end=_remove_backup)
    _replace(callbacks.TensorBoard, set_model=_board_of)
    _replace(callbacks.CSVLogger, on_train_begin=_open_table)
    _replace(
        callbacks.CallbackList,
        on_epoch_begin=_epoch_begins, on_train_batch_end=_batch_ended, on_epoch_end=_epoch_ended,
        on_train_end=_train_ended,
    )  # fmt: skip


def _replace(owner: Any, *functions: Callable[..., Any], **named: Callable[..., Any]) -> None:
    """Puts each function in the place of the owner's of the same name, which becomes its first argument."""
    for name, function in (*((one.__name__, one) for one in functions), *named.items()):
        original = private(owner, name, library="keras")

        def replacement(*args: Any, function: Any = function, original: Any = original, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, functools.wraps(original)(replacement))


def _several(strategy: Any) -> bool:
    kinds = tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy
    return isinstance(strategy, kinds) and strategy.num_replicas_in_sync > 1


def _leads(strategy: Any) -> bool:
    return bool(getattr(strategy.extended, "should_checkpoint", True))


# -- the model and the data ------------------------------------------------------------------------------------


def _maybe_symbolic_build(original: Any, model: Any, iterator: Any = None, data_batch: Any = None) -> None:
    strategy = model._distribute_strategy
    if strategy is None or not _several(strategy):
        original(model, iterator=iterator, data_batch=data_batch)
        return
    if iterator is not None:
        data_batch = _specification(iterator)
        if data_batch is None:
            data_batch = tree.map_structure(lambda value: _local(strategy, value), next(iter(iterator))[2].__next__())
            iterator.reset()
    keras_builds.build(model, strategy, data_batch)
    unsynchronized = [
        layer
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized
    ]
    for layer in unsynchronized:
        layer.synchronized = True
    _tell(strategy, unsynchronized)


def _tell(strategy: Any, unsynchronized: list[Any]) -> None:
    global _warned
    if _warned or not _leads(strategy):
        return
    _warned = True
    also = f", with synchronized BatchNormalization ({len(unsynchronized)} layers)" if unsynchronized else ""
    log.info(
        f"Keras {keras.__version__}: fit, evaluate and predict are adapted to {strategy.num_replicas_in_sync} "
        f"replicas{also}; --keras-override=off leaves Keras as it is"
    )


def _specification(iterator: Any) -> Any:
    """The data as tensors of one replica without values; None where only a batch shows their shapes."""
    known = True

    def of_replica(spec: Any) -> Any:
        nonlocal known
        spec = getattr(spec, "_value_specs", (spec,))[0]
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None or None in spec.shape[1:].as_list():
            known = False
            return spec
        return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if spec.shape.rank else spec

    specification = tree.map_structure(of_replica, iterator._distributed_dataset.element_spec)
    return specification if known else None


def _local(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]


def _init_iterator(original: Any, iterator: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
    if isinstance(distribute_strategy, tf.distribute.experimental.ParameterServerStrategy):
        raise UsageError(
            "fit, evaluate and predict of Keras 3 do not run under ParameterServer; set TF_USE_LEGACY_KERAS=1 in the "
            "environment, by which tf.keras is tf_keras, or import tf_keras in place of keras"
        )
    original(iterator, distribute_strategy, *args, **kwargs)


class _Steps:
    """The iterator of an epoch, and how many steps of it one call takes; None where the data may end before."""

    def __init__(self, iterator: Any, count: int | None) -> None:
        self.iterator = iterator
        self.count = count

    def __next__(self) -> Any:
        return next(self.iterator)


def _enumerate_iterator(original: Any, epoch: Any) -> Iterator[tuple[int, int, Any]]:
    several = _several(epoch._distribute_strategy)
    for begin, end, iterator in original(epoch):
        if not several or not isinstance(iterator, tf.distribute.DistributedIterator):
            yield begin, end, iterator
            continue
        count: int | None = epoch.steps_per_execution
        batches = epoch.data_adapter.num_batches
        if batches is not None:
            count = min(epoch.steps_per_execution, batches - (epoch._steps_seen - epoch.steps_per_execution))
        elif iterator._cardinality != tf.data.INFINITE_CARDINALITY:
            count = None
        yield begin, end, _Steps(iterator, count)


# -- the steps -------------------------------------------------------------------------------------------------


def _make_function(original: Any, model: Any, step_function: Callable[[Any], Any]) -> Any:
    strategy = model.distribute_strategy
    if not _several(strategy):
        return original(model, step_function)
    trains = step_function == model.train_step
    if trains and getattr(model.optimizer, "gradient_accumulation_steps", None):
        raise UsageError(
            "fit with several replicas: Keras cannot accumulate gradients there (gradient_accumulation_steps of the "
            "optimizer), since it reduces them in a branch; leave it out and give a larger batch"
        )

    _watch.follow(strategy)

    @tf.autograph.experimental.do_not_convert
    def replica_step(data: Any) -> Any:
        with _share_of(data):
            return step_function(data)

    replica_step = model._autoconvert_optionals(replica_step)

    def one_step(data: Any) -> Any:
        return strategy.run(replica_step, args=(data,))

    def on_data(data: Any) -> Any:
        return _means(strategy, one_step(data), by_replica=trains)

    def steps(iterator: Any, count: Any) -> Any:
        def body(taken: Any) -> tuple[Any]:
            one_step(next(iterator))
            return (taken + 1,)

        if count is not None:
            tf.while_loop(lambda taken: taken < count - 1, body, (tf.constant(0, tf.int64),))
        return on_data(next(iterator))

    if not model.run_eagerly:
        on_data = tf.function(on_data, reduce_retracing=True, autograph=False)
        steps = tf.function(steps, reduce_retracing=True, autograph=False)

    def function(iterator: Any) -> Any:
        with _watch.step():
            outputs = _take(model, iterator, on_data=on_data, steps=steps)
        if trains and outputs is not None:
            outputs, not_finite = outputs
            losses.replicas(model, not_finite)
        return outputs

    return function


def _take(model: Any, iterator: Any, *, on_data: Callable[[Any], Any], steps: Callable[[Any, Any], Any]) -> Any:
    """Takes `steps_per_execution` steps, or those that are left. Returns the outputs of the last."""
    outputs = None
    if not isinstance(iterator, _Steps):
        for _, data in zip(range(model.steps_per_execution), iterator, strict=False):
            outputs = on_data(data)
        return outputs
    if model.steps_per_execution == 1:
        return steps(iterator.iterator, None)
    if iterator.count is not None:
        return steps(iterator.iterator, tf.constant(iterator.count, tf.int64))
    for _ in range(model.steps_per_execution):
        try:
            outputs = steps(iterator.iterator, None)
        except tf.errors.OutOfRangeError:
            if outputs is None:
                raise
            break
    return outputs


@contextmanager
def _share_of(data: Any) -> Iterator[None]:
    """In a replica's step: which part of the whole batch it has."""
    context = tf.distribute.get_replica_context()
    replicas = context.num_replicas_in_sync
    tensor = next((one for one in tree.flatten(data) if one is not None), None)
    shape = getattr(tensor, "shape", None)
    # In a graph, a replica has a static number of examples where all have the same one.
    static = not tf.executing_eagerly() and shape is not None and shape.rank and shape[0] is not None
    if shape is None or shape.rank == 0 or static:
        share = tf.constant(1.0 / replicas)
    else:
        rows = tensor.nrows() if isinstance(tensor, tf.RaggedTensor) else _first_dimension(tensor)
        examples = tf.cast(rows, tf.float32)
        share = tf.math.divide_no_nan(examples, context.all_reduce("SUM", examples))
    before, _here.share, _here.reduced = _here.share, share, False
    try:
        yield
    finally:
        _here.share, _here.reduced = before, False


def _first_dimension(tensor: Any) -> Any:
    return tensor.dense_shape[0] if isinstance(tensor, tf.SparseTensor) else tf.shape(tensor)[0]


def _means(strategy: Any, outputs: Any, *, by_replica: bool) -> Any:
    """What the replicas' steps gave, as its mean over all replicas, the same on all workers: one reduction.

    Args:
        by_replica: whether to give as well of each replica a number above 0 if its loss is not finite.
    """
    first = tree.map_structure(lambda value: _local(strategy, value), outputs)
    shapes = [tf.shape(value) for value in tree.flatten(first)]
    replicas = strategy.num_replicas_in_sync
    if not shapes:
        return (first, tf.zeros(replicas)) if by_replica else first

    def packed(values: Any) -> Any:
        parts = [tf.reshape(tf.cast(value, tf.float32), [-1]) for value in tree.flatten(values)]
        if by_replica:
            of_step = [values[LOSS]] if isinstance(values, dict) and LOSS in values else parts
            finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(tf.cast(part, tf.float32))) for part in of_step])
            place = tf.one_hot(tf.distribute.get_replica_context().replica_id_in_sync_group, replicas)
            parts.append(tf.where(finite, tf.zeros_like(place), place))
        return tf.concat(parts, 0)

    mean = strategy.reduce("MEAN", strategy.run(packed, args=(outputs,)), axis=None)
    sizes = [tf.reduce_prod(shape) for shape in shapes]
    parts = tf.split(mean, [*sizes, replicas] if by_replica else sizes)
    flat = [
        tf.cast(tf.reshape(part, shape), value.dtype)
        for part, shape, value in zip(parts, shapes, tree.flatten(first), strict=False)
    ]
    means = tree.pack_sequence_as(first, flat)
    return (means, parts[-1]) if by_replica else means


# -- the loss and the gradients --------------------------------------------------------------------------------


def scale_loss_for_distribution(original: Any, value: Any) -> Any:
    """What a replica's mean adds to the mean over the batch."""
    return original(value) if _here.share is None else value * tf.cast(_here.share, value.dtype)


def unscale_loss_for_distribution(original: Any, value: Any) -> Any:
    """Takes back what `scale_loss_for_distribution` does; 0 for a replica without examples."""
    if _here.share is None or _here.by_batch:
        return original(value)
    return tf.math.divide_no_nan(value, tf.cast(_here.share, value.dtype))


def _weigh_outputs(original: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
    """The losses of several outputs: Keras weights each by a static number of examples; in a graph there is none."""
    _here.by_batch = not tf.executing_eagerly()
    try:
        return original(loss, *args, **kwargs)
    finally:
        _here.by_batch = False


def apply_mask(original: Any, sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
    """Weights by which the mean over a replica's examples is one over the entries of all replicas that are valid."""
    weights = original(sample_weight, mask, dtype, reduction)
    if mask is None or _here.share is None or reduction not in _MEANS:
        return weights
    valid = tf.reduce_sum(tf.cast(mask, weights.dtype))
    return weights * _of_whole(valid)


def reduce_values(original: Any, values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size") -> Any:
    """A replica's part of the mean; where weights are the divisor, those of all replicas."""
    loss = original(values, sample_weight, reduction)
    if reduction == "mean_with_sample_weight" and sample_weight is not None and _here.share is not None:
        loss *= _of_whole(tf.cast(tf.reduce_sum(sample_weight), loss.dtype))
    return loss


def _of_whole(divisor: Any) -> Any:
    """The factor that turns a mean by this replica's divisor, scaled by its share, into one by that of all replicas."""
    whole = tf.distribute.get_replica_context().all_reduce("SUM", tf.stop_gradient(divisor))
    return tf.math.divide_no_nan(divisor, whole * tf.cast(_here.share, divisor.dtype))


def _clip_gradients(original: Any, optimizer: Any, gradients: list[Any]) -> list[Any]:
    clips = optimizer.clipnorm or optimizer.global_clipnorm or optimizer.clipvalue
    if _here.share is None or not clips:
        return original(optimizer, gradients)  # type: ignore[no-any-return]
    pairs = optimizer._all_reduce_sum_gradients([(one, None) for one in gradients])
    _here.reduced = True
    return original(optimizer, [gradient for gradient, _ in pairs])  # type: ignore[no-any-return]


def _all_reduce_sum_gradients(original: Any, optimizer: Any, pairs: list[Any]) -> list[Any]:
    if _here.reduced:
        _here.reduced = False
        return pairs
    return original(optimizer, pairs)  # type: ignore[no-any-return]


def check_finite(original: Any, optimizer: Any, gradients: list[Any]) -> Any:
    """Whether the gradients of all replicas are finite: each alone could decide otherwise, and wait for the others."""
    finite = original(optimizer, gradients)
    context = tf.distribute.get_replica_context()
    if context is None or not _several(context.strategy):
        return finite
    return tf.equal(context.all_reduce("SUM", 1.0 - tf.cast(finite, tf.float32)), 0.0)


# -- callbacks -------------------------------------------------------------------------------------------------


def _writes(callback: Any) -> bool:
    return _leads(callback.model.distribute_strategy)


def _epoch_begins(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
    losses.epoch(callbacks.model, epoch)
    original(callbacks, epoch, logs)


def _batch_ended(original: Any, callbacks: Any, batch: int, logs: Any = None) -> None:
    # A session's callback looks by itself, in step with the session's checkpoints.
    if not any(getattr(one, "looks_at_losses", False) for one in callbacks.callbacks):
        losses.batch(callbacks.model, batch, logs)
    original(callbacks, batch, logs)


def _epoch_ended(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
    losses.look(callbacks.model)
    original(callbacks, epoch, logs)


def _train_ended(original: Any, callbacks: Any, logs: Any = None) -> None:
    losses.look(callbacks.model, weights=True)
    original(callbacks, logs)


def _save_best(original: Any, callback: Any, epoch: int, batch: int | None, logs: Any) -> None:
    losses.look(callback.model, weights=True)
    if _writes(callback):
        original(callback, epoch, batch, logs)
        return
    verbose, callback.verbose = callback.verbose, 0
    try:
        callback._should_save_model(epoch, batch, logs, "")  # keeps the best value, as the leader's does
    finally:
        callback.verbose = verbose


def _restore(original: Any, callback: Any, logs: Any = None) -> None:
    original(callback, logs)
    strategy = callback.model.distribute_strategy
    if not _several(strategy):
        return
    epoch, replicas = callback.model._initial_epoch or 0, strategy.num_replicas_in_sync

    def own_place() -> Any:
        return epoch * tf.one_hot(
            tf.distribute.get_replica_context().replica_id_in_sync_group, replicas, dtype=tf.int64
        )

    epochs = strategy.reduce("SUM", strategy.run(own_place), axis=None).numpy()
    if any(other != epoch for other in epochs):
        raise UsageError(
            f"BackupAndRestore: backup_dir={callback.backup_dir}: tasks found different epochs in it "
            f"({', '.join(map(str, epochs))}); it must be one volume that all tasks share"
        )


def _back_up(original: Any, callback: Any) -> None:
    losses.look(callback.model, weights=True)
    if _writes(callback):
        original(callback)


def _remove_backup(original: Any, callback: Any, logs: Any = None) -> None:
    if _writes(callback):
        original(callback, logs)


def _board_of(original: Any, callback: Any, model: Any) -> None:
    if not _leads(model.distribute_strategy):
        callback.log_dir = tempfile.mkdtemp(prefix="tensorboard-")
        atexit.register(shutil.rmtree, callback.log_dir, ignore_errors=True)
    original(callback, model)


def _open_table(original: Any, callback: Any, logs: Any = None) -> None:
    if not _writes(callback):
        callback.filename = os.devnull
    original(callback, logs)
