"""Models that are compiled and fitted on one device and on two replicas; prints the largest difference of each.

Takes the names of the functions that make them. Of a model that is refused the line is printed.
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
            made = self(values, training=True)
            loss = self.compute_loss(y=wanted, y_pred=made)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        both = loss + 2.0 * tf.reduce_mean(made)
        return {"error": loss, "both": both, "rate": tf.convert_to_tensor(self.optimizer.learning_rate)}

    def test_step(self, data):
        made = self(data[0], training=False)
        return {"error": self.compute_loss(y=data[1], y_pred=made), "mean": tf.reduce_mean(made)}


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


def scaled_and_clipped():
    optimizer = optimizers.LossScaleOptimizer(optimizers.SGD(0.1, global_clipnorm=0.5), dynamic_growth_steps=2)
    return compiled(layers.Dense(1), optimizer=optimizer), batched(inputs, targets)


def averaged():
    optimizer = optimizers.SGD(0.1, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=2)
    return compiled(layers.Dense(1), optimizer=optimizer), batched(inputs, targets)


def scaled_and_averaged():
    averaging = optimizers.SGD(0.1, clipnorm=0.2, use_ema=True, ema_momentum=0.7, ema_overwrite_frequency=3)
    return compiled(layers.Dense(1), optimizer=optimizers.LossScaleOptimizer(averaging)), batched(inputs, targets)


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


def of_one_number():
    """A loss that is one number for a batch."""
    return compiled(layers.Dense(1), loss=lambda y, y_pred: tf.reduce_mean((y - y_pred) ** 2)), batched(inputs, targets)


def of_a_sum():
    loss = lambda y, y_pred: 0.02 * tf.reduce_sum((y - y_pred) ** 2)  # noqa: E731 - a loss without a name
    return compiled(layers.Dense(1), loss=loss), batched(inputs, targets)


class OfTwo(losses.Loss):
    """A loss that is made of two others."""

    def call(self, y, y_pred):
        return losses.MeanSquaredError()(y, y_pred) + 0.5 * losses.MeanAbsoluteError()(y, y_pred)


def of_other_losses():
    return compiled(layers.Dense(1), loss=OfTwo()), batched(inputs, targets)


def of_a_class(kind, *compiled, **options):
    values = layers.Input((8,))
    hidden = layers.Dense(4, "tanh", kernel_regularizer="l2", activity_regularizer="l2")(values)
    model = kind(values, layers.Dense(1)(layers.BatchNormalization()(hidden)))
    model.compile(optimizers.SGD(0.05), *compiled, **options)
    return model, batched(inputs, targets)


class OwnLoss(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return super().compute_loss(x, y, y_pred, sample_weight) + 0.1 * keras.ops.mean(y_pred**2)


def own_compute_loss():
    return of_a_class(OwnLoss, "mse")


class OwnMeans(keras.Model):
    """Its loss is made of means that no Loss of Keras' takes, as in many guides."""

    def train_step(self, data):
        values, wanted = data
        with tf.GradientTape() as tape:
            made = self(values, training=True)
            loss = 0.5 * tf.reduce_mean(keras.losses.mean_squared_error(wanted, made)) - keras.ops.mean(made)
            loss += tf.reduce_sum(made**2) / tf.cast(tf.shape(made)[0], tf.float32) + sum(self.losses)
        weights = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return {"rate": tf.convert_to_tensor(self.optimizer.learning_rate)}


def own_means():
    return of_a_class(OwnMeans, "mse")


class OfMeans(keras.Model):
    """Its loss adds up a list of means; a Dense layer's penalties are in a list as well."""

    def loss_of(self, values, wanted):
        made = self(values, training=True)
        parts = [self.compute_loss(y=wanted, y_pred=made), 0.3 * tf.reduce_mean(made**2)]
        return tf.reduce_sum(parts) + keras.ops.mean(keras.ops.stack(parts)) + tf.reduce_sum(self.losses)

    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = self.loss_of(*data)
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"rate": tf.convert_to_tensor(self.optimizer.learning_rate)}


def own_list_of_means():
    return of_a_class(OfMeans, "mse")


class LeavesOut(OfMeans):
    def loss_of(self, values, wanted):
        return tf.reduce_mean(tf.boolean_mask((wanted - self(values)) ** 2, values[:, 0] > 0))


def leaves_out_examples():
    return of_a_class(LeavesOut)


class Pairs(OfMeans):
    def loss_of(self, values, wanted):
        made = self(values, training=True)
        return tf.reduce_mean(
            (tf.matmul(made, made, transpose_b=True) - tf.matmul(wanted, wanted, transpose_b=True)) ** 2
        )


def compares_in_its_step():
    return of_a_class(Pairs)


class Sums(OfMeans):
    def loss_of(self, values, wanted):
        return 0.01 * tf.reduce_sum((wanted - self(values, training=True)) ** 2)


def own_sums():
    return of_a_class(Sums, "mse")


class RootOfNoise(OfMeans):
    def loss_of(self, values, wanted):
        noise = keras.random.normal(tf.shape(wanted), seed=1)
        return tf.sqrt(tf.reduce_mean((wanted + noise - self(values, training=True)) ** 2))


def own_root_of_noise():
    return of_a_class(RootOfNoise)


class OwnRoot(keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.sqrt(tf.reduce_mean((data[1] - self(data[0], training=True)) ** 2))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def own_root():
    return of_a_class(OwnRoot)


def of_the_whole_batch():
    return compiled(layers.Dense(1, "sigmoid"), loss=losses.Dice()), batched(inputs, targets)


def of_pairs():
    return compiled(layers.Dense(4), layers.UnitNormalization(), loss=losses.Circle()), batched(inputs, classes)


def of_one_number_with_weights():
    model, _ = of_one_number()
    return model, batched(inputs, targets, np.abs(inputs[:, 0]))


class OwnCall(losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return keras.ops.mean((y_true - y_pred) ** 2)


def own_call():
    return compiled(layers.Dense(1), loss=OwnCall()), batched(inputs, targets)


class Adds(layers.Layer):
    def call(self, values):
        self.add_loss(0.01 * keras.ops.sum(values**2))
        return values


def adds_a_sum():
    return compiled(Adds(), layers.Dense(1)), batched(inputs, targets)


class Centres(layers.Layer):
    def build(self, shape):
        self.mean = self.add_weight(shape=(shape[-1],), initializer="zeros", trainable=False, name="mean")

    def call(self, values, training=False):
        if training:
            self.mean.assign(0.9 * self.mean + 0.1 * keras.ops.mean(values, 0))
        return values - self.mean


def own_state():
    return compiled(Centres(), layers.Dense(1)), batched(inputs, targets)


class Contrasts(keras.Model):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return keras.ops.mean(keras.ops.matmul(y_pred, keras.ops.transpose(y_pred)))


def compares_examples():
    return of_a_class(Contrasts)


def of_batches(model, data):
    values = [number for batch in data for number in model.train_on_batch(*batch)]
    values += model.test_on_batch(inputs[:13], targets[:13], np.abs(inputs[:13, 0]))
    return [*values, model.predict_on_batch(inputs[:13]), model.predict_on_batch(tf.constant(inputs[:1]))]


def on_batches():
    positive = keras.metrics.TruePositives(name="positive")
    last, loss = layers.Dense(1, "sigmoid"), losses.BinaryCrossentropy(reduction="sum")
    model = compiled(last, loss=loss, optimizer=optimizers.SGD(0.01), metrics=[positive])
    return model, batched(inputs, classes[:, None]), of_batches


def of_arrays(model, arrays):
    """What is fitted on arrays of the user's, which stay what they are."""

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(arrays)

        def __getitem__(self, place):
            return arrays[place]

    before = np.copy([values for values, _ in arrays])
    model.fit(Batches(), shuffle=False, epochs=2, verbose=0)
    model.fit((pair for pair in arrays), verbose=0)
    return [*model.get_weights(), *(values - kept for (values, _), kept in zip(arrays, before, strict=True))]


def of_own_arrays():
    model = keras.Sequential([layers.Input((8, 64)), layers.ReLU(), layers.Flatten(), layers.Dense(1)])
    model.compile(optimizers.SGD(0.001), "mse")
    room = np.zeros(3 * 8192 + 16, "float32")
    start = -room.ctypes.data % 64 // room.itemsize  # TensorFlow copies what is not aligned
    values = room[start:][: 3 * 8192].reshape(3, 16, 8, 64)
    values[:] = np.random.default_rng(3).normal(size=values.shape)
    return model, [(each, each[:, 0, :1] * 2) for each in values], of_arrays


def masked_and_normalized():
    values = layers.Input((7,))
    embedded = layers.BatchNormalization()(layers.Embedding(5, 4, mask_zero=True)(values))
    model = keras.Model(values, layers.Dense(1)(layers.GlobalAveragePooling1D()(embedded)))
    model.compile(optimizers.SGD(0.1), "mse")
    return model, batched(tokens, targets)


def measured(case, strategy):
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model, data, *measure = case()
    if measure:
        return [*model.get_weights(), *measure[0](model, data)]
    history = model.fit(data, epochs=2, verbose=0).history
    evaluated = model.evaluate(data, verbose=0, return_dict=True)
    predicted = keras.tree.flatten(model.predict(data, verbose=0))
    return [*model.get_weights(), *history.values(), *evaluated.values(), *predicted]


mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for name in sys.argv[1:]:
    case = globals()[name]
    alone = measured(case, None)
    try:
        pairs = zip(alone, measured(case, mirrored), strict=True)
    except Exception as error:
        if type(error).__name__ != "UsageError":
            raise
        print(f"{name}: {error}", flush=True)
        continue
    print(f"{name} {max(float(np.max(np.abs(np.subtract(*pair)))) for pair in pairs):.1e}", flush=True)
