"""What a model learns: its layers, its loss, its metrics, and what is served of it.

A module of this package offers `TASK`; `dtj_trainer.registry` names it.
"""

from types import ModuleType
from typing import Any, Protocol

from dtj_trainer.datasets import Dataset

Tensor = Any
"""A TensorFlow tensor: TensorFlow carries no types."""


class Task(Protocol):
    """One kind of model. The same task serves every strategy."""

    def build_model(self, keras: ModuleType, data: Dataset) -> Any:
        """A new model in the given Keras, `keras` or `tf_keras`, from inputs to raw outputs.

        With the same layers in the same order in both, so that weights can be handed over as a list. No layer
        may keep statistics of its batch without synchronising them over the replicas.
        """
        ...

    def judge(self, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and the accuracy (0 or 1) of each example, both float32 [batch]."""
        ...

    def serve(self, outputs: Tensor) -> dict[str, Tensor]:
        """What the exported model answers, by name."""
        ...
