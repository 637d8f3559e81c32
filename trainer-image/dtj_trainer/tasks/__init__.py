"""What a model learns: its layers, its loss, its metrics, and what is served of it.

`shipped.PREPARE` fits a task that ships to its data (statistics, classes, vocabulary), once the strategy is made, since
it may run TensorFlow. It must come to the same in every process of a job.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Protocol

from dtj_trainer.data.source import Source

Tensor = Any
"""A TensorFlow tensor: TensorFlow carries no types."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What the exported model takes, where that is not what the trained model takes.

    Attributes:
        spec: tf.TensorSpec of a batch.
        encode: from such a batch to one of the model's inputs, by TensorFlow operations alone.
        files: name -> content of files to store next to the model, for clients that encode without TensorFlow.
    """

    spec: Any
    encode: Callable[[Tensor], Tensor]
    files: Mapping[str, bytes] = field(default_factory=dict)


class LearningTask(Protocol):
    """One kind of model, fitted to its data. The same task serves every strategy."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """What `compute_metrics` measures, in the order of the output: `loss` first, which training makes small."""
        ...

    @property
    def serving(self) -> Serving | None:
        """How the exported model is called; None where it takes what the trained one takes."""
        ...

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """A new model in the given Keras, `keras` or `tf_keras`, from inputs to raw outputs.

        With the same layers in the same order in both, so that weights can be handed over as a list. No layer
        may keep statistics of its batch without synchronising them over the replicas.
        """
        ...

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Each metric of each example: name -> float32 [batch]. What is shown is the mean over examples."""
        ...

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """What the exported model answers, by name."""
        ...
