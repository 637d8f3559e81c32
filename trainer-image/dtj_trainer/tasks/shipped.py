"""The tasks that ship: Keras models, each fitted to its data. Imports TensorFlow.

| to be learned | units | loss | exported answer |
|---|---|---|---|
| a number | 1 | squared error | `value` |
| one of two classes | 1 | binary cross-entropy | `probabilities`, `class` |
| one of more classes, or a share of each class | classes | categorical cross-entropy | `probabilities`, `class` |

Models give raw outputs, before the activation: a cross-entropy of these is exact where one of probabilities that have
been rounded to 0 or 1 is not. A task must come to the same in every process of a job.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from dtj_trainer.data.full_batches import FullBatches
from dtj_trainer.data.source import Source, Stream
from dtj_trainer.data.task_inputs import check_classes
from dtj_trainer.errors import UsageError
from dtj_trainer.export.saved_model import Serving
from dtj_trainer.tasks.vocabulary import Vocabulary, most_frequent

Tensor = Any
_MAX_WORDS = 5000
_LENGTH = 40
"""Words of a text that are read; most sentences are shorter."""
_BATCH = 1024
_MAX_EXAMPLES = 100_000
"""Enough for a mean; reading all of a large source would take minutes before the first step."""


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """A task, fitted to its data."""

    build: Callable[[], Any]
    """A new Keras model, compiled with its loss; the optimizer is the command line's."""
    data: Source
    """What feeds it."""
    serving: Serving


@dataclass(frozen=True, kw_only=True)
class _Head:
    """The end of a model."""

    units: int
    loss: Any
    answer: Callable[[Tensor], dict[str, Tensor]]


def image_classification(data: Source, library: ModuleType) -> Shipped:
    """Two convolutions, one hidden layer: 151,306 weights for 8x8 images and 10 classes."""
    head, layers = _of_classes(data, library), library.layers

    def stack() -> Sequence[Any]:
        return [
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dense(head.units),
        ]

    return _fitted(library, data, stack, head)


def tabular_classification(data: Source, library: ModuleType) -> Shipped:
    """One label for a row of numbers in any units."""
    columns = Moments()
    for inputs, _ in training_examples(data):
        columns.add(inputs)
    return _tabular(data, library, _of_classes(data, library), inputs=columns)


def tabular_regression(data: Source, library: ModuleType) -> Shipped:
    """A number for a row of numbers, each in its own unit."""
    columns, numbers = Moments(), Moments()
    for inputs, labels in training_examples(data):
        columns.add(inputs)
        numbers.add(labels.reshape(-1, 1))
    loss = library.losses.MeanSquaredError()
    head = _Head(units=1, loss=loss, answer=lambda outputs: {"value": outputs[:, 0]})
    return _tabular(data, library, head, inputs=columns, labels=numbers)


def _tabular(
    data: Source, library: ModuleType, head: _Head, *, inputs: "Moments", labels: "Moments | None" = None
) -> Shipped:
    """Two hidden layers of 64; standardised inputs, and for a number also a standardised output.

    Args:
        inputs: of each column of the training examples.
        labels: of their labels, where these are numbers.
    """
    deviation, layers = inputs.deviation, library.layers

    def stack() -> Sequence[Any]:
        found = [
            _scaling(library, scale=1 / deviation, offset=-inputs.mean / deviation, name="standardise"),
            layers.Dense(64, activation="relu"),
            layers.Dense(64, activation="relu"),
            layers.Dense(head.units),
        ]
        if labels:
            found.append(_scaling(library, scale=labels.deviation, offset=labels.mean, name="in_units"))
        return found

    return _fitted(library, data, stack, head)


def _scaling(library: ModuleType, *, scale: npt.NDArray[Any], offset: npt.NDArray[Any], name: str) -> Any:
    """A layer that answers `inputs * scale + offset`.

    Both are weights that are not trained: so they are in the checkpoint, and the same in all tasks of a job, which
    get their variables from the leader. Keras' own Normalization keeps them as constants of the program.
    """

    class Scaling(library.layers.Layer):  # type: ignore[misc, name-defined]
        def build(self, _: Any) -> None:
            self.scale = self._fixed("scale", scale)
            self.offset = self._fixed("offset", offset)
            self.built = True

        def _fixed(self, name: str, value: npt.NDArray[Any]) -> Any:
            constant = library.initializers.Constant(value.astype("float32"))
            return self.add_weight(name=name, shape=value.shape, initializer=constant, trainable=False)

        def call(self, inputs: Any) -> Any:
            return inputs * self.scale + self.offset

        def compute_output_shape(self, input_shape: Any) -> Any:
            return input_shape

    return Scaling(name=name)


def text_classification(data: Source, library: ModuleType) -> Shipped:
    """Embeddings of 32 numbers, an LSTM of 32 units.

    Texts become numbers on the way into the model, in the pipeline of the data and again in what is exported: the
    trained model itself never sees a string, so it runs on devices and servers that know none.
    """
    vocabulary = Vocabulary(most_frequent((texts for texts, _ in training_examples(data)), most=_MAX_WORDS))
    head, layers, encode = _of_classes(data, library), library.layers, partial(vocabulary.encode, length=_LENGTH)

    def stack() -> Sequence[Any]:
        return [layers.Embedding(len(vocabulary), 32), layers.LSTM(32), layers.Dense(head.units)]

    spec = tf.TensorSpec((None, _LENGTH), tf.int32)
    # A pipeline stays one that workers and a tf.data service can divide.
    encoded = data.map_inputs(encode, spec) if isinstance(data, FullBatches) else Encoded(data, encode, spec)
    served = {"spec": tf.TensorSpec((None,), tf.string), "files": {"vocabulary.txt": vocabulary.text()}}
    return _fitted(library, encoded, stack, head, dtype="int32", encode=encode, **served)


class Encoded:
    """A source of texts, as one of the numbers of their words."""

    def __init__(self, texts: Source, encode: Callable[[Tensor], Tensor], input_spec: Any) -> None:
        self._texts = texts
        self._encode = encode
        self.name = texts.name
        self.classes = texts.classes
        self.examples = texts.examples
        self.validation_examples = texts.validation_examples
        self.input_spec = input_spec
        self.order = getattr(texts, "order", "")
        self.weighted = getattr(texts, "weighted", False)
        self.exact_inputs = getattr(texts, "exact_inputs", False)
        self.counts = getattr(texts, "counts", "")

    def batches(self, *, batch: int, seed: Any, first_step: int = 0, offset: int = 0) -> Stream:
        """See `Source`."""
        return self._encoded(self._texts.batches(batch=batch, seed=seed, first_step=first_step, offset=offset))

    def validation(self, *, batch: int) -> Stream:
        """See `Source`."""
        return self._encoded(self._texts.validation(batch=batch))

    def _encoded(self, stream: Stream) -> Stream:
        def encode(texts: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
            return self._encode(texts), *others

        return stream.map(encode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)


def _fitted(
    library: ModuleType,
    data: Source,
    layers: Callable[[], Sequence[Any]],
    head: _Head,
    *,
    dtype: str = "float32",
    **serving: Any,
) -> Shipped:
    """A task whose model is a stack of layers.

    Args:
        dtype: of the inputs.
        serving: what of `Serving` is not as the model itself.
    """

    def build() -> Any:
        model = library.Sequential([library.layers.Input(data.input_spec.shape[1:], dtype=dtype), *layers()])
        model.compile(loss=head.loss)
        model.optimizer = None
        return model

    return Shipped(build=build, data=data, serving=Serving(answer=head.answer, **serving))


def _of_classes(data: Source, library: ModuleType) -> _Head:
    label = data.validation(batch=1).element_spec[1].shape
    by_shares = label.rank == 2 and label[1] > 1
    classes = len(data.classes) or _count_classes(data)
    if classes == 2 and not by_shares:
        return _Head(units=1, loss=_two_classes(library), answer=_answer_one_of_two)
    kind = "CategoricalCrossentropy" if by_shares else "SparseCategoricalCrossentropy"
    return _Head(
        units=classes,
        loss=getattr(library.losses, kind)(from_logits=True),
        answer=lambda outputs: {"probabilities": tf.nn.softmax(outputs), "class": tf.argmax(outputs, axis=-1)},
    )


def _two_classes(library: ModuleType) -> Any:
    class TwoClasses(library.losses.BinaryCrossentropy):  # type: ignore[misc, name-defined]
        def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
            losses = super().call(y_true, y_pred)
            # Of a class that none of the examples had that the classes were counted of; as TensorFlow does it for more.
            return tf.where(tf.reshape(y_true, tf.shape(losses)) > 1, tf.constant(math.nan, losses.dtype), losses)

    return TwoClasses(from_logits=True)


def _answer_one_of_two(outputs: Tensor) -> dict[str, Tensor]:
    logits = outputs[:, :1]
    return {
        "probabilities": tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=1),
        "class": tf.cast(logits[:, 0] > 0, tf.int64),
    }


# -- what a task has to know of the training examples before its model is built ----------------------------------
# What is measured on held-out examples says nothing about others: of these, only the classes count.


def training_examples(data: Source) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Batches (inputs, labels) of the first examples of an epoch, each example once: all, or 100,000 of them."""
    count = min(data.examples, _MAX_EXAMPLES)
    stream = data.batches(batch=min(count, _BATCH), seed=0).unbatch().take(count).batch(_BATCH)
    for inputs, labels, *_ in stream:
        yield inputs.numpy(), labels.numpy()


def _count_classes(data: Source) -> int:
    """How many classes there are, by whole-number labels or shares.

    Raises:
        UsageError: a label is neither.
    """
    count = 0
    held_out = ((None, labels.numpy()) for _, labels, *_ in data.validation(batch=_BATCH))
    for _, labels in chain(training_examples(data), held_out):
        check_classes(labels, data.name)
        shares = labels.ndim == 2 and labels.shape[1] > 1
        count = labels.shape[1] if shares else max(count, int(labels.max()) + 1)
    if count < 2:
        raise UsageError(f"{data.name}: every label is 0; there is nothing to distinguish")
    return count


class Moments:
    """Of each number of an example over the examples that are added, in batches."""

    def __init__(self) -> None:
        self._count = 0
        self._sum: npt.NDArray[np.float64] = np.zeros(())
        self._squares: npt.NDArray[np.float64] = np.zeros(())
        self._origin: npt.NDArray[np.float64] = np.zeros(())

    def add(self, batch: npt.NDArray[Any]) -> None:
        """Takes [examples, ...]."""
        values = batch.astype(np.float64)
        if not self._count:
            # Counted from a value near the mean, or large numbers would lose their small differences.
            self._origin = values.mean(axis=0)
        values = values - self._origin
        self._count += len(values)
        self._sum = self._sum + values.sum(axis=0)
        self._squares = self._squares + np.square(values).sum(axis=0)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """Of all that was added."""
        return self._sum / self._count + self._origin

    @property
    def deviation(self) -> npt.NDArray[np.float64]:
        """The standard deviation; 1 where it is 0."""
        found = np.sqrt(np.maximum(0.0, self._squares / self._count - np.square(self._sum / self._count)))
        return np.where(found > 0, found, 1.0)


FIT: Mapping[str, Callable[[Source, ModuleType], Shipped]] = {
    "image-classification": image_classification,
    "text-classification": text_classification,
    "tabular-regression": tabular_regression,
    "tabular-classification": tabular_classification,
}
"""Name of a task -> what fits it to a source, with layers of a Keras: `keras` or `tf_keras`."""
