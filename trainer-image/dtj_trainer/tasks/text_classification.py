"""One label for one text, by word embeddings and a recurrent layer. Imports TensorFlow.

Texts become numbers on the way into the model, in the pipeline of the data and again in what is exported: the trained
model itself never sees a string, so it runs on devices and servers that know none.
"""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

import tensorflow as tf

from dtj_trainer.data.pipeline import Pipeline
from dtj_trainer.data.source import Source, Stream
from dtj_trainer.tasks import LearningTask, Serving, Tensor
from dtj_trainer.tasks.heads import Head, head_for
from dtj_trainer.tasks.statistics import class_names, training_examples
from dtj_trainer.tasks.vocabulary import Vocabulary, most_frequent

_MAX_WORDS = 5000
_LENGTH = 40
"""Words of a text that are read; most sentences are shorter."""


class TextClassification:
    """Embeddings of 32 numbers, an LSTM of 32 units."""

    def __init__(self, head: Head, vocabulary: Vocabulary) -> None:
        self._head = head
        self._vocabulary = vocabulary
        self.metrics = head.metrics
        self.serving = Serving(
            spec=tf.TensorSpec((None,), tf.string),
            encode=self.encode,
            files={"vocabulary.txt": vocabulary.text()},
        )

    def encode(self, texts: Tensor) -> Tensor:
        """Texts [batch], UTF-8 -> what the model takes, int32 [batch, words]."""
        return self._vocabulary.encode(texts, length=_LENGTH)

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """Numbers of words [batch, words] -> logits [batch, units]."""
        layers = keras.layers
        return keras.Sequential(
            [
                layers.Input(data.input_spec.shape[1:], dtype="int32"),
                layers.Embedding(len(self._vocabulary), 32),
                layers.LSTM(32),
                layers.Dense(self._head.units),
            ]
        )

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """Cross-entropy, accuracy."""
        return self._head.compute_metrics(outputs, labels)

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """`probabilities` float32 [batch, classes] and `class` int64 [batch]."""
        return self._head.serving_outputs(outputs)


class Encoded:
    """A source of texts, as one of the numbers of their words."""

    def __init__(self, texts: Source, vocabulary: Vocabulary) -> None:
        self._texts = texts
        self._vocabulary = vocabulary
        self.name = texts.name
        self.classes = texts.classes
        self.examples = texts.examples
        self.validation_examples = texts.validation_examples
        self.input_spec = tf.TensorSpec((None, _LENGTH), tf.int32)
        self.order = getattr(texts, "order", "")

    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """See `Source`."""
        return self._encoded(self._texts.batches(batch=batch, seed=seed, first_step=first_step, offset=offset))

    def validation(self, *, batch: int) -> Stream:
        """See `Source`."""
        return self._encoded(self._texts.validation(batch=batch))

    def _encoded(self, stream: Stream) -> Stream:
        def encode(texts: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
            return self._vocabulary.encode(texts, length=_LENGTH), labels

        return stream.map(encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def prepare(data: Source) -> tuple[LearningTask, Source]:
    """See `dtj_trainer.tasks`."""
    words = most_frequent((texts for texts, _ in training_examples(data)), most=_MAX_WORDS)
    vocabulary = Vocabulary(words)
    task = TextClassification(head_for(len(class_names(data))), vocabulary)
    if isinstance(data, Pipeline):
        # Stays one that workers and a tf.data service can divide.
        return task, data.map_inputs(task.encode, tf.TensorSpec((None, _LENGTH), tf.int32))
    return task, Encoded(data, vocabulary)
