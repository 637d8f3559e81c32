"""What `fit` of a script says of what is accepted, of what several replicas cannot do, and of what is not adapted."""

from pathlib import Path

from trainer.cluster import TWO_DEVICES, ran

MIXES = (
    TWO_DEVICES
    + """

class Centre(keras.layers.Layer):
    def call(self, h, strength):  # which has no row for each example
        return h - strength * tf.reduce_mean(h, 0)

class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.sqrt(tf.reduce_mean((self(x, training=True) - y) ** 2))
        v = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, v), v))
        return {"loss": loss}

with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    x = keras.Input((2,))
    model = Own(x, keras.layers.Dense(1)(Centre(name="centre")(x, tf.ones(()))))
    model.compile("sgd")
x = np.random.default_rng(1).normal(size=(8, 2)).astype("float32")
model.fit(x, x[:, :1], batch_size=4, verbose=0)
print("trained")
"""
)


def test_what_nothing_shows_to_divide_is_trained_if_the_user_names_it(folder: Path) -> None:
    names = ["train_step", "centre"]
    refused = ran(folder, code=2, script=MIXES, imported=True, environ={"DTJ_UNCHECKED": names[0]})
    assert "with --unchecked=centre" in refused["worker-0"].last_words
    trained = ran(folder / "again", script=MIXES, imported=True, arguments=[f"--unchecked={','.join(names)}"])
    log = trained["worker-0"].log
    assert all(f"accepted by --unchecked={name}: fit with 2 replicas: " in log for name in names)
    assert "\ntrained\n" in log


STATEFUL = (
    TWO_DEVICES
    + """

class Built(keras.Model):
    def __init__(self):
        super().__init__()
        self.memory, self.out = keras.layers.GRU(3, stateful=True, name="memory"), keras.layers.Dense(1)

    def call(self, x):
        return self.out(self.memory(x))

x = np.ones((16, 4, 3), "float32")
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    given = keras.Input(batch_shape=(8, 4, 3))
    whole = keras.Sequential([given, keras.layers.LSTM(3, stateful=True, name="memory"), keras.layers.Dense(1)])
    parts = Built()
for model in (whole, parts):
    model.compile("sgd", "mse")
    calls = {
        "fit": lambda: model.fit(x, x[:, 0, :1], batch_size=8, verbose=0),
        "evaluate": lambda: model.evaluate(x, x[:, 0, :1], batch_size=8, verbose=0),
        "predict": lambda: model.predict(x, batch_size=8, verbose=0),
    }
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            print("said", name, type(error).__name__, str(error).partition(";")[0], flush=True)
"""
)


def test_a_stateful_layer_is_refused_in_one_line_since_replicas_have_parts_of_a_batch(folder: Path) -> None:
    log = ran(folder, script=STATEFUL, imported=True)["worker-0"].log
    said = [line for line in log.splitlines() if line.startswith("said ")]
    each = ["said fit UsageError", "said evaluate UsageError", "said predict UsageError"]
    assert [line.partition(" the layer ")[0] for line in said] == each * 2
    assert all("the layer memory of " in line and "takes whole batches" in line for line in said)


SECOND = """
import numpy as np, tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
x = np.ones((8, 2), "float32")
for devices in (1, 2, 2):
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"][:devices]).scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(x, x[:, :1], batch_size=4, verbose=0)
    print("trained on", devices, flush=True)
"""


def test_the_fit_of_the_second_keras_says_once_that_it_is_not_adapted(folder: Path) -> None:
    job = ran(folder, script=SECOND, imported=True, environ={"TF_USE_LEGACY_KERAS": "1"})
    lines = [
        line for line in job["worker-0"].log.splitlines() if line.startswith(("trained", "warning: fit of tf_keras"))
    ]
    assert [line[:38] for line in lines] == [
        "trained on 1", "warning: fit of tf_keras with 2 replic", "trained on 2", "trained on 2",
    ]  # fmt: skip


ALONE = (
    TWO_DEVICES
    + """

class Centre(keras.layers.Layer):
    def call(self, h):
        return h - tf.reduce_mean(h, 0)

x = np.random.default_rng(1).normal(size=(13, 2)).astype("float32")
expected = np.concatenate([one - one.mean(0) for one in (x[:8], x[8:])])
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((2,)), Centre()])
np.testing.assert_allclose(model.predict(x, batch_size=8, verbose=0), expected, rtol=1e-5, atol=1e-6)
np.testing.assert_allclose(model.predict_on_batch(x[:7]), x[:7] - x[:7].mean(0), rtol=1e-5, atol=1e-6)
print("as on one device")
"""
)


def test_a_layer_that_compares_examples_predicts_as_on_one_device_though_nothing_was_trained(folder: Path) -> None:
    assert "\nas on one device\n" in ran(folder, script=ALONE, imported=True)["worker-0"].log
