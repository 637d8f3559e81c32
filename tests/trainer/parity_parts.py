"""What users write of their own for the models in `parity_models.py`: losses, metrics, layers, and kinds of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf
from parity_data import CLASSES, FEATURES

ops = keras.ops


def cross_entropy(y_true: Any, y_pred: Any) -> Any:
    """Of each example."""
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


# -- losses and metrics ----------------------------------------------------------------------------------------


class Cubed(keras.losses.Loss):
    """Of labels that are numbers of classes."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return ops.mean(ops.abs(ops.expand_dims(y_true, -1) - y_pred) ** 3, axis=-1)


class OfTwo(keras.losses.Loss):
    """Made of two others."""

    def call(self, y_true: Any, y_pred: Any) -> Any:
        return keras.losses.MeanSquaredError()(y_true, y_pred) + 0.5 * keras.losses.MeanAbsoluteError()(y_true, y_pred)


class OwnCall(keras.losses.Loss):
    """Reduces by itself."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return ops.mean((y_true - y_pred) ** 2)


class Largest(keras.metrics.Metric):
    """The largest output, which is no sum."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.found = self.add_weight(name="found", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.found.assign(ops.maximum(self.found, ops.max(ops.abs(y_pred))))

    def result(self) -> Any:
        return self.found + 0.0


class Hits(keras.metrics.Metric):
    """How many answers are right; its result is its variable, as in the guide of Keras."""

    def __init__(self) -> None:
        super().__init__(name="hits")
        self.hits = self.add_weight(name="hits", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        right = ops.equal(ops.argmax(y_pred, axis=-1), ops.cast(y_true, "int64"))
        self.hits.assign_add(ops.sum(ops.cast(right, "float32")))

    def result(self) -> Any:
        return self.hits


class Smallest(keras.metrics.Metric):
    """The smallest distance of an output from zero, which begins at infinity."""

    def __init__(self) -> None:
        super().__init__(name="smallest")
        self.found = self.add_weight(name="found", initializer=keras.initializers.Constant(float("inf")))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.found.assign(ops.minimum(self.found, ops.min(ops.abs(y_pred))))

    def result(self) -> Any:
        return self.found + 0.0

    def reset_state(self) -> None:
        self.found.assign(float("inf"))


class Spread(keras.metrics.Metric):
    """How many examples there were, and how far the means of batches are apart: of whole batches alone."""

    def __init__(self) -> None:
        super().__init__(name="spread")
        self.examples = self.add_weight(name="examples", initializer="zeros")
        self.high = self.add_weight(name="high", initializer=keras.initializers.Constant(-1e3))
        self.low = self.add_weight(name="low", initializer=keras.initializers.Constant(1e3))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        mean = ops.mean(y_pred[:, 0])
        self.examples.assign_add(ops.cast(ops.shape(y_pred)[0], "float32"))
        self.high.assign(ops.maximum(self.high, mean))
        self.low.assign(ops.minimum(self.low, mean))

    def result(self) -> Any:
        return (self.high - self.low) / self.examples * 100

    def reset_state(self) -> None:
        self.examples.assign(0)
        self.high.assign(-1e3)
        self.low.assign(1e3)


class Newest(keras.metrics.Metric):
    """Of the last batch alone."""

    def __init__(self) -> None:
        super().__init__(name="newest")
        self.found = self.add_weight(name="found", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.found.assign(ops.mean(y_pred[:, 0]))

    def result(self) -> Any:
        return self.found + 0.0


class Positive(keras.metrics.Metric):
    """How many answers are right of those whose first output is positive."""

    def __init__(self) -> None:
        super().__init__(name="positive")
        self.right = self.add_variable(shape=(), initializer="zeros", name="right")
        self.all = self.add_variable(shape=(), initializer="zeros", name="all")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        chosen = y_pred[:, 0] > 0
        right = ops.equal(ops.argmax(y_pred, axis=-1), ops.cast(y_true, "int64"))
        self.right.assign_add(ops.sum(ops.cast(ops.logical_and(right, chosen), "float32")))
        self.all.assign_add(ops.sum(ops.cast(chosen, "float32")))

    def result(self) -> Any:
        return self.right / self.all


# -- layers ----------------------------------------------------------------------------------------------------


class Adds(keras.layers.Layer):
    """A penalty of what passes: its mean or sum over the examples."""

    def __init__(self, reduce: Callable[[Any], Any]) -> None:
        super().__init__()
        self._reduce = reduce

    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * self._reduce(inputs**2))
        return inputs


class Levels(keras.layers.Layer):
    """Keeps a mean in a variable that Keras does not know."""

    def __init__(self) -> None:
        super().__init__(name="levels")
        self.level = tf.Variable(tf.zeros([8]), trainable=False)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.level.assign(0.9 * self.level + 0.1 * tf.reduce_mean(inputs, 0))
        return inputs - self.level


class Centred(keras.layers.Layer):
    """Keeps a running mean of what it sees."""

    def build(self, shape: Any) -> None:
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")

    def call(self, inputs: Any) -> Any:
        self.mean.assign(0.9 * self.mean + 0.1 * ops.mean(inputs, axis=0))
        return inputs - self.mean


class Counted(keras.layers.Layer):
    """Counts its calls."""

    def build(self, shape: Any) -> None:
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, inputs: Any, training: bool = False) -> Any:
        if training:
            self.calls.assign(self.calls + 1.0)
        return inputs / (1 + 0.01 * self.calls)


class Noisy(keras.layers.Layer):
    """Draws without a seed, and makes nothing of it."""

    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs + 0.0 * keras.random.normal(ops.shape(inputs)) if training else inputs


class Watches(keras.layers.Layer):
    """Updates a metric whenever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.size = keras.metrics.Mean(name="size")

    def call(self, inputs: Any) -> Any:
        self.size.update_state(ops.mean(inputs**2))
        return inputs


# -- subclassed models -----------------------------------------------------------------------------------------


class Net(keras.Model):
    """Its first call builds it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = keras.layers.Dense(8, activation="tanh")
        self.last = keras.layers.Dense(CLASSES)

    def call(self, inputs: Any) -> Any:
        return self.last(self.first(inputs))


class Rebuilds(keras.Model):
    """Has no loss but the one that it adds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = keras.layers.Dense(4, activation="tanh")
        self.outer = keras.layers.Dense(FEATURES)

    def call(self, inputs: Any) -> Any:
        outputs = self.outer(self.inner(inputs))
        self.add_loss(ops.mean((outputs - inputs) ** 2))
        return outputs


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


# -- methods of a model: compute_loss, train_step, test_step -----------------------------------------------------


class OwnLoss(keras.Model):
    """That of Keras, and more."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return super().compute_loss(x, y, y_pred, sample_weight, training) + 0.1 * ops.mean(y_pred**2)


class LossAlone(keras.Model):
    """As the documentation in Keras has it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracker = keras.metrics.Mean(name="tracked")

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        loss = ops.mean(cross_entropy(y, y_pred)) + 0.1 * keras.losses.MeanSquaredError()(x[:, :CLASSES], y_pred)
        loss += ops.sum(self.losses)
        self.tracker.update_state(loss)
        return loss


def computing(name: str, loss: Callable[[Any, Any], Any]) -> Any:
    """A kind of model whose compute_loss is this function of labels and outputs."""

    def compute_loss(self: Any, x: Any = None, y: Any = None, y_pred: Any = None, *_: Any, **__: Any) -> Any:
        return loss(y, y_pred)

    return type(name, (keras.Model,), {"compute_loss": compute_loss})


def left_out(y: Any, y_pred: Any) -> Any:
    """Leaves out labels of -1, of which there are none."""
    counts = ops.cast(y != -1, "float32")
    return ops.sum(cross_entropy(ops.maximum(y, 0), y_pred) * counts) / ops.sum(counts)


def contrasted(y: Any, y_pred: Any) -> Any:
    """Compares the examples of a batch with each other."""
    similar = ops.matmul(y_pred, ops.transpose(y_pred))
    same = ops.cast(y[:, None] == y[None, :], "float32")
    return ops.mean(keras.losses.binary_crossentropy(same, similar, from_logits=True))


def stepping(name: str, loss: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A kind of model whose train_step takes the gradient of this function of the model, outputs, inputs and labels."""

    def train_step(self: Any, data: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(self, self(data[0], training=True), *data)
        self.optimizer.apply(tape.gradient(value, self.trainable_variables), self.trainable_variables)
        return {"rate": tf.convert_to_tensor(self.optimizer.learning_rate)}

    return type(name, (keras.Model,), {"train_step": train_step})


def own_means(model: Any, made: Any, x: Any, y: Any) -> Any:
    """Of means that no Loss of Keras' takes, as in many guides."""
    loss = 0.5 * tf.reduce_mean(keras.losses.mean_squared_error(y, made)) - ops.mean(made)
    return loss + tf.reduce_sum(made**2) / tf.cast(tf.shape(made)[0], tf.float32) + sum(model.losses)


def listed_means(model: Any, made: Any, x: Any, y: Any) -> Any:
    """Adds up a list of means; a layer's penalties are in a list as well."""
    parts = [model.compute_loss(y=y, y_pred=made), 0.3 * tf.reduce_mean(made**2)]
    return tf.reduce_sum(parts) + ops.mean(ops.stack(parts)) + tf.reduce_sum(model.losses)


def pairs_of(values: Any) -> Any:
    """Each example with each other."""
    return tf.matmul(values, values, transpose_b=True)


class OwnStep(keras.Model):
    """Halves the gradients."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            made = self(x, training=True)
            loss = self.compute_loss(x=x, y=y, y_pred=made)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply([0.5 * one for one in gradients], self.trainable_variables)
        both = loss + 2.0 * tf.reduce_mean(made)
        return {"error": loss, "both": both, "rate": tf.convert_to_tensor(self.optimizer.learning_rate)}

    def test_step(self, data: Any) -> Any:
        made = self(data[0], training=False)
        return {"error": self.compute_loss(y=data[1], y_pred=made), "mean": tf.reduce_mean(made)}


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


class Extended(keras.Model):
    """What Keras does, and a metric more."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.largest = keras.metrics.Mean(name="largest")

    def test_step(self, data: Any) -> Any:
        found = super().test_step(data)
        self.largest.update_state(ops.max(self(data[0]), axis=-1))
        return {**found, "largest": self.largest.result()}


class Own(keras.Model):
    """Losses and metrics of its own, one that follows from two others, and a value that no metric has."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracker = keras.metrics.Mean(name="loss")
        self.right = keras.metrics.Sum(name="right")
        self.wrong = keras.metrics.Sum(name="wrong")
        self.score = keras.metrics.MeanIoU(CLASSES, sparse_y_pred=False, name="score")

    def test_step(self, data: Any) -> Any:
        x, y = data[:2]
        y_pred = self(x, training=False)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(y, y_pred)
        right = ops.cast(ops.argmax(y_pred, axis=-1) == ops.cast(y, "int32"), "float32")
        self.tracker.update_state(loss)
        self.right.update_state(right)
        self.wrong.update_state(1 - right)
        self.score.update_state(y, y_pred)
        odds = self.right.result() / self.wrong.result()
        return {"loss": self.tracker.result(), "odds": odds, "overlap": self.score.result(), "of_batch": loss}


class Unshown(keras.Model):
    """Returns the loss of each batch, which no metric adds up."""

    def test_step(self, data: Any) -> Any:
        x, y = data[:2]
        return {"loss": self.compute_loss(x=x, y=y, y_pred=self(x))}
