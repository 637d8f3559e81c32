"""What a model learns: its layers, its loss, its metrics, and what is served of it.

A module of this package offers `TASK`; `dtj_trainer.registry` names it.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

from dtj_trainer.data.source import Source

Tensor = Any
"""A TensorFlow tensor: TensorFlow carries no types."""


class Task(Protocol):
    """One kind of model. The same task serves every strategy."""

    metrics: tuple[str, ...]
    """What `judge` measures, in the order in which it is told: `loss` first, which is what training makes small."""

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """A new model in the given Keras, `keras` or `tf_keras`, from inputs to raw outputs.

        With the same layers in the same order in both, so that weights can be handed over as a list. No layer
        may keep statistics of its batch without synchronising them over the replicas.
        """
        ...

    def judge(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Each metric of each example: name -> float32 [batch]. What is told is the mean over examples."""
        ...

    def serve(self, outputs: Tensor) -> dict[str, Tensor]:
        """What the exported model answers, by name."""
        ...
