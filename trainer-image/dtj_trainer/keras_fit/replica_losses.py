"""The losses and gradients of one replica's step, so that their sum over the replicas is that of the whole batch.

A replica computes its losses as one device would that has its examples alone. A gradient of weights is linear: each
replica's counts by its share of the whole batch, and then all are summed. What has another divisor than the number of
examples, such as a mask, a sum of weights, or none in a loss that is a sum, is corrected in the loss itself.
`override` puts these functions in the place of those of Keras. Imports TensorFlow.
"""

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer.compat import incompatible, private
from dtj_trainer.compat.keras3 import as_on_one_replica, changing_losses, in_layer, mask_of, updated_by_keras
from dtj_trainer.distribution.gathering import Whole
from dtj_trainer.distribution.replica_count import one_replica
from dtj_trainer.keras_fit.judged import Judged
from dtj_trainer.training.global_batch_loss import gives_each
from dtj_trainer.training.layers import added_times, counting
from dtj_trainer.training.layers_of_all import calling
from dtj_trainer.training.loss_division import Parts, Tried

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_MEANS = ("sum_over_batch_size", "mean")


@dataclass
class Noted:
    """What a step of the user's own computes.

    Attributes:
        targets: each loss of which it takes gradients of weights, with some numbers of these.
        means: each Mean that it gives a number, with this number.
        updates: how it updates other metrics of the user's own.
        results: of metrics, each as often as it asks for it.
        replayed: what these are taken for, if that is known already.
        applied: what it gives its optimizers: optimizer, gradients, weights.
    """

    targets: list[Tried] = field(default_factory=list)
    means: list[tuple[Any, Any]] = field(default_factory=list)
    applied: list[tuple[Any, Sequence[Any], Sequence[Any]]] = field(default_factory=list)
    updates: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    replayed: Sequence[Any] = ()


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
    """Metrics that note a loss so, to which each replica gives its part, and metrics of the examples of all."""
    within = 0
    """How many losses are computed for another one, which counts them."""
    parts: Parts = Parts.EACH
    """How the loss that is computed divides."""
    judged: Judged | None = None
    """Takes what the losses and metrics of a step are, that is only looked at."""
    trained: Any = None
    """Whose step it is."""
    model: Any = None
    """The same, where it is the user's own."""
    targets: Sequence[Parts] = ()
    """How each loss divides of which the step takes gradients of weights, in the order of the step."""
    taken = 0
    """Of how many it has taken them."""
    means: Sequence[Parts] = ()
    """How each number divides that the step gives a Mean for a batch, in the order of the step."""
    measured = 0
    """How many it has given."""
    updates: Sequence[Any] = ()
    """How replicas update each metric of the user's own, in the order of the step."""
    updated = 0
    """How many have been updated."""
    updating = False
    """Whether a metric is updated, or read."""
    by_keras: Sequence[Any] = ()
    """Metrics that Keras itself updates."""
    beside: tuple[Any, bool] = (None, False)
    """Where nothing is divided, but metrics count: the share, and whether what is computed is of all replicas."""
    results = False
    """Whether the step computes with results of metrics, which are those of all replicas then."""
    unmeasured: Mapping[int, Any] = MappingProxyType({})
    """By the identity of a variable of a metric, its value before the step."""
    of_all = False
    """Whether the loss of this step is several values, and a part of those of the examples of all replicas."""
    noted: Noted | None = None
    """Takes what a step computes that is only looked at."""
    counts: tuple[Any, Sequence[Any]] | None = None
    """Where an optimizer that updates weights counts its updates, and the gradients, for which that waits."""
    branch: Any = None
    """The graph of a branch that all replicas take, or none."""

    @contextmanager
    def having(self, **values: Any) -> Iterator[None]:
        """Meanwhile, these attributes have these values."""
        before = {name: getattr(self, name) for name in values}
        vars(self).update(values)
        try:
            yield
        finally:
            vars(self).update(before)


here = OfReplica()


def several(strategy: Any) -> bool:
    """Whether a strategy has several replicas that the override is for."""
    return has_scope(strategy) and strategy.num_replicas_in_sync > 1


def has_scope(strategy: Any) -> bool:
    """Whether a strategy trains, on any number of replicas, what is made in its scope."""
    kinds = tf.distribute.MirroredStrategy | tf.distribute.MultiWorkerMirroredStrategy | tf.distribute.OneDeviceStrategy
    return isinstance(strategy, kinds)


@contextmanager
def noting() -> Iterator[Noted]:
    """Around a step that is called with real examples to look at it: no weight is updated.

    Its gradients are noted, and the step gets zeros.
    """
    with here.having(noted=(noted := Noted()), share=tf.constant(1.0)):
        yield noted


@contextmanager
def noting_applied() -> Iterator[list[tuple[Any, Sequence[Any], Sequence[Any]]]]:
    """Around a step of a loop of the user's own: optimizers note gradients, and update nothing."""
    with here.having(noted=(noted := Noted())):
        yield noted.applied


@contextmanager
def looking(judged: Judged) -> Iterator[None]:
    """Around a step that is called with real examples to judge its losses and metrics; no gradient is taken."""
    with noting(), here.having(judged=judged):
        yield


@contextmanager
def added_losses(model: Any) -> Iterator[None]:
    """In a replica's step: losses that layers add as sums over the examples count as such."""
    parts = known.added.get(model) or ()
    whole = tf.math.divide_no_nan(1.0, here.share)
    with (
        here.having(trained=model),
        changing_losses(lambda losses: added_times(model, losses, parts, mean=1.0, sum_=whole)),
    ):
        yield


@contextmanager
def own_step(
    model: Any,
    *,
    targets: Sequence[Parts] = (),
    means: Sequence[Parts] = (),
    updates: Sequence[Any] = (),
    results: bool = False,
) -> Iterator[None]:
    """In a replica's step, which may be the user's own; None: it is not. What it calls of the user's counts one."""
    by_keras = () if model is None else updated_by_keras(model)
    found = {"targets": targets, "means": means, "updates": updates, "results": results}
    begun = {"taken": 0, "measured": 0, "updated": 0, "of_all": False}
    with here.having(model=model, by_keras=by_keras, **found, **begun), one_replica():
        yield


@contextmanager
def share_of(count: Any) -> Iterator[None]:
    """In a replica's step: which part of the whole batch it has.

    Args:
        count: how many of its examples are its own, 0 if there is one that only stands in for none. None: all replicas
            are known to have as many examples.
    """
    context = tf.distribute.get_replica_context()
    if count is None:
        share, present = tf.constant(1.0 / context.num_replicas_in_sync), None
    else:
        examples = tf.cast(count, tf.float32)
        share = tf.math.divide_no_nan(examples, context.all_reduce("SUM", examples))
        present = tf.cast(count > 0, tf.float32)
    with here.having(share=share, present=present), counting(present):
        yield


def counted_here(value: Any) -> Any:
    """A value that is summed over the replicas; 0 where this one's example only stands in."""
    return value if here.present is None else value * tf.cast(here.present, value.dtype)


known = Judged()
"""How the losses and metrics of all steps of several replicas divide."""


def compute_loss(original: Any, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    """A loss of a replica's examples; as on one device if another loss is computed of it, which is divided.

    So it is where a layer computes it, as what the layer adds is divided.
    """
    if here.share is None:
        return original(loss, y_true, y_pred, sample_weight)
    if not here.within and in_layer():
        with alone():
            return original(loss, y_true, y_pred, sample_weight)
    here.within += 1
    try:
        outermost = here.within == 1
        if outermost and here.judged is not None:
            here.judged.judge_loss(loss, y_true, y_pred)
            here.parts = Parts.EACH
            return original(loss, y_true, y_pred, sample_weight)
        if outermost and here.noted is not None:
            # What the step makes of a value for each example is its own, and says how it divides.
            each = loss.reduction in (None, "none")
            if each and gives_each(loss):
                return original(loss, y_true, y_pred, sample_weight)
            return _stand_in(y_pred, loss.dtype, each=each)
        if outermost:
            here.parts = known.of_loss(loss)
            weighted = sample_weight is not None or mask_of(y_pred) is not None
            if here.parts is Parts.NONE or (here.parts is not Parts.EACH and weighted):
                return of_all_replicas(functools.partial(original, loss), y_true, y_pred, sample_weight)
        return original(loss, y_true, y_pred, sample_weight)
    finally:
        here.within -= 1


def _stand_in(y_pred: Any, dtype: Any, *, each: bool = False) -> Any:
    """For a loss that is known to divide: as good as any mean over the examples, or any value of each."""
    return tf.reduce_mean(tf.square(tf.cast(tree.flatten(y_pred)[0], dtype)), -1 if each else None)


def of_all_replicas(compute: Callable[..., Any], *values: Any) -> Any:
    """A loss of the examples of all replicas, as each of them takes it into its step.

    Args:
        compute: called with the values of all replicas; nothing is divided meanwhile.
    """
    whole = Whole(here.present)
    values, share = whole.gathered(values), here.share

    def by_share(losses: list[Any]) -> list[Any]:
        # All compute the same loss, of which each takes a part, but for what its own examples add.
        parts, replicas = known.added.get(here.trained) or (), whole.replicas
        return added_times(here.trained, losses, parts, mean=share * replicas, sum_=replicas)

    with alone(beside=(here.share, True)), changing_losses(by_share):
        loss = tf.convert_to_tensor(compute(*values))
    here.of_all = here.of_all or loss.shape.rank != 0
    return _counted(whole.part(loss), mean=False)


def gathered(values: Any) -> Any:
    """What the replicas have, together: rows of examples that only stand in are left out."""
    return Whole(here.present).gathered(values)


@contextmanager
def alone(*, beside: tuple[Any, bool] = (None, False)) -> Iterator[None]:
    """In a replica's step: what is computed is not divided, as on one device.

    Args:
        beside: how metrics of the user's own are updated meanwhile, see `OfReplica`.
    """
    with here.having(share=None, within=0, beside=beside), as_on_one_replica(), calling(None):
        yield


@contextmanager
def measuring(share: Any) -> Iterator[None]:
    """In a replica's step: a metric is updated or read, and so may be the metrics that it is made of."""
    with here.having(share=share, within=0, beside=(None, False), updating=True):
        yield


def reduce_weighted_values(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Divides what a loss gives, unless another loss is computed of it."""
    if here.within != 1:
        return original(*args, **kwargs)
    with here.having(within=0):
        return original(*args, **kwargs)


def divided(compute: Callable[..., Any], model: Any, parts: Parts) -> Callable[..., Any]:
    """A `compute_loss` of the user's: computed as on one device, of a replica's examples or of those of all."""

    @functools.wraps(compute)
    def compute_loss(x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, **kwargs: Any) -> Any:
        def of(*values: Any) -> Any:
            return compute(model, *values, **kwargs)

        if here.share is None:
            return of(x, y, y_pred, sample_weight)
        if here.judged is None and parts is Parts.NONE:
            if here.noted is not None:
                return _stand_in(y_pred, model.compute_dtype)
            return of_all_replicas(of, x, y, y_pred, sample_weight)
        with alone(beside=(here.share, False)):
            loss = of(x, y, y_pred, sample_weight)
        # A step of the user's own takes it as it is, and has been looked at so.
        return _counted(loss, mean=parts is not Parts.SUM or here.model is not None)

    return compute_loss


def part_of_whole(value: Any) -> Any:
    """What a replica's mean adds to the mean over the whole batch."""
    return value * tf.cast(here.share, value.dtype)


def _counted(value: Any, *, mean: bool = True) -> Any:
    """A mean over the replica's examples, or a sum, as the step takes it: as a mean.

    What is no number is summed, over the replicas too.
    """
    if value.shape.rank:
        return counted_here(value)
    return value if mean else tf.math.divide_no_nan(value, tf.cast(here.share, value.dtype))


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
        return original(part_of_whole(value))
    return value


def weigh_outputs(original: Any, loss: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    """The losses of several outputs: Keras weights each by the number of examples, where that is static."""
    if here.share is None:
        return original(loss, y_true, y_pred, sample_weight)
    if not loss.built:
        loss.build(y_true, y_pred)
    losses = private(loss, "_flat_losses", library="keras")
    # In place, and once for all replicas, which are threads.
    losses[:] = [_with_own_call(one) for one in losses]
    by_batch = tree.flatten(y_pred)[0].shape[0] is None
    here.once_a_batch = [*here.once_a_batch, *loss.metrics] if by_batch else here.once_a_batch
    with here.having(by_batch=by_batch):
        return original(loss, y_true, y_pred, sample_weight)


def _with_own_call(one: Any) -> Any:
    """A loss that reduces by itself, in a `__call__` of its own, is computed of the examples of all replicas."""
    loss = one.loss
    if not isinstance(loss, keras.losses.Loss) or type(loss).__call__ is keras.losses.Loss.__call__:
        return one

    @functools.wraps(loss)
    def call(y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        if here.share is None or here.judged is not None:
            return loss(y_true, y_pred, sample_weight)
        return of_all_replicas(loss, y_true, y_pred, sample_weight)

    return one._replace(loss=call)


def update_metrics(original: Any, metrics: Any, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
    """The metrics of an output; those of which no sum over the replicas is right are of the examples of all replicas.

    Only the first replica counts these: what metrics keep is summed over the replicas when it is read.
    """
    if here.share is None:
        return original(metrics, y_true, y_pred, sample_weight)
    values = y_true, y_pred, sample_weight
    with measuring(here.share):
        for metric in metrics.metrics:
            if here.judged is not None:
                here.judged.judge_metric(metric, values)
            if here.judged is not None or known.adds_up(metric):
                metric.update_state(*values[:2], sample_weight=sample_weight)
            else:
                *of_all, weights = gathered(values)
                update_by_all(metric, functools.partial(metric.update_state, *of_all, sample_weight=weights))
    return None


def update_by_all(metric: Any, update: Callable[[], Any]) -> None:
    """Updates a metric by what all replicas give it.

    Args:
        update: of the metric, by that; all replicas call it.
    """
    # All that the metric keeps is the first replica's: also what it began with, of which each has a part.
    # A copy is on the replica's device, which TensorFlow asks for; what is read of a variable has none.
    kept = [tf.identity(variable.value) for variable in metric.variables]
    kept = tf.distribute.get_replica_context().all_reduce("SUM", kept) if kept else []
    before = list(zip(metric.variables, kept, strict=True))
    with alone(), keras.StatelessScope(state_mapping=before) as scope:
        update()
    first = tf.equal(tf.distribute.get_replica_context().replica_id_in_sync_group, 0)
    for variable, value in before:
        variable.assign(tf.where(first, scope.get_current_value(variable), tf.zeros_like(value)))
    here.once_a_batch = [*here.once_a_batch, metric]


def apply_mask(original: Any, sample_weight: Any, mask: Any, dtype: Any, reduction: Any) -> Any:
    """Weights by which the mean over a replica's examples is one over the entries of all replicas that are valid."""
    weights = original(sample_weight, mask, dtype, reduction)
    if mask is None or here.share is None or here.within or reduction not in _MEANS:
        return weights
    valid = tf.reduce_sum(tf.cast(mask, weights.dtype))
    return weights * of_whole(valid)


def reduce_values(original: Any, values: Any, sample_weight: Any = None, reduction: Any = "sum_over_batch_size") -> Any:
    """A replica's part of the mean; where weights are the divisor, those of all replicas."""
    if here.share is None or here.within:
        return original(values, sample_weight, reduction)
    # Keras leaves a batch that is known to be empty as it is.
    empty = reduction not in (None, "none") and tuple(values.shape) == (0,)
    loss = tf.reduce_sum(values) if empty else original(values, sample_weight, reduction)
    if not values.shape.rank:
        return _counted(loss, mean=here.parts is not Parts.SUM)
    if here.parts is Parts.VALUES and reduction in (*_MEANS, "mean_with_sample_weight"):
        loss *= of_whole(tf.cast(tf.size(values), loss.dtype))
    if reduction == "mean_with_sample_weight" and sample_weight is not None:
        loss *= of_whole(tf.cast(tf.reduce_sum(sample_weight), loss.dtype))
    return _counted(loss, mean=False) if reduction == "sum" else loss


def of_whole(divisor: Any) -> Any:
    """The factor that turns a mean by this replica's divisor, scaled by its share, into one by that of all replicas."""
    divisor = counted_here(divisor)
    whole = tf.distribute.get_replica_context().all_reduce("SUM", tf.stop_gradient(divisor))
    return tf.math.divide_no_nan(divisor, whole * tf.cast(here.share, divisor.dtype))
