"""One label for one image, by a small convolutional network."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import LearningTask, Serving, Tensor
from dtj_trainer.tasks.heads import Head, head_for
from dtj_trainer.tasks.statistics import class_names


class ImageClassification:
    """Two convolutions, one hidden layer: 151,306 weights for 8x8 images and 10 classes."""

    serving: Serving | None = None

    def __init__(self, head: Head) -> None:
        self._head = head
        self.metrics = head.metrics

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """Images [batch, height, width, channels] -> logits [batch, units]."""
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input(data.input_spec.shape[1:]),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Conv2D(64, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(self._head.units),
            ]
        )

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Cross-entropy, accuracy."""
        return self._head.compute_metrics(outputs, labels)

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """`probabilities` float32 [batch, classes] and `class` int64 [batch]."""
        return self._head.serving_outputs(outputs)


def prepare(data: Source) -> tuple[LearningTask, Source]:
    """See `dtj_trainer.tasks`."""
    return ImageClassification(head_for(len(class_names(data)))), data
