"""What a train step or test step of the user's own shows, such that it is the value of the whole batch.

Of a loss, and of a sum of means, each replica shows its part, as `replica_losses` divides it. What is the result of a
metric is asked of the metric between the steps, when its variables are those of all replicas. Imports TensorFlow.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from dtj_trainer.compat import incompatible
from dtj_trainer.keras_fit.replica_losses import here, is_noted
from dtj_trainer.keras_fit.sums_of_losses import UnknownSumError, means_of

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

log = logging.getLogger(__name__)

_reported: set[str] = set()
"""What is known to be a mean over the replicas."""
_of_metrics: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
"""By model, which values of its last step are the results of which metrics."""


class Results:
    """Which values that a step returns are results of metrics, noted while the step is traced."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._noted: list[tuple[Any, Any]] = []
        """(value, what it is of): a metric, and the place in its result."""
        self._metrics: dict[Any, Any] = {}

    @contextmanager
    def noting(self, owners: list[Any]) -> Iterator[None]:
        """While the replicas run the step.

        Args:
            owners: the metrics, and anything else.
        """

        def result(metric: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            self._noted += [(one, (metric, place)) for place, one in tree.flatten_with_path(value)]
            return value

        # Not by setattr, which would look for variables in it.
        ours = [one for one in owners if isinstance(one, keras.Metric) and "result" not in vars(one)]
        for metric in ours:
            vars(metric)["result"] = functools.partial(result, metric, metric.result)
        try:
            yield
        finally:
            for metric in ours:
                del vars(metric)["result"]
            self._noted.clear()

    def returned(self, outputs: Any, *, means: bool) -> Any:
        """What a replica's step returns, such that its mean over the replicas is the value of the whole batch.

        Args:
            means: whether the values are parts of a loss and means that the step takes by itself.
        """
        unknown: list[str] = []

        def of_value(place: tuple[Any, ...], value: Any) -> Any:
            source = next((one for noted, one in self._noted if noted is value), None)
            if source is not None:
                self._metrics[place] = source
            if source is not None or not means:
                return value
            try:
                return _part(value)
            except UnknownSumError:
                unknown.append(str(place[-1]) if place else "its value")
                return value

        values = [of_value(place, value) for place, value in tree.flatten_with_path(outputs)]
        if unknown:
            what = f"{', '.join(sorted(unknown))}, which is neither of a metric nor a sum of means"
            _report_means(f"{type(self._model).__name__}: its step returns {what}")
        return tree.pack_sequence_as(outputs, values)

    def show(self) -> None:
        """Lets `shown` go by these."""
        _of_metrics[self._model] = self._metrics


def shown(original: Callable[..., Any], model: Any, logs: Any) -> Any:
    """What a step has returned last; results of metrics are those of all replicas."""
    values = original(model, logs)
    sources = _of_metrics.get(model)
    if values is not logs or not sources:
        return values

    def whole(place: Any, value: Any) -> Any:
        if place not in sources:
            return value
        metric, within = sources[place]
        return functools.reduce(lambda one, name: one[name], within, metric.result())

    return tree.pack_sequence_as(logs, [whole(place, value) for place, value in tree.flatten_with_path(logs)])


def update_mean(original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None) -> Any:
    """A Mean that takes one number for a batch, of a step of the user's or of a function, takes that of the whole."""
    of_function = isinstance(metric, keras.metrics.MeanMetricWrapper)
    if here.share is None or here.by_batch or not _is_number(values) or not (of_function or here.shares is not None):
        return original(metric, values, sample_weight)
    if sample_weight is not None:
        # The weight counts this replica's examples.
        values = tf.math.divide_no_nan(values, tf.cast(here.share, values.dtype)) if is_noted(values) else values
    elif of_function and tf.executing_eagerly():
        values = _weighed(values)
    else:
        try:
            values = _part(values)
        except UnknownSumError:
            _report_means(f"the metric {metric.name} takes one number for a batch, which is no sum of means")
            values = _weighed(values)
    return original(metric, values, sample_weight)


def _is_number(value: Any) -> bool:
    return bool(tf.is_tensor(value) and value.dtype.is_floating and value.shape.rank == 0)


def _part(value: Any) -> Any:
    """The part of a loss, or of a sum of means, times the number of replicas; any other value as it is.

    Raises:
        UnknownSumError: it is one number, and no such sum.
    """
    if not _is_number(value):
        return value
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    if is_noted(value):
        return value * replicas
    if tf.executing_eagerly():
        return value
    penalties = here.model.losses if here.shares is not None else ()
    means = means_of([value], divided=is_noted, whole=lambda tensor: any(tensor is one for one in penalties))
    share = tf.cast(here.share, value.dtype)
    part = tf.add_n([value, *(tf.cast(factor * (share - 1) * mean, value.dtype) for mean, factor in means)])
    return _if_any(part) * replicas


def _weighed(value: Any) -> Any:
    """By the replica's part of the examples, such that the mean over the replicas is that of the whole batch."""
    replicas = tf.distribute.get_replica_context().num_replicas_in_sync
    return _if_any(value * tf.cast(here.share, value.dtype)) * replicas


def _if_any(value: Any) -> Any:
    """0 on a replica without examples, whose mean is NaN."""
    return tf.where(here.share > 0, value, tf.zeros_like(value))


def _report_means(what: str) -> None:
    if what not in _reported and getattr(tf.distribute.get_strategy().extended, "should_checkpoint", True):
        log.warning(f"{what}: what is shown is the mean over the replicas")
    _reported.add(what)
