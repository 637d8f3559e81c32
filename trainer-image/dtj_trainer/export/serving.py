"""What clients of an exported model send, where that is not what the model is trained on. Imports nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from dtj_trainer.data.source import Source


@dataclass(frozen=True, kw_only=True)
class ServingInput:
    """How a request becomes inputs of the model."""

    spec: Any
    """A tf.TensorSpec of a batch as clients send it, [None, ...]; such as strings."""
    prepare: Callable[[Any], Any]
    """That batch -> a batch of the model's inputs, in TensorFlow's operations: it becomes part of the SavedModel."""
    resources: Any = ()
    """The layers and tables that `prepare` uses: they are saved along."""


@runtime_checkable
class TakesRequests(Protocol):
    """A task whose clients send something else than what the model is trained on, such as text."""

    def serving_input(self, data: Source) -> ServingInput:
        """What they send, and how it is prepared."""
        ...
