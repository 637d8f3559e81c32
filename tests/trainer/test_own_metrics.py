"""Metrics that a step, a layer or a `compute_loss` of the user's own updates and reads are those of the whole batch."""

import re
from pathlib import Path

import pytest

from trainer.cluster import TWO_DEVICES, ran

BEGIN = (
    TWO_DEVICES
    + """
mirrored = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope
# The last batch has one example.
x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
y = np.tanh(x[:, :3])
data = tf.data.Dataset.from_tensor_slices((x, y)).batch(13)

def root(y, p):
    return tf.sqrt(tf.reduce_mean(tf.square(y - p)))

class Largest(keras.metrics.Metric):
    def __init__(self, name="largest"):
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")
    def update_state(self, y, p=0.0):
        self.largest.assign(tf.maximum(self.largest, tf.reduce_max(tf.abs(y - p))))
    def result(self):
        return self.largest

class Step(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y - p))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        return {"loss": loss, **self.measured(y, p, loss)}
    def test_step(self, data):
        x, y = data
        return self.measured(y, self(x), 1.0)
"""
)
COMPARED = """
def fitted(scope, make):
    keras.utils.set_random_seed(0)
    with scope():
        model = make()
        model.compile("sgd", "mse", metrics=METRICS)
    history = model.fit(data, epochs=2, verbose=0).history
    return history | model.evaluate(data, verbose=0, return_dict=True)

for make in MADE:
    plain, adapted = (fitted(scope, make) for scope in (contextlib.nullcontext, mirrored))
    assert plain.keys() == adapted.keys()
    for name in plain:
        off = np.max(np.abs(np.subtract(plain[name], adapted[name])) / np.maximum(1, np.abs(plain[name])))
        print(f"{make.__name__}:{name} differs by {off:.1e}")
"""
OF_STEP = """
class Measures(Step):
    def make(self):
        self.of_rows, self.of_numbers = Largest("of_rows"), Largest("of_numbers")
        self.sum = keras.metrics.Sum(name="sum")
        self.roots = keras.metrics.MeanMetricWrapper(root, name="roots")
        self.mean, self.weighed = keras.metrics.Mean(name="mean"), keras.metrics.Mean(name="weighed")
        self.absolute = keras.metrics.MeanAbsoluteError(name="absolute")
    def measured(self, y, p, loss):
        self.of_rows.update_state(y, p)
        self.of_numbers.update_state(loss)
        self.sum.update_state(loss)
        self.roots.update_state(y, p)
        self.mean.update_state(tf.square(y - p))
        self.weighed.update_state(loss, sample_weight=tf.shape(y)[0])
        self.absolute.update_state(y, p)
        shown = (self.of_rows, self.of_numbers, self.sum, self.roots, self.mean, self.weighed, self.absolute)
        return {one.name: one.result() for one in shown} | {"perplexity": keras.ops.exp(self.mean.result())}

def step():
    model = Measures([keras.Input((4,)), keras.layers.Dense(3)])
    model.make()
    return model

MADE, METRICS = [step], None
"""
OF_OTHERS = """
class Measuring(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.mean, self.largest = keras.metrics.Mean(name="inner_mean"), Largest("inner_largest")
    def call(self, h):
        self.mean.update_state(tf.reduce_mean(h))
        self.largest.update_state(h)
        return h

class Others(keras.Sequential):
    def make(self):
        self.number, self.largest, self.of_loss = keras.metrics.Mean(name="number"), Largest(), Largest("of_loss")
    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight)
        self.of_loss.update_state(loss)
        return loss
    def compute_metrics(self, x, y, y_pred, sample_weight):
        self.number.update_state(tf.reduce_mean(tf.abs(y - y_pred)))
        self.largest.update_state(y, y_pred)
        found = super().compute_metrics(x, y, y_pred, sample_weight)
        return found | {"perplexity": keras.ops.exp(found["loss"]), "distance": tf.reduce_mean(tf.abs(y - y_pred))}

def others():
    model = Others([keras.Input((4,)), Measuring(), keras.layers.Dense(3)])
    model.make()
    return model

class Documented(keras.Sequential):
    # As the documentation of compute_loss shows it.
    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        loss = keras.ops.mean(keras.ops.square(y_pred - y))
        self.tracker.update_state(loss)
        return loss
    def reset_metrics(self):
        self.tracker.reset_state()
    @property
    def metrics(self):
        return [self.tracker] if hasattr(self, "tracker") else []

def documented():
    model = Documented([keras.Input((4,)), keras.layers.Dense(3)])
    model.tracker = keras.metrics.Mean(name="loss")
    return model

def distiller():
    teacher, student = (keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)]) for _ in range(2))
    return keras.distillation.Distiller(teacher, student, keras.distillation.LogitsDistillation(temperature=3.0))

MADE, METRICS = [others, documented, distiller], ["mae"]
"""


@pytest.mark.parametrize("made", [OF_STEP, OF_OTHERS], ids=["step", "layer, compute_metrics and compute_loss"])
def test_metrics_that_own_code_updates_and_reads_are_those_of_one_device(folder: Path, made: str) -> None:
    log = ran(folder, script=BEGIN + made + COMPARED, imported=True)["worker-0"].log
    differences = {name: float(value) for name, value in re.findall(r"^(\S+) differs by (\S+)$", log, re.M)}
    assert len(differences) > 8
    assert max(differences.values()) < 5e-6, differences


REFUSED = """
import sys

class Refused(Step):
    def measured(self, y, p, loss):
        if sys.argv[1] == "returns":
            return {"far": root(y, p)}
        self.far.update_state(root(y, p))
        return {}

with mirrored():
    model = Refused([keras.Input((4,)), keras.layers.Dense(3)])
    model.far = keras.metrics.Mean(name="far")
    model.compile("sgd")
model.fit(data, verbose=0)
"""


@pytest.mark.parametrize(("does", "said"), [("returns", "returns far,"), ("gives", "gives the metric far")])
def test_a_number_that_is_neither_mean_nor_sum_is_refused_by_its_name_unless_it_is_accepted(
    folder: Path, does: str, said: str
) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(BEGIN + REFUSED)
    arguments = [f"--script={folder / 'script.py'}", "--", does]
    line = ran(folder, code=2, arguments=arguments, imported=True)["worker-0"].last_words.splitlines()[-1]
    assert line.startswith(f"fit with 2 replicas: Refused.train_step {said} a number that is neither the mean nor the")
    assert line.endswith("or accept other numbers than those of one device with --unchecked=far")
    log = ran(folder, arguments=["--unchecked=far", *arguments], imported=True)["worker-0"].log
    assert f"accepted by --unchecked=far: fit with 2 replicas: Refused.train_step {said}" in log
