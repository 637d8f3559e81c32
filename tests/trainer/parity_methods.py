"""Models of the tables in `parity.py` and of the validation with a `test_step` or a `compute_loss` of their own."""

from __future__ import annotations

from typing import Any

import keras
from parity_data import CLASSES, FEATURES, dense
from parity_losses import OwnLoss, tagger


def _made(kind: Any, **compiled: Any) -> Any:
    inputs = keras.Input((FEATURES,))
    penalty = keras.regularizers.L2(0.01)
    hidden = keras.layers.Dense(8, "tanh", kernel_regularizer=penalty, activity_regularizer=penalty)(inputs)
    model = kind(inputs, keras.layers.Dense(CLASSES)(hidden))
    model.compile(
        optimizer=keras.optimizers.SGD(0.1),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        **compiled,
    )
    return model


class Guided(keras.Model):
    """As the guide of Keras has it, with weights."""

    def test_step(self, data: Any) -> Any:
        x, y, weights = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        loss = self.compute_loss(x=x, y=y, y_pred=y_pred, sample_weight=weights)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred, sample_weight=weights)
        return {metric.name: metric.result() for metric in self.metrics}


def guided_evaluation() -> Any:
    cost = keras.metrics.SparseCategoricalCrossentropy(name="cost", from_logits=True)
    return _made(Guided, metrics=["accuracy"], weighted_metrics=[cost])


class Extended(keras.Model):
    """What Keras does, and a metric more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.largest = keras.metrics.Mean(name="largest")

    def test_step(self, data: Any) -> Any:
        found = super().test_step(data)
        self.largest.update_state(keras.ops.max(self(data[0]), axis=-1))
        return {**found, "largest": self.largest.result()}


def extended_evaluation() -> Any:
    return _made(Extended, metrics=["accuracy"])


class Own(keras.Model):
    """Losses and metrics of its own, one that follows from two others, and a value that no metric has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        self.tracker = keras.metrics.Mean(name="loss")
        self.right = keras.metrics.Sum(name="right")
        self.wrong = keras.metrics.Sum(name="wrong")
        self.score = keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="score")

    def test_step(self, data: Any) -> Any:
        x, y = data[:2]
        y_pred = self(x, training=False)
        loss = self.cost(y, y_pred)
        right = keras.ops.cast(keras.ops.argmax(y_pred, axis=-1) == keras.ops.cast(y, "int32"), "float32")
        self.tracker.update_state(loss)
        self.right.update_state(right)
        self.wrong.update_state(1 - right)
        self.score.update_state(y, y_pred)
        odds = self.right.result() / self.wrong.result()
        return {"loss": self.tracker.result(), "odds": odds, "overlap": self.score.result(), "of_batch": loss}


def own_evaluation() -> Any:
    return _made(Own)


class Unshown(keras.Model):
    """Returns the loss of each batch, which no metric adds up."""

    def test_step(self, data: Any) -> Any:
        x, y = data[:2]
        return {"loss": self.compute_loss(x=x, y=y, y_pred=self(x))}


def evaluation_of_single_batches() -> Any:
    return _made(Unshown)


def _classes() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _dense_as(kind: Any) -> Any:
    before = dense(keras.optimizers.SGD(0.1))
    model = kind(before.inputs, before.outputs)
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model


def compute_loss_masked() -> Any:
    before = tagger(True, _classes())
    model = OwnLoss(before.inputs, before.outputs)
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss=_classes())
    return model


class LossAlone(keras.Model):
    """A user's own compute_loss, as its documentation in Keras has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracker = keras.metrics.Mean(name="tracked")

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = _classes()(y, y_pred) + 0.1 * keras.losses.MeanSquaredError()(x[:, :CLASSES], y_pred)
        loss += keras.ops.sum(self.losses)
        self.tracker.update_state(loss)
        return loss


def compute_loss_alone() -> Any:
    inputs = keras.Input((FEATURES,))
    penalty = keras.regularizers.L2(0.01)
    hidden = keras.layers.Dense(8, "tanh", kernel_regularizer=penalty, activity_regularizer=penalty)(inputs)
    model = LossAlone(inputs, keras.layers.Dense(CLASSES)(keras.layers.BatchNormalization()(hidden)))
    model.compile(optimizer=keras.optimizers.SGD(0.1))
    return model


class SummedLoss(keras.Model):
    """A sum over the examples."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return 0.05 * keras.ops.sum(keras.losses.sparse_categorical_crossentropy(y, y_pred, from_logits=True))


def compute_loss_summed() -> Any:
    return _dense_as(SummedLoss)


class Contrasted(keras.Model):
    """Compares the examples of a batch with each other."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        similar = keras.ops.matmul(y_pred, keras.ops.transpose(y_pred))
        same = keras.ops.cast(y[:, None] == y[None, :], "float32")
        return keras.ops.mean(keras.losses.binary_crossentropy(same, similar, from_logits=True))


def compute_loss_of_pairs() -> Any:
    return _dense_as(Contrasted)


class LeftOut(keras.Model):
    """Leaves out labels of -1, of which there are none."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        counts = keras.ops.cast(y != -1, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(keras.ops.maximum(y, 0), y_pred, from_logits=True)
        return keras.ops.sum(losses * counts) / keras.ops.sum(counts)


def compute_loss_that_leaves_out() -> Any:
    return _dense_as(LeftOut)


class Scaled(keras.Model):
    """Takes `training`, and has a bias before BatchNormalization.

    The gradient of this bias is zero but for rounding, and Adam divides it by its own size. After 12 steps this one
    weight is 1.0e-6 from that of plain Keras under Mirrored in float32 and 1.3e-15 in float64; all others are within
    1.2e-7. Without the bias, or with SGD, all are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(8)
        self.normalise = keras.layers.BatchNormalization()
        self.last = keras.layers.Dense(CLASSES)

    def call(self, x: Any, training: Any = None) -> Any:
        return self.last(self.normalise(self.first(x) * (2.0 if training else 1.0), training=training))


def bias_without_gradient() -> Any:
    model = Scaled()
    model.compile(optimizer=keras.optimizers.Adam(0.01, epsilon=1e-4), loss=_classes())
    return model
