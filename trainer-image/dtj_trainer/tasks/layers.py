"""Layers that the tasks share, in either Keras. Imports no Keras itself."""

from types import ModuleType
from typing import Any

import numpy.typing as npt


def scaling(keras: ModuleType, *, scale: npt.NDArray[Any], offset: npt.NDArray[Any], name: str) -> Any:
    """A layer that answers `inputs * scale + offset`.

    Both are weights that are not trained: so they are in the checkpoint, and the same in all tasks of a job, which
    get their variables from the leader. Keras' own Normalization keeps them as constants of the program.
    """

    class Scaling(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def build(self, _: Any) -> None:
            self.scale = self._fixed("scale", scale)
            self.offset = self._fixed("offset", offset)
            self.built = True

        def _fixed(self, name: str, value: npt.NDArray[Any]) -> Any:
            constant = keras.initializers.Constant(value.astype("float32"))
            return self.add_weight(name=name, shape=value.shape, initializer=constant, trainable=False)

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale + self.offset

        def compute_output_shape(self, input_shape: Any) -> Any:
            return input_shape

    return Scaling(name=name)
