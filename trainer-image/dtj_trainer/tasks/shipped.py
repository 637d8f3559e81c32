"""The models that ship, each fitted to its data: `PREPARE`. Imports TensorFlow."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy.typing as npt
import tensorflow as tf

from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.data.source import Source, Stream
from dtj_trainer.tasks import LearningTask, Serving, Tensor
from dtj_trainer.tasks.heads import Head, head_for
from dtj_trainer.tasks.statistics import Moments, MomentsOf, class_names, training_examples
from dtj_trainer.tasks.vocabulary import Vocabulary, most_frequent

_MAX_WORDS = 5000
_LENGTH = 40
"""Words of a text that are read; most sentences are shorter."""


@dataclass(frozen=True, kw_only=True)
class ShippedTask:
    """See `dtj_trainer.tasks.LearningTask`.

    Attributes:
        layers: the layers of a Sequential model in a Keras, from inputs to raw outputs of `head.units`.
    """

    head: Head
    layers: Callable[[ModuleType], Sequence[Any]]
    serving: Serving | None = None
    integers: bool = False
    """Whether the inputs are int32, and not float32."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """See `dtj_trainer.tasks.heads`."""
        return self.head.metrics

    def build_model(self, keras: ModuleType, data: Source) -> Any:
        """A Sequential model, from inputs to raw outputs."""
        shape = data.input_spec.shape[1:]
        first = keras.layers.Input(shape, dtype="int32") if self.integers else keras.layers.Input(shape)
        return keras.Sequential([first, *self.layers(keras)])

    def compute_metrics(self, outputs: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
        """See `dtj_trainer.tasks.heads`."""
        return self.head.compute_metrics(outputs, labels)

    def serving_outputs(self, outputs: Tensor) -> dict[str, Tensor]:
        """See `dtj_trainer.tasks.heads`."""
        return self.head.serving_outputs(outputs)


def image_classification(data: Source) -> tuple[LearningTask, Source]:
    """Two convolutions, one hidden layer: 151,306 weights for 8x8 images and 10 classes."""
    head = head_for(len(class_names(data)))

    def layers(keras: ModuleType) -> Sequence[Any]:
        layers = keras.layers
        return [
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(head.units),
        ]

    return ShippedTask(head=head, layers=layers), data


def tabular_classification(data: Source) -> tuple[LearningTask, Source]:
    """One label for a row of numbers in any units."""
    columns = MomentsOf()
    for inputs, _ in training_examples(data):
        columns.add(inputs)
    return _tabular(head_for(len(class_names(data))), inputs=columns.moments()), data


def tabular_regression(data: Source) -> tuple[LearningTask, Source]:
    """A number for a row of numbers, each in its own unit."""
    columns, numbers = MomentsOf(), MomentsOf()
    for inputs, labels in training_examples(data):
        columns.add(inputs)
        numbers.add(labels.reshape(-1, 1))
    return _tabular(head_for(0), inputs=columns.moments(), labels=numbers.moments()), data


def _tabular(head: Head, *, inputs: Moments, labels: Moments | None = None) -> LearningTask:
    """Two hidden layers of 64; standardised inputs, and for a number also a standardised output.

    Args:
        inputs: of each column of the training examples.
        labels: of their labels, where these are numbers.
    """

    def layers(keras: ModuleType) -> Sequence[Any]:
        stack = [
            _scaling(keras, scale=1 / inputs.deviation, offset=-inputs.mean / inputs.deviation, name="standardise"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(head.units),
        ]
        if labels:
            stack.append(_scaling(keras, scale=labels.deviation, offset=labels.mean, name="in_units"))
        return stack

    return ShippedTask(head=head, layers=layers)


def _scaling(keras: ModuleType, *, scale: npt.NDArray[Any], offset: npt.NDArray[Any], name: str) -> Any:
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


def text_classification(data: Source) -> tuple[LearningTask, Source]:
    """Embeddings of 32 numbers, an LSTM of 32 units.

    Texts become numbers on the way into the model, in the pipeline of the data and again in what is exported: the
    trained model itself never sees a string, so it runs on devices and servers that know none.
    """
    vocabulary = Vocabulary(most_frequent((texts for texts, _ in training_examples(data)), most=_MAX_WORDS))
    head = head_for(len(class_names(data)))

    def encode(texts: Tensor) -> Tensor:
        return vocabulary.encode(texts, length=_LENGTH)

    def layers(keras: ModuleType) -> Sequence[Any]:
        layers = keras.layers
        return [layers.Embedding(len(vocabulary), 32), layers.LSTM(32), layers.Dense(head.units)]

    serving = Serving(
        spec=tf.TensorSpec((None,), tf.string), encode=encode, files={"vocabulary.txt": vocabulary.text()}
    )
    task = ShippedTask(head=head, layers=layers, serving=serving, integers=True)
    if isinstance(data, FullBatches):
        # Stays one that workers and a tf.data service can divide.
        return task, data.map_inputs(encode, tf.TensorSpec((None, _LENGTH), tf.int32))
    return task, Encoded(data, encode)


class Encoded:
    """A source of texts, as one of the numbers of their words."""

    def __init__(self, texts: Source, encode: Callable[[Tensor], Tensor]) -> None:
        self._texts = texts
        self._encode = encode
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
            return self._encode(texts), labels

        return stream.map(encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


PREPARE: Mapping[str, Callable[[Source], tuple[LearningTask, Source]]] = {
    "image-classification": image_classification,
    "text-classification": text_classification,
    "tabular-regression": tabular_regression,
    "tabular-classification": tabular_classification,
}
"""Name of a task -> what fits it to a source, and returns it with the source that feeds its model."""
