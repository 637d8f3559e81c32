"""Steps of several replicas that call functions, conditions and loops of TensorFlow, of which it makes other graphs."""

import re
from pathlib import Path

from trainer.cluster import TWO_DEVICES, ran

FUNCTIONS = (
    TWO_DEVICES
    + """
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
)


def test_functions_of_tensorflow_in_a_step_compute_what_one_device_computes(folder: Path) -> None:
    log = ran(folder, script=FUNCTIONS, imported=True)["worker-0"].log
    differences = re.findall(r"^differs by (\S+)$", log, re.M)
    assert len(differences) == 2
    assert max(map(float, differences)) < 5e-6


LOOP = (
    TWO_DEVICES
    + """
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
)


def test_a_batch_normalization_in_a_loop_is_refused_in_one_line(folder: Path) -> None:
    line = ran(folder, code=2, script=LOOP, imported=True)["worker-0"].last_words
    assert line.startswith("BatchNormalization norm is called in a loop or a condition of TensorFlow")
    assert "give a recurrent layer unroll=True" in line
    assert len(line.splitlines()) == 1


CONDITIONS = (
    TWO_DEVICES
    + """
mirrored = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope
x = np.random.default_rng(0).normal(size=(52, 4)).astype("float32")
y = np.tanh(x[:, :3])

class Own(keras.Sequential):
    def gradients(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        return loss, tape.gradient(loss, self.trainable_variables)

class ByHand(Own):
    def train_step(self, data):
        loss, gradients = self.gradients(data)
        self.taken.assign_add(1)
        for total, one in zip(self.totals, gradients):
            total.assign_add(one)
        tf.cond(tf.equal(self.taken, 2), self.update, lambda: None)
        return {"loss": loss}
    def update(self):
        self.optimizer.apply_gradients(zip(self.totals, self.trainable_variables))
        for one in (self.taken, *self.totals):
            one.assign(tf.zeros_like(one))

class IfSmall(Own):
    @tf.function
    def train_step(self, data):
        loss, gradients = self.gradients(data)
        if tf.linalg.global_norm(gradients) < 0.8:
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
        return {"loss": loss}

class ByExample(Own):
    def train_step(self, data):
        loss, gradients = self.gradients(data)
        pairs = list(zip(gradients, self.trainable_variables))
        tf.cond(data[0][0, 0] > 0, lambda: self.optimizer.apply_gradients(pairs), lambda: self.optimizer.iterations)
        return {"loss": loss}

def measured(kind, scope):
    keras.utils.set_random_seed(0)
    with scope():
        m = kind([keras.Input((4,)), keras.layers.Dense(3)])
        m.taken, m.totals = tf.Variable(0), [tf.Variable(tf.zeros_like(one)) for one in m.trainable_variables]
        m.compile(keras.optimizers.Adam(0.1), "mse")
    return [m.fit(x, y, batch_size=13, shuffle=False, verbose=0).history["loss"], *m.get_weights()]

for kind in (ByHand, IfSmall):
    pairs = zip(measured(kind, contextlib.nullcontext), measured(kind, mirrored), strict=True)
    print(f"{kind.__name__} differs by {max(np.max(np.abs(np.subtract(*pair))) for pair in pairs):.1e}")
measured(ByExample, mirrored)
"""
)


def test_weights_are_updated_in_a_condition_that_is_the_same_on_all_replicas_alone(folder: Path) -> None:
    job = ran(folder, code=2, script=CONDITIONS, imported=True)["worker-0"]
    differences = dict(re.findall(r"^(\w+) differs by (\S+)$", job.log, re.M))
    assert sorted(differences) == ["ByHand", "IfSmall"]
    assert max(map(float, differences.values())) < 5e-6, differences
    line = "fit with 2 replicas: ByExample.train_step calls the optimizer Adam in a loop or a condition of TensorFlow"
    assert job.last_words.startswith(line)
    assert len(job.last_words.splitlines()) == 1
