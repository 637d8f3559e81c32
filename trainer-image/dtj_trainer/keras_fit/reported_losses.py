"""The losses that a loop of the user's reports: which is the first that is not finite. Imports TensorFlow.

A loss is looked at when all tasks agree on what to do, and not before: to read it would wait for the device at each
step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_WAITING_AT_MOST = 1000


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
