"""Files that gzip has compressed, known by the ends of their names. Imports TensorFlow."""

import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from dtj_trainer.errors import UsageError
from dtj_trainer.process.watchdog import moved

ENDING = ".gz"
"""In small letters; names may have others."""
_GZIP = zlib.MAX_WBITS | 16
_AT_ONCE = 2**16
"""Bytes. Small, since what is behind the end of a stream is copied, and a file may have thousands of streams."""


def is_compressed(path: str) -> bool:
    """Whether its name says that it is."""
    return path.lower().endswith(ENDING)


def compression(path: Any) -> Any:
    """What TensorFlow's readers call it, by the file's name."""
    return tf.where(tf.strings.regex_full_match(path, r"(?is).*\.gz"), "GZIP", "")


def check_ends(paths: Sequence[str]) -> None:
    """That no compressed file among these is cut off.

    TensorFlow takes what is there for all of it. What else may be wrong it finds itself. So each of them is read
    once more, which takes a fortieth of the time that TensorFlow needs for its lines.

    Raises:
        UsageError: one is.
        tf.errors.OpError: one cannot be read.
    """
    compressed = [path for path in paths if is_compressed(path)]
    with ThreadPoolExecutor() as pool:
        for path, cut_off in zip(compressed, pool.map(_is_cut_off, compressed), strict=True):
            if cut_off:
                raise UsageError(f"{path}: its end is missing, as after an interrupted copy; copy or write it again")


def _is_cut_off(path: str) -> bool:
    """Whether the last stream of a file has no end; a file of no bytes has no stream."""
    stream = None
    with tf.io.gfile.GFile(path, "rb") as file:
        while part := file.read(_AT_ONCE):
            moved()
            while part:
                stream = stream or zlib.decompressobj(_GZIP)
                try:
                    stream.decompress(part)
                except zlib.error:
                    # It is damaged: TensorFlow says at which record.
                    return False
                part = stream.unused_data
                if stream.eof:
                    stream = None
    return stream is not None
