"""What is wrong with the data, found out when TensorFlow fails on them: its own message names no file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from dtj_trainer.errors import UsageError

_OF_DATA = (
    tf.errors.InvalidArgumentError,
    tf.errors.DataLossError,
    tf.errors.NotFoundError,
    tf.errors.OutOfRangeError,
    tf.errors.PermissionDeniedError,
    tf.errors.UnknownError,
)


@contextmanager
def diagnosing_data_errors(source: Any) -> Iterator[None]:
    """Turns an error that a file of the source is to blame for into one line; all others pass.

    Raises:
        UsageError: the first file that cannot be used, and why.
    """
    try:
        yield
    except _OF_DATA:
        diagnose = getattr(source, "diagnose", None)
        if diagnose is not None and (fault := diagnose()):
            raise UsageError(fault) from None
        raise
