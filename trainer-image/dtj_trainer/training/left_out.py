"""Which batches `--on-nan=rollback` leaves out. Must not import TensorFlow."""

from dtj_trainer.config.nonfinite import NotFiniteStep


class LeftOut:
    """Finds the batches that make a training not finite, and remembers them.

    The step whose loss is not finite need not be the one to blame: a gradient may be infinite whose loss is not, and
    then it is the next loss that shows it, or the weights before a checkpoint. So the steps after a rollback are
    repeated one by one, and the weights looked at after each.
    """

    def __init__(self) -> None:
        self._steps: set[int] = set()
        self._guess: int | None = None
        self._one_by_one_until = 0

    def __len__(self) -> int:
        return len(self._steps)

    def next(self, step: int, *, total_steps: int) -> int:
        """How many steps are done before the next batch that is left out; `total_steps` if there is none.

        Args:
            step: the number of steps done.
        """
        return min((each - 1 for each in self._steps if each > step), default=total_steps)

    def is_repeated_alone(self, step: int) -> bool:
        """Whether the step after this one is taken alone, with a look at the weights after it."""
        return step < self._one_by_one_until

    def blame(self, found: NotFiniteStep) -> str:
        """Notes what was found; returns what follows from it, in words."""
        if found.step > self._one_by_one_until:
            self._guess = None  # The steps before it were finite without the batch: it was the right one.
        elif self._guess is not None:
            self._steps.discard(self._guess)
        before, self._guess = self._guess, None
        if not found.is_exact and found.step > self._one_by_one_until:
            self._one_by_one_until = found.step
            return f"the steps up to {found.step} are repeated one by one, to find the batch"
        self._one_by_one_until = found.step - 1
        self._steps.add(found.step)
        self._guess = found.step
        spared = f", that of step {before} is not" if before is not None else ""
        return f"the batch of step {found.step} is left out{spared}"
