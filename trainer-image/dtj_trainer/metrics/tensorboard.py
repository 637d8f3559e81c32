"""Scalars for TensorBoard.

Written as TensorFlow's own `tf.summary.scalar` would, which is not there without the tensorboard package; the
trainer has no other use for that. Imports TensorFlow.
"""

from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf


class Summaries:
    """One run of TensorBoard's: a directory of event files."""

    def __init__(self, directory: Path | None) -> None:
        """Without a directory nothing is written."""
        self._writer = tf.summary.create_file_writer(str(directory)) if directory else None
        plugin = tf.compat.v1.SummaryMetadata.PluginData(plugin_name="scalars")
        self._metadata = tf.compat.v1.SummaryMetadata(plugin_data=plugin, data_class="DATA_CLASS_SCALAR")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Adds one point to each named curve."""
        if self._writer is None:
            return
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.write(name, tf.constant(value, tf.float32), step=step, metadata=self._metadata)

    def flush(self) -> None:
        """Puts what was written on disk."""
        if self._writer is not None:
            self._writer.flush()
