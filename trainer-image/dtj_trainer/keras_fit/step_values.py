"""What a train step or test step of the user's own shows, such that it is the value of the whole batch.

Each replica's number counts by its share of the examples. What is the result of a metric is asked of the metric between
the steps, when its variables are those of all replicas. Imports TensorFlow.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import keras
import tensorflow as tf

from dtj_trainer.compat import incompatible
from dtj_trainer.keras_fit.replica_losses import counted_here, gathered, here, of_whole
from dtj_trainer.training.loss_division import Parts

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

_of_metrics: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
"""By model, which values of its last step are the results of which metrics."""


class Results:
    """Which values that a step returns are results of metrics, noted while the step is traced."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._noted: list[tuple[Any, Any]] = []
        """(value, what it is of): a metric, and the place in its result."""
        self._metrics: dict[Any, Any] = {}
        self.parts: Mapping[Any, Parts] = {}
        """How a value that a step of the user's own returns comes of those of its parts, by its place."""

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

    def returned(self, outputs: Any) -> Any:
        """What a replica's step returns, such that its mean over the replicas is the value of the whole batch."""

        def of_value(place: tuple[Any, ...], value: Any) -> Any:
            source = next((one for noted, one in self._noted if noted is value), None)
            if source is not None:
                self._metrics[place] = source
            # A step may return a variable, such as the learning rate, and a number of Python's.
            value = _as_float(value if tf.is_tensor(value) else tf.convert_to_tensor(value))
            if source is not None or here.model is None or not _is_number(value):
                return value
            parts = self.parts.get(place, Parts.NONE)
            if value.shape.rank and parts not in (Parts.MEAN, Parts.SUM):
                return gathered(value)
            return _of_parts(value, parts)

        values = [of_value(place, value) for place, value in tree.flatten_with_path(outputs)]
        return tree.pack_sequence_as(outputs, values)

    def show(self) -> None:
        """Lets `shown` go by these."""
        _of_metrics[self._model] = self._metrics


def shown(original: Callable[..., Any], model: Any, logs: Any) -> Any:
    """What a step has returned last, or the results of all metrics if these are what it seems to return."""
    values = original(model, logs)
    return whole(model, logs) if values is logs else values


def whole(model: Any, outputs: Any) -> Any:
    """What a step has returned last; results of metrics are those of all replicas."""
    sources = _of_metrics.get(model) or {}

    def of_all(place: Any, value: Any) -> Any:
        if place not in sources:
            return value
        metric, within = sources[place]
        return functools.reduce(lambda one, name: one[name], within, metric.result())

    values = [of_all(place, value) for place, value in tree.flatten_with_path(outputs)]
    return tree.pack_sequence_as(outputs, values)


def update_mean(original: Callable[..., Any], metric: Any, values: Any, sample_weight: Any = None) -> Any:
    """A Mean that takes one number for a batch, of a step of the user's or of a function, takes that of the whole."""
    if here.share is not None and sample_weight is not None and _is_vector_with_number(values, sample_weight):
        # Keras takes the mean of these values, and weighs it: here, the mean of those of all replicas.
        mean, size = tf.reduce_mean(values), tf.cast(tf.size(values), values.dtype)
        values = tf.math.divide_no_nan(mean, here.share) if here.of_all else mean * of_whole(size)
        return original(metric, values, sample_weight)
    values = _as_float(values)
    of_function = isinstance(metric, keras.metrics.MeanMetricWrapper)
    if here.share is None or here.by_batch or not (of_function or here.model is not None):
        return original(metric, values, sample_weight)
    one_number = sample_weight is None and _is_number(values) and not values.shape.rank
    if one_number and not of_function:
        if here.noted is not None:
            here.noted.means.append(values)
        # The batch counts once, also on a replica without examples.
        here.once_a_batch = [*here.once_a_batch, metric]
        place, here.measured = here.measured, here.measured + 1
        sums = place < len(here.means) and here.means[place] is Parts.SUM
        # How many batches it has seen needs no batch, and TensorFlow would count one more where the data end.
        with tf.control_dependencies([values]):
            return original(metric, _of_parts(values, Parts.SUM) if sums else _weighed(values))
    # A weight counts this replica's examples.
    weighs = sample_weight is None and of_function
    return original(metric, _weighed(values) if weighs else values, sample_weight)


def _as_float(value: Any) -> Any:
    """A count as a number that replicas may have parts of; all else as it is."""
    value = tf.convert_to_tensor(value) if isinstance(value, keras.Variable) else value
    return tf.cast(value, tf.float32) if tf.is_tensor(value) and value.dtype.is_integer else value


def _is_number(value: Any) -> bool:
    return bool(tf.is_tensor(value) and value.dtype.is_floating)


def _is_vector_with_number(values: Any, weight: Any) -> bool:
    return bool(_is_number(values) and values.shape.rank and not len(getattr(weight, "shape", ())))


def _weighed(value: Any) -> Any:
    """One number, by the replica's part of the examples, such that the mean over the replicas is that of the whole."""
    return value if not _is_number(value) or value.shape.rank else _of_parts(value, Parts.MEAN)


def _of_parts(value: Any, parts: Parts) -> Any:
    """A number, or one for each of some kinds, such that the mean over the replicas is that of the whole."""
    replicas = tf.cast(_replicas(), value.dtype)
    if parts is Parts.SUM:
        return counted_here(value) * replicas
    # The mean of no examples is NaN.
    share = tf.cast(here.share, value.dtype)
    return tf.where(share > 0, value * share * replicas, tf.zeros_like(value))


def _replicas() -> int:
    return int(tf.distribute.get_replica_context().num_replicas_in_sync)
