"""How many steps there are, and how many to take before the next look around. Pure."""

from collections.abc import Iterator

from dtj_trainer.config.parsing import CheckpointPolicy

CALL_SECONDS = 0.5
"""What one call of several steps may take, so that a signal is answered within two of them."""


def steps_within(most: int, steps_per_second: float | None, seconds: float = CALL_SECONDS) -> int:
    """Steps of a call that takes no longer than so many seconds at this rate: at least 1, at most `most`."""
    return most if steps_per_second is None else max(1, min(most, int(seconds * steps_per_second)))


def steps_until_checkpoint(step: int, total_steps: int, policy: CheckpointPolicy) -> int:
    """Steps until the next one after which a checkpoint is due by its number, or until the end."""
    left = total_steps - step
    return min(left, policy.every_steps - step % policy.every_steps) if policy.every_steps else left


def is_checkpoint_step(step: int, total_steps: int, policy: CheckpointPolicy) -> bool:
    """Whether a checkpoint is due by the number of the step: after every so many, and after the last."""
    return step >= total_steps or (policy.every_steps is not None and step % policy.every_steps == 0)


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
