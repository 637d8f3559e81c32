"""How many steps there are, and how many to take before the next look around. Pure."""

from dataclasses import dataclass, replace

_CALL_SECONDS = 0.5
"""What one call of several steps may take, so that a signal is answered within two of them."""


def steps_within(most: int, steps_per_second: float | None) -> int:
    """Steps of a call that takes no longer than half a second at this rate: at least 1, at most `most`."""
    return most if steps_per_second is None else max(1, min(most, int(_CALL_SECONDS * steps_per_second)))


@dataclass(frozen=True, kw_only=True)
class Course:
    """Which examples the steps of a run take: each the next `batch` of them, epoch after epoch without a gap.

    A run that resumes with another batch goes on after the last example that was seen. Its steps are counted on.
    """

    examples: int
    """Of an epoch."""
    epochs: int
    batch: int
    """Global batch size."""
    offset: int = 0
    """Examples that the steps before a resume took beyond this batch size; below 0: they took fewer."""

    @property
    def total_steps(self) -> int:
        """Steps until each example was seen `epochs` times, rounded up to full batches."""
        return -(-(self.epochs * self.examples - self.offset) // self.batch)

    @property
    def steps_per_epoch(self) -> int:
        """Whole steps, as validations count an epoch."""
        return -(-self.examples // self.batch)

    @property
    def shift(self) -> int:
        """What a step is less than it would be if all steps had taken this batch; rounded down."""
        return self.offset // self.batch

    @property
    def whole_epochs(self) -> int:
        """Epochs of whole steps, the last of which may be shorter."""
        return -(-(self.total_steps + self.shift) // self.steps_per_epoch)

    def describe_whole_epochs(self) -> str | None:
        """That epochs of whole steps are fewer than were asked for; None if they are as many."""
        if self.whole_epochs == self.epochs:
            return None
        of_examples = f"{self.examples / self.batch:.2f}".rstrip("0").rstrip(".")
        return (
            f"--epochs={self.epochs}: validations count {self.whole_epochs} epochs, of "
            f"{self.steps_per_epoch} whole steps each; the {self.examples} examples are {of_examples} steps of "
            f"{self.batch}: give a batch size that divides them if each epoch has to count"
        )

    def seen(self, step: int) -> int:
        """Examples that are seen when this many steps are done."""
        return step * self.batch + self.offset

    def epoch_of(self, step: int) -> int:
        """The epoch, counted from 1, that the last example of this step (or the first, for step 0) belongs to."""
        return min(self.epochs, (max(1, self.seen(step)) - 1) // self.examples + 1)

    def resumed(self, step: int, *, seen: int) -> "Course":
        """The same epochs from a step on before which this many examples were seen."""
        return replace(self, offset=seen - step * self.batch)
