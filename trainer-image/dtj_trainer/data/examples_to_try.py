"""Real examples to try a model and its losses with, before the training. Imports TensorFlow."""

from typing import Any

from dtj_trainer.data.full_batches import Indexed
from dtj_trainer.data.source import Source, Stream


def examples_to_try(data: Source, *, batch: int) -> Stream:
    """Endless full batches, the same on all workers.

    Examples to learn from, in an order drawn at random, where that costs nothing, or where too few are held out for
    one batch. Else held-out ones: files and streams are shuffled among thousands, which would be read for a few.
    """
    of = getattr(data, "undivided", data)
    held_out = of.validation_examples // batch
    if isinstance(of, Indexed) or not held_out:
        return of.batches(batch=batch, seed=0)
    return of.validation(batch=batch).take(held_out).repeat()


def first_to_try(data: Source, *, batch: int) -> Any:
    """The first of these batches."""
    return next(iter(examples_to_try(data, batch=batch)))
