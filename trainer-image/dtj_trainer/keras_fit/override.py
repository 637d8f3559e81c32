"""Keras 3's `fit`, `evaluate` and `predict` under several replicas, as `--script` and sessions need them.

Under MultiWorkerMirrored Keras 3.15 fails before the first step, and several steps per execution fail under Mirrored
as well (keras-team/keras#20585). Where it runs, it takes the mean of the replicas' means and clips the gradient of each
replica. `install` replaces what is wrong in the classes of Keras, so that a model is trained as on one device with the
same global batch:

- the model is built from the specification of the data, and the data are not read for it;
- data that all workers share are divided so that each example is in one part, and others are refused;
- steps per execution are a loop that ends where the data end;
- each replica's loss counts by its share of the batch; masks and sums of sample weights are those of the whole batch;
- a replica without examples of a batch computes on one of another replica, which counts for nothing;
- gradients are clipped after their reduction, and a loss scale follows the gradients of all replicas;
- BatchNormalization is synchronized, and each replica draws its own noise;
- what was made outside the scope, such as an optimizer, becomes a part of it;
- a callback that stops the training on one worker stops it on all;
- callbacks that write files (BackupAndRestore, CSVLogger, ModelCheckpoint, TensorBoard) write them on the leader alone.

One replica, and any other strategy, run the code of Keras; one replica, too, builds a model without a batch where it
can. On all of them, a `fit` whose loss is not finite ends, and nothing that is not finite is saved by Keras' callbacks.
Replaces private functions. Imports TensorFlow and Keras.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any
from weakref import WeakSet

import keras
import tensorflow as tf

from dtj_trainer.compat import LOSS, incompatible, keras3, private, replace
from dtj_trainer.compat.tensorflow import CONDITIONS, FUNCTION
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution import replica_count
from dtj_trainer.distribution.stall_watch import FitWatch
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit import (
    adoption,
    batches,
    first_batch,
    functions,
    keras_callbacks,
    pipelines,
    prediction,
    random_draws,
    replica_gradients,
    replica_losses,
    replicas_without_examples,
    sharding,
    step_values,
)
from dtj_trainer.keras_fit.adoption import adopt, owners_of
from dtj_trainer.keras_fit.alone import Together
from dtj_trainer.keras_fit.counted import Counted
from dtj_trainer.keras_fit.metric_updates import own_metrics
from dtj_trainer.keras_fit.replica_losses import (
    added_losses,
    has_scope,
    own_step,
    several,
    share_of,
)
from dtj_trainer.keras_fit.step_values import Results, shown, update_mean
from dtj_trainer.training import weight_average
from dtj_trainer.training.layers import batch_normalizations, synchronize_batch_normalization
from dtj_trainer.training.weight_update import gradients_of_whole_batch

log = logging.getLogger(__name__)

try:
    from keras.src import tree
    from keras.src.backend.tensorflow import core as keras_core
    from keras.src.backend.tensorflow import optimizer as keras_optimizer
    from keras.src.backend.tensorflow import trainer as keras_trainer
    from keras.src.losses import loss as keras_loss
    from keras.src.trainers import compile_utils as keras_compile
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_warned = False
_installed = False
_without_steps: WeakSet[Any] = WeakSet()
"""The iterators of epochs that have no batch."""
_watch: FitWatch


def install(config: Config) -> None:
    """Replaces the functions of Keras, once.

    Args:
        config: of this task.
    """
    global _installed, _watch
    replica_count.install()
    _watch = FitWatch(config)
    keras_callbacks.begin(config.cluster)
    first_batch.unchecked = config.unchecked
    if _installed:
        return
    _installed = True
    _replace(keras_trainer.TensorFlowTrainer, _maybe_symbolic_build, _make_function)
    _replace(keras_trainer.TensorFlowTrainer, prediction.make_predict_function, prediction.predict_on_batch)
    _replace(keras_trainer.TensorFlowTrainer, _get_metrics_result_or_logs=shown)
    _replace(keras.metrics.Mean, update_state=update_mean)
    ours, gradients, adopted = replica_losses, replica_gradients, adoption
    _replace(keras_core.Variable, _direct_assign=adopted.assign, __float__=adopted.as_float, __int__=adopted.as_int)
    _replace(keras_trainer.TFEpochIterator, _enumerate_iterator, __init__=_init_iterator)
    _replace(keras_optimizer.TFOptimizer, gradients._all_reduce_sum_gradients)
    _replace(keras_optimizer.TFOptimizer, _overwrite_model_variables_with_average_value)
    _replace(keras_loss, ours.scale_loss_for_distribution, ours.unscale_loss_for_distribution, ours.apply_mask)
    _replace(keras_loss, ours.reduce_values, ours.reduce_weighted_values)
    _replace(keras_loss.Loss, __call__=ours.compute_loss)
    _replace(keras_compile.CompileLoss, call=ours.weigh_outputs)
    _replace(keras_compile.MetricsList, update_state=ours.update_metrics)
    _replace(tf.GradientTape, gradient=gradients.gradient)
    _replace(FUNCTION, __call__=functions.call)
    _replace(CONDITIONS, functions.cond)
    _replace(keras.optimizers.LossScaleOptimizer, gradients.check_finite, adoption.apply, gradients.apply)
    _replace(keras.optimizers.Optimizer, adoption.apply, gradients.apply)
    tf.data.Dataset.from_generator = staticmethod(
        functools.partial(batches.from_generator, tf.data.Dataset.from_generator)
    )
    _replace(tf.data.Dataset, pipelines.interleave)
    callbacks = keras.callbacks
    _replace(callbacks.ModelCheckpoint, _save_model=keras_callbacks.save_best)
    _replace(
        callbacks.BackupAndRestore,
        _save_model=keras_callbacks.back_up,
        on_train_end=keras_callbacks.remove_backup,
    )
    _replace(callbacks.TensorBoard, set_model=keras_callbacks.board_of)
    _replace(callbacks.CSVLogger, on_train_begin=keras_callbacks.open_table)
    _replace(
        callbacks.CallbackList,
        on_train_begin=keras_callbacks.train_begins,
        on_epoch_begin=keras_callbacks.epoch_begins,
        on_train_batch_end=keras_callbacks.batch_ended,
        on_epoch_end=keras_callbacks.epoch_ended,
        on_train_end=keras_callbacks.train_ended,
    )


def _replace(owner: Any, *functions: Callable[..., Any], **named: Callable[..., Any]) -> None:
    """Puts each function in the place of the owner's of the same name, which becomes its first argument."""
    for name, function in (*((one.__name__, one) for one in functions), *named.items()):
        replace(owner, name, function, library="keras")


# -- the model and the data ------------------------------------------------------------------------------------


def _maybe_symbolic_build(original: Any, model: Any, iterator: Any = None, data_batch: Any = None) -> None:
    strategy = model._distribute_strategy
    _refuse_central_storage(strategy)
    if strategy is not None and iterator in _without_steps:
        batch = next(iter(iterator._distributed_dataset))
        iterator, data_batch = None, tree.map_structure(lambda value: _local(strategy, value), batch)
    if not several(strategy):
        if has_scope(strategy):
            adopt(strategy, owners_of(model))
            if iterator is not None and (data_batch := _of_one_replica(model, iterator)) is not None:
                iterator = None
        original(model, iterator=iterator, data_batch=data_batch)
        return
    adoption.check_keeps_nothing_of_batches(model)
    if iterator is not None:
        # To read a batch would take it from a generator, and put a shuffle one epoch further on.
        data_batch = _specification(iterator, of_any_size=True)
        if data_batch is None:
            data_batch = tree.map_structure(lambda value: _local(strategy, value), next(iter(iterator))[2].__next__())
            iterator.reset()
    adopt(strategy, owners_of(model))
    adoption.build(model, strategy, data_batch)
    _judged_by_data.add(model)
    unsynchronized = [layer for layer in batch_normalizations(model) if not layer.synchronized]
    synchronize_batch_normalization(model)
    _tell(strategy, unsynchronized)


def _refuse_central_storage(strategy: Any) -> None:
    central = isinstance(strategy, tf.distribute.experimental.CentralStorageStrategy)
    if central and strategy.num_replicas_in_sync > 1:
        raise UsageError(
            "fit, evaluate and predict do not give the numbers of one device under CentralStorageStrategy, whose "
            f"{strategy.num_replicas_in_sync} replicas share each variable, also of metrics; make a MirroredStrategy, "
            "or give the trainer the model with --model, which may be trained with strategy CentralStorage"
        )


def _tell(strategy: Any, unsynchronized: list[Any]) -> None:
    global _warned
    if _warned or not keras_callbacks.leads(strategy):
        return
    _warned = True
    also = f", with synchronized BatchNormalization ({len(unsynchronized)} layers)" if unsynchronized else ""
    log.info(
        f"Keras {keras.__version__}: fit, evaluate and predict are adapted to {strategy.num_replicas_in_sync} "
        f"replicas{also}; --keras-override=off leaves Keras as it is"
    )


def _specification(iterator: Any, *, of_any_size: bool = False) -> Any:
    """The data as tensors of one replica without values, which may leave open how many examples there are; None where
    only a batch shows how many axes they have."""
    specs = tree.map_structure(
        lambda spec: getattr(spec, "_value_specs", (spec,))[0], iterator._distributed_dataset.element_spec
    )
    for one in tree.flatten(specs):
        if not isinstance(one, tf.TensorSpec | tf.RaggedTensorSpec) or one.shape.rank is None:
            return None
    return tree.map_structure(
        lambda spec: tf.TensorSpec([None, *spec.shape[1:]], spec.dtype) if of_any_size and spec.shape.rank else spec,
        specs,
    )


def _of_one_replica(model: Any, iterator: Any) -> Any:
    """The data without values, as above; None where Keras has to read a batch: a model that runs eagerly may need its
    size, and losses, metrics and layers that are not built need that of each axis."""
    specs = None if model.run_eagerly else _specification(iterator)
    needed = specs[1:] if model.built and isinstance(specs, tuple) else specs
    known = specs is not None and all(one.shape[1:].is_fully_defined() for one in tree.flatten(needed))
    return specs if known else None


def _local(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]


def _init_iterator(original: Any, iterator: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
    if isinstance(distribute_strategy, tf.distribute.experimental.ParameterServerStrategy):
        raise UsageError(
            "fit, evaluate and predict of Keras 3 do not run under ParameterServer; set TF_USE_LEGACY_KERAS=1 in the "
            "environment, by which tf.keras is tf_keras, or import tf_keras in place of keras"
        )
    _refuse_central_storage(distribute_strategy)
    data, steps = kwargs.get("x"), kwargs.get("steps_per_epoch")
    endless = isinstance(data, tf.data.Dataset) and int(data.cardinality()) == tf.data.INFINITE_CARDINALITY
    # Only predict gives no labels.
    predicts = "y" not in kwargs
    # Keras would take 0 for all: a job that is started again after its last step would never end.
    if endless and steps == 0 and not predicts:
        _without_steps.add(iterator)
        log.warning("steps_per_epoch (or steps) is 0: no batch is taken of data without end")
    replicas = distribute_strategy.num_replicas_in_sync if several(distribute_strategy) else 1
    with batches.dividing(among=replicas):
        if sharding.workers_of(distribute_strategy) == 1:
            original(iterator, distribute_strategy, *args, **kwargs)
            return
        private(keras_trainer, "EpochIterator", library="keras").__init__(iterator, *args, **kwargs)
        iterator._distribute_strategy = distribute_strategy
        in_order = predicts or bool(iterator.steps_per_epoch)
        iterator._distributed_dataset = sharding.distribute(iterator, distribute_strategy, rows_in_order=in_order)


class _Steps:
    """The iterator of an epoch, and how many steps of it one call takes; None where the data may end before."""

    def __init__(self, iterator: Any, count: int | None, epoch: Any = None) -> None:
        self.iterator, self.count, self.epoch = iterator, count, epoch
        self.ends_known = count is None and epoch is not None and getattr(epoch.data_adapter, "ends_known", False)
        """Whether the data may end before, and one device would know where."""

    def __next__(self) -> Any:
        return next(self.iterator)


def _enumerate_iterator(original: Any, epoch: Any) -> Iterator[tuple[int, int, Any]]:
    divides = several(epoch._distribute_strategy)
    for begin, end, iterator in original(epoch) if epoch not in _without_steps else ():
        if not divides or not isinstance(iterator, tf.distribute.DistributedIterator):
            yield begin, end, iterator
            continue
        count: int | None = epoch.steps_per_execution
        batches = epoch.data_adapter.num_batches
        if batches is not None:
            count = min(epoch.steps_per_execution, batches - (epoch._steps_seen - epoch.steps_per_execution))
        elif iterator._cardinality != tf.data.INFINITE_CARDINALITY:
            count = None
        yield begin, end, _Steps(iterator, count, epoch)
        sharding.compare_first(epoch)


# -- the steps -------------------------------------------------------------------------------------------------


def _make_function(original: Any, model: Any, step_function: Callable[[Any], Any]) -> Any:
    strategy = model.distribute_strategy
    trains = step_function == model.train_step
    if trains and Together.current is not None:
        Together.current.check_fit(strategy)
    if not several(strategy):
        if trains:
            adoption.check_made_apart(model)
        return original(model, step_function)
    name = "train_step" if trains else "test_step"
    own = any(keras3.overrides(model, one) for one in (name, "compute_metrics")) or bool(own_metrics(model))
    adopt(strategy, owners_of(model))
    _watch.follow(strategy)

    results, draws = Results(model), random_draws.draws(strategy)
    seen = Counted(model, strategy) if trains and sharding.workers_of(strategy) > 1 else None
    found = first_batch.Found()
    # Whether a step computes nothing before it has a batch, as one device does not where it knows that there is none,
    # or where XLA has compiled the step.
    waits = False

    @tf.autograph.experimental.do_not_convert
    def of_replica(data: Any, count: Any) -> Any:
        def step(data: Any) -> Any:
            own_model = model if own else None
            of_step = own_step(
                own_model,
                targets=found.targets,
                means=found.means,
                updates=found.updates,
                results=found.results,
            )
            if seen is not None:
                seen.add(data, count)
            unmeasured = replicas_without_examples.unmeasured(owners_of(model))
            given = tf.nest.flatten(data, expand_composites=True) if waits else ()
            batch = tf.control_dependencies([one for one in given if one is not None])
            with batch, share_of(count), of_step, added_losses(model), unmeasured, draws():
                return results.returned(step_function(data))

        return model._autoconvert_optionals(step)(data)

    def one_step(data: Any, *, equal: bool) -> Any:
        whole = gradients_of_whole_batch() if trains else nullcontext()
        with whole, results.noting(owners_of(model)):
            return strategy.run(of_replica, args=replicas_without_examples.put(strategy, data, equal=equal))

    def on_data(data: Any, *, equal: bool) -> Any:
        return _means(strategy, one_step(data, equal=equal), by_replica=trains)

    def steps(iterator: Any, count: Any, *, ends_known: bool) -> Any:
        nonlocal waits
        waits = ends_known or replica_gradients.by_xla(model)

        def body(taken: Any) -> tuple[Any]:
            one_step(next(iterator), equal=found.equal)
            return (taken + 1,)

        if count is not None:
            tf.while_loop(lambda taken: taken < count - 1, body, (tf.constant(0, tf.int64),))
        return on_data(next(iterator), equal=found.equal)

    of_batch: Callable[[Any], Any] = functools.partial(on_data, equal=False)
    of_data = {known: functools.partial(steps, ends_known=known) for known in (False, True)}
    singles: list[tuple[Any, Callable[[Any], Any]]] = []
    if not model.run_eagerly:
        of_batch = tf.function(of_batch, reduce_retracing=True, autograph=False)
        of_data = {
            known: tf.function(taken, reduce_retracing=True, autograph=False) for known, taken in of_data.items()
        }

    judges = step_function in (model.train_step, model.test_step) and model in _judged_by_data
    # Steps, and the number of them after which the next batch is looked at; None: no more.
    taken: int = 0
    look_at: int | None = 0

    def on_batch(iterator: Any) -> Any:
        data = batches.divide(strategy, next(iterator), asked=model, compared=not taken)
        return of_batch(look(data))

    def look(data: Any) -> Any:
        """The data, which may have been looked at."""
        nonlocal found, taken, look_at
        if taken == 0 and judges:
            found = first_batch.look(strategy, model, step_function, data, trains=trains, own=own)
            results.parts = found.returned
        elif look_at is not None and taken >= look_at:
            known = found.targets if own else None
            first_batch.look_again(strategy, model, step_function, data, targets=known, steps=taken)
        taken += 1
        again = first_batch.LOOKS_AGAIN if trains and judges and (own or first_batch.doubtful(model)) else ()
        look_at = next((one for one in again if one > taken), None)
        return data

    def take(iterator: _Steps) -> Any:
        """As many steps as one execution has; one that is looked at is taken by itself."""
        nonlocal taken
        if model.steps_per_execution > 1 and first_batch.gathers(model):
            # One by one: in a loop, TensorFlow gathers of all batches as many rows as of the first.
            iterator.count = None
        left = model.steps_per_execution if iterator.count is None else iterator.count
        if look_at is None or taken < look_at:
            taken += left
            most = model.steps_per_execution
            return _take(iterator, of_data[iterator.ends_known], of_one(iterator) if most > 1 else None, most)
        outputs = of_one(iterator)(look(next(iterator.iterator)))
        if left > 1:
            rest = _Steps(iterator.iterator, iterator.count and left - 1)
            with suppress(*_ENDS):
                outputs = _take(rest, of_data[iterator.ends_known], of_one(iterator), left - 1)
            taken += left - 1
        return outputs

    def of_one(iterator: _Steps) -> Callable[[Any], Any]:
        if model.run_eagerly:
            return of_batch
        # Keras does not measure the same where it knows the number of examples: in no step, or in all.
        given = iterator.iterator.element_spec
        # A later `fit` may have other data, such as one without weights.
        for known, single in singles:
            if known == given:
                return single
        one = functools.partial(on_data, equal=False)
        singles.append((given, tf.function(one, input_signature=[given], autograph=False)))
        return singles[-1][1]

    def function(iterator: Any) -> Any:
        whole = not isinstance(iterator, _Steps)
        results.show()
        if seen is not None:
            seen.begin(None if whole else iterator.epoch)
        with _watch.step():
            try:
                outputs = on_batch(iterator) if whole else take(iterator)
            except _ENDS:
                if (
                    trains
                    and not (whole or iterator.ends_known or model.run_eagerly)
                    and model.steps_per_execution == 1
                ):
                    replica_gradients.count_end(model)
                raise
        if trains and outputs is not None:
            outputs, not_finite = outputs
            keras_callbacks.losses.replicas(model, not_finite)
        return step_values.whole(model, outputs) if whole else outputs

    return function


_ENDS = (StopIteration, tf.errors.OutOfRangeError)


def _take(iterator: _Steps, steps: Callable[[Any, Any], Any], of_one: Any, most: int) -> Any:
    """Takes this many steps, or those that are left. Returns the outputs of the last.

    Args:
        of_one: takes one on a batch; None: within the graph that gets the batch, as Keras with one step per execution.
    """
    if iterator.count is not None or of_one is None:
        return steps(iterator.iterator, tf.constant(iterator.count, tf.int64) if most > 1 else None)
    outputs = None
    for _ in range(most):
        # Not within the graph: without a batch, it would still compute what needs none, such as a count of steps.
        try:
            outputs = of_one(next(iterator.iterator))
        except _ENDS:
            if outputs is None:
                raise
            break
    return outputs


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


_judged_by_data: WeakSet[Any] = WeakSet()
"""The models that were built for data."""


def _overwrite_model_variables_with_average_value(original: Any, optimizer: Any, weights: Any) -> None:
    weight_average.overwriting(optimizer, functools.partial(original, optimizer))(weights)
