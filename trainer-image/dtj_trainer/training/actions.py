"""What the controller does after certain steps besides saving and reporting: a validation, or a user's actions.

Imports TensorFlow.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dtj_launch.ledger import Doing
from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import UsageError
from dtj_trainer.periodic import EverySteps
from dtj_trainer.process.user_function import guarded, load
from dtj_trainer.training.metric_values import Measured


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Where the training stands while an action runs. No step is under way."""

    step: int
    """The last one that was taken."""
    alive: Callable[[], object]
    """To be called now and then by an action that may take long."""
    save: Callable[[], bool]
    """Saves this step on all tasks, and returns whether it is saved; a line has said why it is not."""


class Action:
    """Something that all tasks do after the same steps."""

    schedule: EverySteps
    """After which steps it is due."""
    is_overdue = False
    """Whether the run before this one left the step that this run begins with without it."""
    changes_training = True
    """Whether a checkpoint of this step has to hold what it did; else it is left to the next run if this one stops.

    Those that change the training come before those that do not.
    """

    doing = Doing.OTHER
    """What the training does while it runs."""

    @property
    def values(self) -> Mapping[str, float]:
        """What it found last, to be shown with the progress."""
        return {}

    def observe(self, metrics: Measured) -> None:
        """Takes the metrics of the steps that were just taken; called after every call of the inner loop."""

    def run(self, pause: Pause) -> bool:
        """Runs. Returns False if a task was asked to stop meanwhile; then it is not done."""
        raise NotImplementedError


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


class UserAction(Action):
    """Calls what a user gave, which may change the training: nobody knows."""

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
