"""Pictures, in directories that are their classes. Imports TensorFlow."""

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from dtj_trainer.data.class_names import check_alike
from dtj_trainer.data.files import FileSet, check_classes, class_folders, directory_of, fault_of, first_line
from dtj_trainer.data.full_batches import Indexed
from dtj_trainer.data.held_out_examples import ValidationShare
from dtj_trainer.data.source import searched
from dtj_trainer.errors import UsageError

CHANNELS = 3
_BEGINNING = re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP", re.DOTALL)


def is_picture(content: bytes) -> bool:
    """Whether something begins as the pictures do that are decoded."""
    return _BEGINNING.match(content) is not None


def decode_image(content: Any, size: tuple[int, ...]) -> Any:
    """One PNG, JPEG, WebP or first frame of a GIF -> float32 [height, width, 3] in [0, 1]."""
    pixels = tf.io.decode_image(content, channels=CHANNELS, expand_animations=False)
    pixels = tf.cast(pixels, tf.float32) / 255.0
    fitting = tf.reduce_all(tf.equal(tf.shape(pixels)[:2], size[:2]))
    pixels = tf.cond(fitting, lambda: pixels, lambda: tf.image.resize(pixels, size[:2], antialias=True))
    return tf.ensure_shape(pixels, size)


def size_of(content: bytes, wanted: tuple[int, int] | None, path: str) -> tuple[int, ...]:
    """Height, width and channels that all pictures are brought to: as wanted, or as the first one has them.

    Raises:
        UsageError: the first cannot be decoded.
    """
    try:
        height, width, channels = tf.io.decode_image(content, channels=CHANNELS, expand_animations=False).shape
    except tf.errors.OpError as error:
        raise _undecoded(path, error) from None
    return (*(wanted or (int(height), int(width))), int(channels))


def _undecoded(path: str, error: tf.errors.OpError) -> UsageError:
    return fault_of(path, error, f"cannot be decoded ({first_line(error)}); replace or remove it")


class Images(Indexed):
    """A source over picture files: a record is the number of a file, so every epoch is a permutation of all of them,
    and no file is read that is not this worker's."""

    decodes_batches = False

    def __init__(
        self,
        found: FileSet,
        validation: FileSet | None,
        share: ValidationShare | None,
        *,
        size: tuple[int, int] | None,
        option: str,
    ) -> None:
        """Args:
        validation: the files to evaluate on; None: this share of `found`.
        size: height and width to which all pictures are brought; None: those of the first.
        option: that gave the files, for errors.

        Raises:
            UsageError: directories that do not fit or look alike, an empty share, or a first picture of no use.
        """
        self.name = found.where
        self.classes = class_folders(found, option=option)
        check_alike({directory_of(path): path for path in found.paths}, found.where)
        self._paths = [*found.paths, *(validation.paths if validation else ())]
        labels = [self.classes.index(directory_of(path)) for path in found.paths]
        if validation:
            check_classes(validation.paths, self.classes, found.where)
            labels += [self.classes.index(directory_of(path)) for path in validation.paths]
            is_validation = np.arange(len(labels)) >= len(found.paths)
        else:
            assert share is not None
            is_validation = share.mask(tf.range(len(labels), dtype=tf.int64)).numpy()
        self._labels = np.asarray(labels, np.int64)
        self.training, self.validation_rows = (
            np.flatnonzero(which).astype(np.int64) for which in (~is_validation, is_validation)
        )
        self.examples, self.validation_examples = len(self.training), len(self.validation_rows)
        first = self._paths[0]
        try:
            content = tf.io.read_file(first).numpy()
        except tf.errors.OpError as error:
            raise _undecoded(first, error) from None
        self._size = size_of(content, size, first)
        self.input_spec = tf.TensorSpec((None, *self._size), tf.float32)

    def decoder(self) -> Callable[..., tuple[Any, Any]]:
        """Number of a file -> picture and class."""
        paths, labels = tf.constant(self._paths), tf.constant(self._labels)
        return lambda number: (decode_image(tf.io.read_file(paths[number]), self._size), labels[number])

    def describe(self) -> str:
        """What the inputs are, for a person."""
        return f"images of {'x'.join(map(str, self._size))}"

    def diagnose(self, *, until: float = math.inf) -> UsageError | None:
        """The first picture that cannot be read or decoded, as the error to raise; None where all can."""
        for path in searched(self._paths, until):
            try:
                decode_image(tf.io.read_file(path), self._size)
            except tf.errors.OpError as error:
                return _undecoded(path, error)
        return None
