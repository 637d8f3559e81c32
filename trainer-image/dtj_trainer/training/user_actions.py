"""A user's actions: called every N steps of the trainer's own loop. Imports TensorFlow."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import UsageError
from dtj_trainer.metrics.step_timing import EverySteps
from dtj_trainer.process.user_function import guarded, load
from dtj_trainer.tasks.aggregation import Measured
from dtj_trainer.training.actions import Pause


class Callee(Protocol):
    """What the function of `--actions` returns a list of."""

    @property
    def every_steps(self) -> int:
        """It is called after each of these steps, and after the last step of the training."""
        ...

    def __call__(self, step: int, metrics: Mapping[str, float], model: Any) -> object:
        """Called by every task, after the same steps, before the checkpoint of that step.

        Args:
            step: the last one that was taken, counted from 1.
            metrics: means over the steps since the last call, or since this process began; the same on all tasks.
            model: as it is trained.
        """
        ...


class UserAction:
    """An `Action` of the controller."""

    changes_training = True
    """It may: nobody knows."""
    is_overdue = False
    values: Mapping[str, float] = {}

    def __init__(self, name: Name, callee: Callee, model: Any, *, total_steps: int) -> None:
        self._name = name
        self._callee = callee
        self._model = model
        self._measured: Measured | None = None
        self.schedule = EverySteps(callee.every_steps, total_steps)

    def observe(self, metrics: Measured) -> None:
        """See `Action`."""
        self._measured = metrics if self._measured is None else self._measured + metrics

    def run(self, pause: Pause) -> bool:
        """See `Action`.

        Raises:
            UsageError: the user's code raised something.
        """
        metrics, self._measured = dict(self._measured or {}), None
        what = f"{type(self._callee).__name__} at step {pause.step}"
        guarded(self._name, what, lambda: self._callee(pause.step, metrics, self._model))
        return True


def load_actions(name: Name | None, model: Any, *, total_steps: int) -> Sequence[UserAction]:
    """The actions of `--actions`.

    Raises:
        UsageError: what should give them does not.
    """
    if name is None:
        return []
    found = load(name)()
    if not isinstance(found, list) or not all(callable(one) and _is_period(one) for one in found):
        raise UsageError(
            f"{name}: gave {found!r:.100}; return a list of callables that have every_steps, a whole number from 1"
        )
    return [UserAction(name, one, model, total_steps=total_steps) for one in found]


def _is_period(callee: Any) -> bool:
    steps = getattr(callee, "every_steps", None)
    return isinstance(steps, int) and not isinstance(steps, bool) and steps >= 1
