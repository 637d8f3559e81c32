"""Models of the table in `parity_cases.py` whose losses, metrics, layers or data have something special."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from parity_data import CLASSES, EXAMPLES, FEATURES, HELD_OUT, dataset, dense, points

VOCABULARY, LENGTH = 7, 5


def tokens() -> dict[str, Any]:
    """Sequences of different lengths, padded with 0, and a class for each position."""
    random = np.random.default_rng(2)
    count = EXAMPLES + HELD_OUT
    ids = random.integers(1, VOCABULARY, (count, LENGTH))
    # Short ones first within a batch: the replicas have different numbers of positions that count.
    lengths = np.tile(np.arange(24) // 6 + 1, count // 24)
    ids *= np.arange(LENGTH) < lengths[:, None]
    return dataset(ids.astype("int32"), (ids % CLASSES).astype("int64"))


def ignored() -> dict[str, Any]:
    """The same, with labels of -1 where there is nothing to learn."""
    return {
        name: part.map(lambda ids, labels: (ids, tf.where(ids > 0, labels, tf.constant(-1, tf.int64))))
        for name, part in tokens().items()
    }


def weighted() -> dict[str, Any]:
    """Vectors, classes, and a weight for each example that grows within a batch."""
    count = EXAMPLES + HELD_OUT
    weights = np.tile(np.arange(24) / 12, count // 24).astype("float32")
    whole = tf.data.Dataset.zip((*_columns(points()), tf.data.Dataset.from_tensor_slices(weights)))
    return {"training": whole.take(EXAMPLES), "held_out": whole.skip(EXAMPLES)}


def one_hot_points() -> dict[str, Any]:
    """Vectors, and a row for each with a 1 for its class."""
    return {name: part.map(lambda x, label: (x, tf.one_hot(label, CLASSES))) for name, part in points().items()}


def _columns(parts: dict[str, Any]) -> tuple[Any, Any]:
    whole = parts["training"].concatenate(parts["held_out"])
    return whole.map(lambda inputs, labels: inputs), whole.map(lambda inputs, labels: labels)


def tagger(mask: bool, loss: Any, **compiled: Any) -> Any:
    """A class for each position."""
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(VOCABULARY, 4, mask_zero=mask),
            keras.layers.Dense(8, activation="tanh"),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.2), loss=loss, **compiled)
    return model


def _classes(**options: Any) -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True, **options)


def positions() -> Any:
    return tagger(False, _classes())


def masked() -> Any:
    return tagger(True, _classes())


def masked_by_weight() -> Any:
    return tagger(True, _classes(reduction="mean_with_sample_weight"))


def masked_sum() -> Any:
    return tagger(True, _classes(reduction="sum"), loss_weights=0.01)


def ignore_class() -> Any:
    return tagger(False, _classes(ignore_class=-1))


def _compiled(loss: Any, **compiled: Any) -> Any:
    model = dense(keras.optimizers.SGD(0.1))
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss, **compiled)
    return model


def summed() -> Any:
    return _compiled(_classes(reduction="sum"), loss_weights=0.05)


def loss_weights() -> Any:
    return _compiled(_classes(), loss_weights=0.3)


def sample_weights() -> Any:
    return _compiled(_classes())


def mean_by_weight() -> Any:
    return _compiled(_classes(reduction="mean_with_sample_weight"), weighted_metrics=["accuracy"])


def weights_not_reduced() -> Any:
    return _compiled(_classes(reduction="none"))


def multi_label_points() -> dict[str, Any]:
    """Vectors, and several yes or no for each."""
    return {name: part.map(lambda x, _: (x, tf.cast(x[:CLASSES] > 0, tf.float32))) for name, part in points().items()}


def multi_label() -> Any:
    return _compiled(keras.losses.BinaryCrossentropy(from_logits=True))


class Cubed(keras.losses.Loss):
    """A user's own Loss, of labels that are numbers of classes."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.ops.mean(keras.ops.abs(keras.ops.expand_dims(y_true, -1) - y_pred) ** 3, axis=-1)


def own_loss() -> Any:
    return _compiled(Cubed())


def bfloat16_outputs() -> Any:
    return _half("bfloat16")


def float64_outputs() -> Any:
    return _half("float64")


def _half(dtype: str) -> Any:
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, "tanh"),
            keras.layers.Dense(CLASSES),
            keras.layers.Activation("linear", dtype=dtype),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def mixed_weights() -> Any:
    model = keras.Sequential(
        [keras.Input((FEATURES,)), keras.layers.Dense(8), keras.layers.Dense(CLASSES, dtype="float64")]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


class Net(keras.Model):
    """A subclassed model, which its first call builds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(8, activation="tanh")
        self.last = keras.layers.Dense(CLASSES)

    def call(self, inputs: Any) -> Any:
        return self.last(self.first(inputs))


def subclassed() -> Any:
    model = Net()
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def without_input() -> Any:
    return _unbuilt(keras, keras.optimizers.SGD(0.1))


def tf_keras_without_input() -> Any:
    import tf_keras

    return _unbuilt(tf_keras, tf_keras.optimizers.SGD(0.1))


def _unbuilt(library: Any, optimizer: Any) -> Any:
    """A Sequential whose first call says what it takes."""
    model = library.Sequential([library.layers.Dense(8, activation="tanh"), library.layers.Dense(CLASSES)])
    model.compile(optimizer=optimizer, loss=library.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def pairs() -> dict[str, Any]:
    """Two inputs by name, two labels by name."""

    def pair(inputs: Any, label: Any) -> Any:
        return {"left": inputs[:2], "right": inputs[2:]}, {"kind": label, "size": inputs[:1]}

    return {name: part.map(pair) for name, part in points().items()}


def several() -> Any:
    left, right = keras.Input((2,), name="left"), keras.Input((FEATURES - 2,), name="right")
    hidden = keras.layers.Dense(8, activation="tanh")(keras.layers.Concatenate()([left, right]))
    outputs = {
        "kind": keras.layers.Dense(CLASSES, name="kind")(hidden),
        "size": keras.layers.Dense(1, name="size")(hidden),
    }
    model = keras.Model({"left": left, "right": right}, outputs)
    model.compile(
        optimizer=keras.optimizers.SGD(0.1),
        loss={"kind": _classes(), "size": "mse"},
        loss_weights={"kind": 1.0, "size": 0.5},
        metrics={"kind": ["accuracy"]},
    )
    return model


def _dense_as(kind: Any) -> Any:
    """The small model, of a class of the user's."""
    before = dense(keras.optimizers.SGD(0.1))
    model = kind(before.inputs, before.outputs)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


class OwnLoss(keras.Model):
    """A user's own compute_loss."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return super().compute_loss(x, y, y_pred, sample_weight, training) + 0.1 * keras.ops.mean(y_pred**2)


def compute_loss() -> Any:
    return _dense_as(OwnLoss)


class OwnStep(keras.Model):
    """A user's own train_step: it halves the gradients."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply([0.5 * one for one in gradients], self.trainable_variables)
        return {"loss": loss}


def train_step() -> Any:
    return _dense_as(OwnStep)


def tf_keras_masked() -> Any:
    import tf_keras

    model = tf_keras.Sequential(
        [
            tf_keras.Input((LENGTH,), dtype="int32"),
            tf_keras.layers.Embedding(VOCABULARY, 4, mask_zero=True),
            tf_keras.layers.Dense(8, activation="tanh"),
            tf_keras.layers.Dense(CLASSES),
        ]
    )
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf_keras.optimizers.SGD(0.2), loss=loss)
    return model


def tf_keras_weights() -> Any:
    import tf_keras

    model = dense(tf_keras.optimizers.SGD(0.1), tf_keras)
    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf_keras.optimizers.SGD(0.1), loss=loss, loss_weights=[0.3], metrics=["accuracy"])
    return model


def normalised_penalties() -> Any:
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(8, activity_regularizer=keras.regularizers.L2(0.05)),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(CLASSES, activity_regularizer=keras.regularizers.L1(0.05)),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def raw_points() -> dict[str, Any]:
    """Features as they come: a large mean, a small deviation."""
    return {name: part.map(lambda x, label: (1000 + 0.1 * x, label)) for name, part in points().items()}


def normalised_raw() -> Any:
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.BatchNormalization(), keras.layers.Dense(CLASSES)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def normalised_masked() -> Any:
    model = keras.Sequential(
        [
            keras.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(VOCABULARY, 4, mask_zero=True),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.2), loss=_classes())
    return model


class Centred(keras.layers.Layer):
    """Keeps a running mean of what it sees."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")

    def call(self, inputs: Any) -> Any:
        self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(inputs, axis=0))
        return inputs - self.mean


class Counted(keras.layers.Layer):
    """Counts its calls."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign(self.calls + 1.0)
        return inputs / (1 + 0.01 * self.calls)


def _with(layer: Any) -> Any:
    model = keras.Sequential([keras.Input((FEATURES,)), layer, keras.layers.Dense(CLASSES)])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def own_state() -> Any:
    return _with(Centred())


def counting() -> Any:
    return _with(Counted())


def stateful() -> Any:
    model = keras.Sequential(
        [keras.Input(batch_shape=(24, LENGTH, 1)), keras.layers.LSTM(4, stateful=True), keras.layers.Dense(CLASSES)]
    )
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


def series() -> dict[str, Any]:
    """Sequences of numbers, and a class for each."""
    return {name: part.map(lambda x, label: (x[:LENGTH, None], label)) for name, part in points().items()}


class Noisy(keras.layers.Layer):
    """Draws without a seed, and makes nothing of it."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + 0.0 * keras.random.normal(keras.ops.shape(inputs)) if training else inputs


def unseeded() -> Any:
    return _with(Noisy())
