"""What the training loops know of their data: a source of batches whose order is a function of the seed alone.

Imports TensorFlow.
"""

import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import tensorflow as tf

from dtj_trainer.process.watchdog import moving

log = logging.getLogger(__name__)

T = TypeVar("T")
Stream = Any
"""A tf.data.Dataset of batches (inputs, labels): TensorFlow carries no types."""

_OF_DATA = (
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnknownError,
)
_IN_READING = re.compile(r"IteratorGetNext\w*(?:\}\})?\]")
"""In TensorFlow's message of an error that an iterator has met, and not the model: not in `[[IteratorGetNext/_2]]`, by
which a step on an accelerator names where the inputs of the model came from."""
SEARCH_SECONDS = 300.0
"""As long is looked for the file that an error is of; reading all of large data would take hours."""


class Source(Protocol):
    """Training and validation examples. They do not overlap.

    The same source serves every strategy and any number of workers. A run that resumes asks for the batches after
    those it has seen, and gets them exactly.
    """

    name: str
    """For a person."""
    classes: tuple[str, ...]
    """What the labels 0, 1, … mean; empty where labels are numbers to be predicted."""
    examples: int
    """To learn from: what an epoch is."""
    validation_examples: int
    """To be judged by."""
    input_spec: Any
    """A tf.TensorSpec of a batch of inputs, [None, ...], as the model gets it."""

    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """Endless full batches for training.

        Args:
            batch: examples in each: the global batch size, of which the strategy gives each worker its share.
            seed: of the order; a whole number, or a tensor of one.
            first_step: how many batches of the stream to leave out.
            offset: how many examples to leave out beyond these batches; below 0: fewer. See `stepping.Course`.
        """
        ...

    def validation(self, *, batch: int) -> Stream:
        """All held-out examples once, always in the same order; the last batch may be smaller."""
        ...


def stream_options() -> Any:
    """Options of every stream: it keeps its order, and shares batches."""
    options = tf.data.Options()
    # Each worker takes its share of every global batch: the same batches whatever the number of workers.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    options.deterministic = True
    return options


def endless(stream: Stream) -> Stream:
    """A stream of batches for training with what each of them needs: its cardinality, prefetching and options."""
    # An end that nobody rules out would make all workers ask each other at every step whether it has come.
    stream = stream.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    return stream.prefetch(tf.data.AUTOTUNE).with_options(stream_options())


def searched(parts: Iterable[T], until: float) -> Iterator[T]:
    """The parts of data that are read to find the cause of an error.

    Raises:
        TimeoutError: it is later than `until`, of the monotonic clock.
    """
    for part in moving(parts):
        if time.monotonic() > until:
            raise TimeoutError
        yield part


@contextmanager
def diagnosing_data_errors(source: Any) -> Iterator[None]:
    """Turns an error that a file of the source is to blame for into one line; all others pass.

    TensorFlow's own message names no file. For an error of the model none is looked for.

    Raises:
        UsageError: the first file that cannot be used, and why.
    """
    try:
        yield
    except _OF_DATA as error:
        diagnose, fault = getattr(source, "diagnose", None), None
        if diagnose is not None and _IN_READING.search(str(error)):
            try:
                fault = diagnose(until=time.monotonic() + SEARCH_SECONDS)
            except TimeoutError:
                log.warning(
                    f"{source.name}: what this error is of was not found in {SEARCH_SECONDS:.0f} s of reading; "
                    "more was not read"
                )
        if fault:
            raise fault from None
        raise
