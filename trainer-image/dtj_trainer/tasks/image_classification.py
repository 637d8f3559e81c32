"""One label for one image, by a small convolutional network."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from dtj_trainer.data.source import Source
from dtj_trainer.tasks import Task, Tensor


class ImageClassification:
    """Two convolutions, one hidden layer: 151,306 weights for 8x8 images and 10 classes."""

    metrics: tuple[str, ...] = ("loss", "accuracy")

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """Images [batch, height, width, channels] -> logits [batch, classes]."""
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input(data.input_spec.shape[1:]),
                layers.Conv2D(32, 3, padding="same", activation="relu"),
                layers.Conv2D(64, 3, padding="same", activation="relu"),
                layers.MaxPooling2D(2),
                layers.Flatten(),
                layers.Dense(128, activation="relu"),
                layers.Dense(len(data.classes)),
            ]
        )

    def judge(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Cross-entropy, and whether the likeliest class is the right one."""
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
        return {"loss": losses, "accuracy": tf.cast(tf.equal(tf.argmax(outputs, axis=-1), labels), tf.float32)}

    def serve(self, outputs: Tensor) -> dict[str, Tensor]:
        """`probabilities` float32 [batch, classes] and `class` int64 [batch]."""
        return {"probabilities": tf.nn.softmax(outputs), "class": tf.argmax(outputs, axis=-1)}


TASK: Task = ImageClassification()
