"""Models that are compiled and fitted on one device and on two replicas; prints the largest difference of each.

Takes the names of the functions that make them.
"""

import contextlib
import sys

import numpy as np
import tensorflow as tf

devices = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)

import keras  # noqa: E402 - after the devices are set

layers, losses, optimizers = keras.layers, keras.losses, keras.optimizers
random = np.random.default_rng(7)
inputs = random.normal(size=(61, 8)).astype("float32")
targets = (inputs[:, :1] ** 2 + inputs[:, 1:2]).astype("float32")
classes = (inputs.sum(1) > 0).astype("int64")
tokens = random.integers(0, 5, size=(61, 7))


def batched(*tensors):
    return tf.data.Dataset.from_tensor_slices(tensors).batch(13)


def compiled(*last, loss="mse", optimizer=None, **options):
    model = keras.Sequential([layers.Input((8,)), layers.Dense(6, "relu", kernel_regularizer="l2"), *last])
    model.compile(optimizer or optimizers.SGD(0.05, momentum=0.9), loss, **options)
    return model


class OwnStep(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(1)

    def call(self, values):
        return self.dense(values)

    def train_step(self, data):
        values, wanted = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=wanted, y_pred=self(values, training=True))
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"rate": tf.convert_to_tensor(self.optimizer.learning_rate)}


def shuffled():
    return compiled(layers.Dense(1)), tf.data.Dataset.from_tensor_slices((inputs, targets)).shuffle(99, seed=1).batch(
        13
    )


def of_unknown_length():
    model = compiled(layers.Dense(1), steps_per_execution=2, metrics=["mae"])
    return model, batched(inputs, targets).filter(lambda *_: True)


def weighted():
    loss = losses.MeanSquaredError(reduction="mean_with_sample_weight")
    return compiled(layers.Dense(1), loss=loss), batched(inputs, targets, np.abs(inputs[:, 0]))


def summed():
    optimizer = optimizers.SGD(0.001)
    return compiled(layers.Dense(1), loss=losses.MeanSquaredError("sum"), optimizer=optimizer), batched(inputs, targets)


def masked():
    embedded = layers.Embedding(5, 4, mask_zero=True)
    model = keras.Sequential([layers.Input((7,)), embedded, layers.LSTM(6, return_sequences=True), layers.Dense(5)])
    model.compile(optimizers.SGD(0.1), losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model, batched(tokens, (tokens + 1) % 5)


def clipped():
    return compiled(layers.Dense(1), optimizer=optimizers.SGD(0.1, global_clipnorm=0.5)), batched(inputs, targets)


def normalized():
    return compiled(layers.BatchNormalization(), layers.Dense(1)), batched(inputs, targets)


def with_metrics():
    metrics = [keras.metrics.AUC(name="area"), keras.metrics.Precision(name="precision")]
    return compiled(layers.Dense(1, "sigmoid"), loss="binary_crossentropy", metrics=metrics), batched(inputs, classes)


def of_two_outputs():
    values = layers.Input((8,))
    model = keras.Model(values, {"a": layers.Dense(1)(values), "b": layers.Dense(2)(values)})
    of_each = {"a": "mse", "b": losses.SparseCategoricalCrossentropy(from_logits=True)}
    model.compile(optimizers.SGD(0.1), of_each, loss_weights={"a": 0.3, "b": 2.0})
    return model, tf.data.Dataset.from_tensor_slices((inputs, {"a": targets, "b": classes})).batch(13)


def own_step():
    model = OwnStep()
    model.compile(optimizers.SGD(0.1), "mse")
    return model, batched(inputs, targets)


def eager():
    return compiled(layers.Dense(1), run_eagerly=True), batched(inputs, targets)


def measured(case, strategy):
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model, data = case()
    history = model.fit(data, epochs=2, verbose=0).history
    evaluated = model.evaluate(data, verbose=0, return_dict=True)
    predicted = keras.tree.flatten(model.predict(data, verbose=0))
    return [*model.get_weights(), *history.values(), *evaluated.values(), *predicted]


mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for name in sys.argv[1:]:
    case = globals()[name]
    pairs = zip(measured(case, None), measured(case, mirrored), strict=True)
    print(f"{name} {max(float(np.max(np.abs(np.subtract(*pair)))) for pair in pairs):.1e}", flush=True)
