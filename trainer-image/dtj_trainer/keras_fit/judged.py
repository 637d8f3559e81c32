"""How losses and metrics divide over replicas, as real examples have shown. Imports TensorFlow and Keras.

What is not known counts as what no replica can compute by itself: it is computed of the examples of all of them, which
is always right, and costs more.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import incompatible, private
from dtj_trainer.compat.keras3 import options_of_loss
from dtj_trainer.distribution.gathering import bytes_of
from dtj_trainer.training.global_batch_loss import by_example, gives_each, typed
from dtj_trainer.training.loss_division import Parts, loss_of_parts, part_of, rows_of
from dtj_trainer.training.metric_values import is_sum

try:
    from keras.src import tree
    from keras.src.losses.losses import LossFunctionWrapper
except ImportError as error:
    raise incompatible(str(error), library="keras") from None


class Judged:
    """What is known of losses and metrics."""

    def __init__(self) -> None:
        self.losses: WeakKeyDictionary[Any, Parts] = WeakKeyDictionary()
        self.metrics: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
        """Whether what they keep of a batch is the sum of what they keep of its parts."""
        self.added: WeakKeyDictionary[Any, Sequence[Parts]] = WeakKeyDictionary()
        """Of models: how the losses divide that their layers add."""
        self._functions: dict[Any, Parts] = {}
        """The same of losses by what they are made of, for one that a step makes anew."""
        self.bytes_of_each: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """What an example's labels and outputs take that a loss or a metric is given."""

    def of_loss(self, loss: Any) -> Parts:
        """How a loss divides."""
        unknown = Parts.EACH if gives_each(loss) else Parts.NONE
        found = self.losses.get(loss)
        return self._functions.get(_made_of(loss), unknown) if found is None else found

    def adds_up(self, metric: Any) -> bool:
        """Whether each replica may give a metric its own examples."""
        return self.metrics.get(metric, _adds_up(metric, None))

    def judge_loss(self, loss: Any, y_true: Any, y_pred: Any) -> None:
        """Finds out how a loss divides.

        Args:
            y_true: real labels.
            y_pred: outputs for them.
        """
        self._measure(loss, y_true, y_pred)
        found = Parts.EACH if gives_each(loss, y_pred) else loss_of_parts(_call_of(loss), y_true, y_pred)
        # One loss may be that of several outputs.
        self.put(loss, found if self.losses.get(loss, found) is found else Parts.NONE)

    def put(self, loss: Any, parts: Parts) -> None:
        """Notes how a loss divides."""
        self.losses[loss] = parts
        made = _made_of(loss)
        self._functions[made] = parts if self._functions.get(made, parts) is parts else Parts.NONE

    def judge_metric(self, metric: Any, values: tuple[Any, Any, Any]) -> None:
        """Finds out whether a metric adds up.

        Args:
            values: real labels, outputs for them, and weights or None.
        """
        if _adds_up(metric, values[1]):
            return
        self._measure(metric, *values)
        rows = rows_of(values[1])
        first = max(1, rows // 3)
        parts = (slice(0, rows), slice(0, first), slice(first, rows))

        def of(part: slice) -> list[Any]:
            y_true, y_pred, weights = part_of(values, part)
            return gained(metric, partial(metric.update_state, y_true, y_pred, sample_weight=weights))

        whole, *each = map(of, parts)
        adds_up = rows > 1 and begins_at_zero(metric) and all(map(is_sum, whole, *each))
        self.metrics[metric] = adds_up and self.metrics.get(metric, True)

    def _measure(self, judged: Any, *values: Any) -> None:
        size = sum(bytes_of(one) for one in tree.flatten(values) if one is not None)
        self.bytes_of_each[judged] = self.bytes_of_each.get(judged, 0) + size // rows_of(values[1])


class Doubts(Judged):
    """What other examples show of losses that are taken for known."""

    def __init__(self, taken: Judged) -> None:
        """Args:
        taken: for known.
        """
        super().__init__()
        self._taken = taken
        self.wrong: list[str] = []
        """Losses that are not what they were taken for."""

    def judge_loss(self, loss: Any, y_true: Any, y_pred: Any) -> None:
        """Notes whether a loss is what it was taken for."""
        taken = self._taken.of_loss(loss)
        if gives_each(loss, y_pred) or taken is Parts.NONE:
            return
        if loss_of_parts(_call_of(loss), y_true, y_pred, known=taken) is not taken:
            self.wrong.append(f"the loss {loss.name}")

    def judge_metric(self, metric: Any, values: tuple[Any, Any, Any]) -> None:
        """Notes whether a metric is what it was taken for, which a single example does not show."""
        if rows_of(values[1]) < 2:
            return
        super().judge_metric(metric, values)
        if self._taken.adds_up(metric) and not self.metrics.get(metric, True):
            self.wrong.append(f"the metric {metric.name}")


def _call_of(loss: Any) -> Callable[[Any, Any], Any]:
    return lambda labels, outputs: loss.call(typed(loss, labels), typed(loss, outputs))


def gained(metric: Any, update: Callable[[], Any]) -> list[Any]:
    """What the variables of a metric are after this update alone."""
    zeros = [(variable, tf.zeros(variable.shape, variable.dtype)) for variable in metric.variables]
    with keras.StatelessScope(state_mapping=zeros) as scope:
        update()
        return [np.asarray(scope.get_current_value(variable), np.float64) for variable in metric.variables]


def begins_at_zero(metric: Any) -> bool:
    """Whether replicas that have seen nothing add nothing."""
    with keras.StatelessScope() as scope:
        metric.reset_state()
        begun = [scope.get_current_value(variable) for variable in metric.variables]
    return not any(np.any(value) for value in begun if value is not None)


def _adds_up(metric: Any, outputs: Any) -> bool:
    """Whether a metric is one of Keras' that adds up: all do, but for means of a function that compares examples.

    Args:
        outputs: what it is called with; None if this is not known.
    """
    of_keras = type(metric).__module__.startswith("keras.")
    if not isinstance(metric, keras.metrics.MeanMetricWrapper):
        return of_keras
    function, options = (private(metric, name, library="keras") for name in ("_fn", "_fn_kwargs"))
    return of_keras and by_example(function, options, outputs)


def _made_of(loss: Any) -> Any:
    """What two losses have in common that compute the same."""
    if isinstance(loss, LossFunctionWrapper):
        return type(loss), loss.fn, repr(sorted(options_of_loss(loss).items()))
    return type(loss)
