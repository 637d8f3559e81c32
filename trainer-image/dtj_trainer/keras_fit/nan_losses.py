"""Ends the `fit` of a script whose loss is NaN or infinite, and lets Keras' callbacks save nothing that is.

Keras' own TerminateOnNaN stops a `fit`, and the script goes on and exports what it has. A loss is looked at when all
tasks agree on what to do, and not before: to read it would wait for the device at each step. Imports TensorFlow.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from dtj_trainer.checkpoint.finite_weights import FiniteWeights
from dtj_trainer.compat import LOSS
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.config.nonfinite import on_which, workers_of
from dtj_trainer.errors import NotFinite
from dtj_trainer.two_kerases import state, variables

_LOOK_BATCHES = 16
"""So often losses are looked at: to read one waits for the device. All workers have to do it at the same batch."""
_WAITING_AT_MOST = 1000


class FitLosses:
    """The losses of the models that are trained by `fit` in this process. Of None, no model, nothing is noted."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of_models: WeakKeyDictionary[Any, _Fit] = WeakKeyDictionary()

    def replicas(self, model: Any, not_finite: Any) -> None:
        """Notes of which replicas of a model the loss of the present batch is not finite, as numbers."""
        self._of(model).replicas = not_finite

    def replicas_of(self, model: Any) -> Any:
        """What `replicas` noted last; None where there is one replica."""
        return self._of_models[model].replicas if model in self._of_models else None

    def epoch(self, model: Any, epoch: int) -> None:
        """Notes that an epoch begins; they count from 0."""
        if model is None:
            return
        fit = self._of(model)
        fit.epoch = epoch
        if model.built:
            fit.weights_of(model)

    def batch(self, model: Any, batch: int, logs: Any) -> None:
        """Notes the loss of a batch, or of the epoch up to it.

        Args:
            batch: the number of the batch in its epoch, from 0.

        Raises:
            NotFinite: it is not finite, or one before it is not.
        """
        if model is None:
            return
        fit = self._of(model)
        if LOSS in (logs or {}):
            fit.losses.add(logs[LOSS], fit.replicas)
            fit.losses.taken(len(fit.places))
            fit.places.append((fit.epoch, batch))
            if len(fit.places) > _LOOK_BATCHES:
                self.look(model)

    def look(self, model: Any, *, weights: bool = False) -> None:
        """Looks at all that is noted.

        Args:
            weights: whether the weights have to be finite, too.

        Raises:
            NotFinite: something of it is not.
        """
        if model is None:
            return
        fit = self._of(model)
        if found := fit.losses.first_not_finite():
            epoch, batch = fit.places[found.step]
            raise NotFinite(self._line("the loss is", epoch, batch, found.replicas, model))
        if weights and (found_state := fit.weights_of(model).find_not_finite()):
            epoch, batch = fit.places[-1] if fit.places else (0, 0)
            raise NotFinite(self._line(found_state.what, epoch, batch, (), model))
        fit.losses, fit.places = ReportedLosses(_strategy_of(model)), fit.places[-1:]

    def _line(self, what: str, epoch: int, batch: int, replicas: Sequence[int], model: Any) -> str:
        total = _strategy_of(model).num_replicas_in_sync
        workers = on_which(workers_of(self._cluster, replicas, total=total))
        return (
            f"{what} not finite at step {batch + 1} of epoch {epoch + 1}{workers}; lower the learning rate, or look at "
            "the examples of that step; --keras-override=off leaves it to the script"
        )

    def _of(self, model: Any) -> "_Fit":
        if model not in self._of_models:
            self._of_models[model] = _Fit(_strategy_of(model))
        return self._of_models[model]


class _Fit:
    def __init__(self, strategy: Any) -> None:
        self.losses = ReportedLosses(strategy)
        self.places: list[tuple[int, int]] = []
        """Epoch and batch of each loss."""
        self.epoch = 0
        self.replicas: Any = None
        self._weights: FiniteWeights | None = None
        self._knows_optimizer = False

    def weights_of(self, model: Any) -> FiniteWeights:
        """What of the model has to be finite; the first call decides it, but for an optimizer that is built later."""
        optimizer = getattr(model, "optimizer", None)
        slots = state(optimizer) if getattr(optimizer, "built", False) and not self._knows_optimizer else []
        if self._weights is None:
            self._weights = FiniteWeights(
                variables(model.trainable_variables), variables(model.non_trainable_variables), slots
            )
        elif slots:
            self._weights.require(slots)
        self._knows_optimizer |= bool(slots)
        return self._weights


def model_of(callbacks: Any) -> Any:
    """The model of Keras' list of callbacks; None for one of a loop of the user's own, which has none."""
    return getattr(callbacks, "model", None)


def _strategy_of(model: Any) -> Any:
    return model.distribute_strategy or tf.distribute.get_strategy()


@dataclass(frozen=True, kw_only=True)
class NotFiniteLoss:
    """The first loss that is not finite."""

    step: int
    """The last of the steps that it was reported for."""
    replicas: Sequence[int]
    """The replicas whose share of the loss is not finite; none where that is not known."""


class ReportedLosses:
    """Keeps what is reported until it is looked at."""

    def __init__(self, strategy: Any) -> None:
        self._strategy = strategy
        self._of_this_step: list[tuple[Any, Any]] = []
        self._waiting: list[tuple[int, Any, Any]] = []
        self._first: NotFiniteLoss | None = None

    def add(self, loss: Any, not_finite: Any = None) -> None:
        """Notes a loss of the steps under way.

        Args:
            loss: whatever float() takes, or a value of each replica.
            not_finite: of each replica whether its share is not finite, as numbers; None where it is not known.
        """
        self._of_this_step.append((loss, not_finite))

    def taken(self, step: int) -> None:
        """Notes that the steps under way are done, up to this one."""
        self._waiting += [(step, *reported) for reported in self._of_this_step]
        self._of_this_step = []
        if len(self._waiting) >= _WAITING_AT_MOST:
            self._look()

    def first_not_finite(self) -> NotFiniteLoss | None:
        """Of all losses so far."""
        self._look()
        return self._first

    def _look(self) -> None:
        waiting, self._waiting = self._waiting, []
        for step, loss, not_finite in waiting if self._first is None else ():
            if not is_finite(loss, self._strategy):
                replicas = () if not_finite is None else tuple(np.flatnonzero(np.asarray(not_finite)).tolist())
                self._first = NotFiniteLoss(step=step, replicas=replicas)
                return


def is_finite(loss: Any, strategy: Any) -> bool:
    """Whether all numbers of a loss are finite; what is no number is not judged."""
    try:
        return all(bool(np.all(np.isfinite(np.asarray(each)))) for each in strategy.experimental_local_results(loss))
    except (TypeError, ValueError, NotImplementedError):
        return True
