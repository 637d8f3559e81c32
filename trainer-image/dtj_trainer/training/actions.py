"""What the controller does after certain steps besides saving and reporting, such as a validation.

Imports TensorFlow.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from dtj_trainer.metrics.step_timing import EverySteps
from dtj_trainer.tasks.aggregation import Measured


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Where the training stands while an action runs. No step is under way."""

    step: int
    """The last one that was taken."""
    alive: Callable[[], object]
    """To be called now and then by an action that may take long."""
    save: Callable[[], object]
    """Saves this step on all tasks, and returns when it is saved."""


class Action(Protocol):
    """Something that all tasks do after the same steps."""

    @property
    def schedule(self) -> EverySteps:
        """After which steps it is due."""
        ...

    @property
    def is_overdue(self) -> bool:
        """Whether the run before this one left the step that this run begins with without it."""
        ...

    @property
    def changes_training(self) -> bool:
        """Whether a checkpoint of this step has to hold what it did; else it is left to the next run if this one stops.

        Those that change the training come before those that do not.
        """
        ...

    @property
    def values(self) -> Mapping[str, float]:
        """What it found last, to be shown with the progress."""
        ...

    def observe(self, metrics: Measured) -> None:
        """Takes the metrics of the steps that were just taken; called after every call of the inner loop."""
        ...

    def run(self, pause: Pause) -> bool:
        """Runs. Returns False if a task was asked to stop meanwhile; then it is not done."""
        ...
