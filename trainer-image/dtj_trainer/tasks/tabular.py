"""A number, or one label, for one row of numbers, by a network of two hidden layers. Imports TensorFlow.

What goes in and what comes out is in the units of the data: the model itself scales both.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import Serving, Tensor
from dtj_trainer.tasks.heads import Head
from dtj_trainer.tasks.layers import scaling
from dtj_trainer.tasks.statistics import Moments


class Tabular:
    """Two hidden layers of 64; standardised inputs, and for a number also a standardised output."""

    serving: Serving | None = None

    def __init__(self, head: Head, *, inputs: Moments, labels: Moments | None = None) -> None:
        """Args:
        inputs: of each column of the training examples.
        labels: of their labels, where these are numbers.
        """
        self._head = head
        self._inputs = inputs
        self._labels = labels
        self.metrics = head.metrics

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """Rows [batch, columns] -> raw outputs [batch, units]."""
        layers, inputs = keras.layers, self._inputs
        stack = [
            layers.Input(data.input_spec.shape[1:]),
            scaling(keras, scale=1 / inputs.deviation, offset=-inputs.mean / inputs.deviation, name="standardise"),
            layers.Dense(64, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(self._head.units),
        ]
        if self._labels:
            stack.append(scaling(keras, scale=self._labels.deviation, offset=self._labels.mean, name="in_units"))
        return keras.Sequential(stack)

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """See `dtj_trainer.tasks.heads`."""
        return self._head.compute_metrics(outputs, labels)

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """See `dtj_trainer.tasks.heads`."""
        return self._head.serving_outputs(outputs)
