"""Steps of several replicas that call functions, conditions and loops of TensorFlow, of which it makes other graphs."""

import re
from pathlib import Path

from trainer.cluster import ran

FUNCTIONS = """
import contextlib, keras, numpy as np, tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
mirrored = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope
x = np.random.default_rng(0).normal(size=(45, 4)).astype("float32")
y = np.tanh(x[:, :3])

class Normalized(keras.Layer):
    def build(self, shape):
        self.inner = keras.layers.BatchNormalization()
        self.inner.build(shape)
    @tf.function
    def call(self, h, training=None):
        if tf.reduce_max(h) > 1e9:
            h = h / 1e9
        return self.inner(h, training=training)

class Own(keras.Sequential):
    @tf.function
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=p)
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {**self.compute_metrics(x, y, p), "loss": loss}
    @tf.function
    def test_step(self, data):
        return {"loss": tf.reduce_mean(tf.square(self(data[0], training=False) - data[1]))}

def measured(scope, eagerly):
    keras.utils.set_random_seed(0)
    with scope():
        m = Own([keras.Input((4,)), Normalized(), keras.layers.Dense(3)])
        m.compile("sgd", "mse", metrics=["mae"], run_eagerly=eagerly)
    history = m.fit(x, y, batch_size=23, shuffle=False, verbose=0, validation_data=(x, y)).history
    return [*(history[name] for name in sorted(history)), *m.get_weights()]

for eagerly in (False, True):
    pairs = zip(measured(contextlib.nullcontext, eagerly), measured(mirrored, eagerly), strict=True)
    print(f"differs by {max(np.max(np.abs(np.subtract(*pair))) for pair in pairs):.1e}")
"""


def test_functions_of_tensorflow_in_a_step_compute_what_one_device_computes(folder: Path) -> None:
    log = ran(folder, script=FUNCTIONS, imported=True)["worker-0"].log
    differences = re.findall(r"^differs by (\S+)$", log, re.M)
    assert len(differences) == 2
    assert max(map(float, differences)) < 5e-6


LOOP = """
import keras, numpy as np, tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
x = np.random.default_rng(0).normal(size=(24, 5, 4)).astype("float32")

class Cell(keras.layers.SimpleRNNCell):
    def build(self, shape):
        super().build(shape)
        self.norm = keras.layers.BatchNormalization(name="norm")
        self.norm.build((shape[0], self.units))
    def call(self, h, states, training=None):
        out, new = super().call(h, states, training=training)
        return self.norm(out, training=training), new

with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    m = keras.Sequential([keras.Input((5, 4)), keras.layers.RNN(Cell(3))])
    m.compile("sgd", "mse")
m.fit(x, x[:, 0, :3], verbose=0)
"""


def test_a_batch_normalization_in_a_loop_is_refused_in_one_line(folder: Path) -> None:
    line = ran(folder, code=2, script=LOOP, imported=True)["worker-0"].last_words
    assert line.startswith("BatchNormalization norm is called in a loop or a condition of TensorFlow")
    assert "give a recurrent layer unroll=True" in line
    assert len(line.splitlines()) == 1
