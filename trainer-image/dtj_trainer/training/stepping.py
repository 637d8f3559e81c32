"""How many steps there are, and how many to take before the next look around. Pure."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

CALL_SECONDS = 0.5
"""What one call of several steps may take, so that a signal is answered within two of them."""


def steps_within(most: int, steps_per_second: float | None, seconds: float = CALL_SECONDS) -> int:
    """Steps of a call that takes no longer than this many seconds at this rate: at least 1, at most `most`."""
    return most if steps_per_second is None else max(1, min(most, int(seconds * steps_per_second)))


@dataclass(frozen=True)
class EverySteps:
    """Something that is due after each `steps` steps, and after the last."""

    steps: int | None
    """None: after the last step alone."""
    total_steps: int = sys.maxsize
    """The last step, if it is known."""

    def steps_until_due(self, step: int) -> int:
        """Steps until the next one after which it is due."""
        left = self.total_steps - step
        return min(left, self.steps - step % self.steps) if self.steps else left

    def is_due(self, step: int) -> bool:
        """Whether it is due after this step."""
        return self.was_due(step - 1, step)

    def was_due(self, before: int, step: int) -> bool:
        """Whether it is due after one of the steps after `before`, up to `step`."""
        return step >= self.total_steps or (self.steps is not None and step // self.steps > before // self.steps)


def total_steps(examples: int, *, epochs: int, batch: int) -> int:
    """Steps until each example was seen `epochs` times, rounded up to full batches."""
    return -(-epochs * examples // batch)


def epoch_of(step: int, *, examples: int, batch: int, epochs: int) -> int:
    """The epoch, counted from 1, that the last example of this step (or the first, for step 0) belongs to."""
    return min(epochs, (max(1, step * batch) - 1) // examples + 1)


def fit_segments(step: int, total_steps: int, steps_per_epoch: int) -> Iterator[tuple[int, int, int]]:
    """The calls of Keras' `fit` that lead from this step to the last: first epoch, epoch to stop before, steps of each.

    The rest of an epoch that was left in its middle, the whole ones, and the rest of the last.
    """
    while step < total_steps:
        epoch, offset = divmod(step, steps_per_epoch)
        whole = 0 if offset else (total_steps - step) // steps_per_epoch
        steps = steps_per_epoch if whole else min(steps_per_epoch - offset, total_steps - step)
        yield epoch, epoch + max(1, whole), steps
        step += max(1, whole) * steps
