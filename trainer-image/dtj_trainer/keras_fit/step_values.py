"""What a train step or test step of the user's own shows, such that it is the value of the whole batch.

Each replica's number counts by its share of the examples. What is the result of a metric is asked of the metric between
the steps, when its variables are those of all replicas. Imports TensorFlow.
"""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import incompatible
from dtj_trainer.errors import Undivided, accept
from dtj_trainer.keras_fit.metric_updates import result_of_all, watching
from dtj_trainer.keras_fit.replica_losses import counted_here, gathered, here, of_whole
from dtj_trainer.training.loss_division import Parts, agreeing, off

try:
    from keras.src import tree
except ImportError as error:
    raise incompatible(str(error), library="keras") from None

Possible = frozenset[Parts]
"""What a number of a batch may be of those of its parts; nothing: the user accepts that it is none of it."""
_NOISE, _TIMES = 1e-3, 10.0
"""A number that differs by less where the examples have another order is compared with so many times the difference."""
_OF_CPU, _OF_OTHERS = 1e-5, 1e-4
"""Of the largest of the numbers: a GPU may convolve a batch of another size in another way."""
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
            asked = functools.partial(original, *args, **kwargs)
            value = result_of_all(metric, asked) if here.results and not here.updating else asked()
            self._noted += [(one, (metric, place)) for place, one in tree.flatten_with_path(value)]
            return value

        try:
            with watching(owners, result):
                yield
        finally:
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
            here.noted.means.append((metric, values))
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


class Values:
    """What parts of a batch show of the numbers of a step."""

    def __init__(self, step: str, rows: int, *, unchecked: Sequence[str]) -> None:
        """Args:
        step: which it is, which the line of a refusal begins with.
        rows: examples of a batch.
        unchecked: names of what the user accepts as it is.
        """
        self._step, self._rows, self._unchecked = step, rows, unchecked
        of_cpu = all(one.device_type == "CPU" for one in tf.config.list_logical_devices())
        self._tolerance = _OF_CPU if of_cpu else _OF_OTHERS

    def possible(self, tries: Iterable[Sequence[Any]], name: str, does: str) -> Possible:
        """How a number, or several, of a step come of those of the parts of a batch.

        Args:
            tries: of batches, each of the parts that `compared` gives.
            name: of the metric that gets it, or under which it is returned.

        Raises:
            Undivided: they do not, and the user does not accept that.
        """
        found = frozenset.intersection(*map(self._possible_of, tries))
        if not found:
            what = f"{does} {name}" + "," * (does == "returns")
            accept(
                Undivided(
                    name,
                    f"{self._step} {what} a number that is neither the mean nor the sum of what the examples give each "
                    "by itself, so replicas cannot put it together; update a metric with the labels and outputs that "
                    "it is computed of, such as keras.metrics.MeanMetricWrapper(function), or train on one device",
                ),
                self._unchecked,
            )
        return found

    def _possible_of(self, each: Sequence[Any]) -> Possible:
        if each[0] is None:
            return frozenset((Parts.EACH,))
        whole, reversed_, first, rest = (np.asarray(one) for one in each)
        by_row = whole.ndim and len(whole) == self._rows
        noise = off(whole, reversed_[::-1] if by_row else reversed_) if whole.shape == reversed_.shape else 0.0
        tolerance = max(self._tolerance, _TIMES * noise if noise < _NOISE else 0.0)
        return _of_numbers(whole, first, rest, share=(self._rows // 3) / self._rows, tolerance=tolerance)


def _of_numbers(whole: Any, first: Any, rest: Any, *, share: float, tolerance: float) -> Possible:
    """How a number, or several, comes of those of two parts of a batch."""
    possible = agreeing(whole, first, rest, share=share, tolerance=tolerance)
    if whole.ndim and whole.shape == first.shape == rest.shape:  # of each class, say
        each = zip(whole.ravel(), first.ravel(), rest.ravel(), strict=True)
        of_each = (agreeing(*one, share=share, tolerance=tolerance) for one in each)
        possible |= set.intersection(*of_each, set(Parts))
    return frozenset(possible - {Parts.NONE})
