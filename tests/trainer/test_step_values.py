"""What a step of the user's own returns, and metrics that do not begin at 0, are those of the whole batch."""

import json
import re
from pathlib import Path

import pytest

from trainer.cluster import TWO_DEVICES, ran

SCRIPT = (
    TWO_DEVICES
    + """
mirrored = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope
x = np.random.default_rng(0).normal(size=(45, 4)).astype("float32")
y = np.tanh(x[:, :3])

class Least(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="least")
        self.least = self.add_variable((), "ones", name="least")
    def update_state(self, y, p, sample_weight=None):
        self.least.assign(tf.minimum(self.least, tf.reduce_min(tf.abs(y - p))))
    def result(self):
        return self.least
    def reset_state(self):
        self.least.assign(1e9)

class Moving(Least):
    def __init__(self):
        super().__init__()
        self.name = "moving"
    def update_state(self, y, p, sample_weight=None):
        self.least.assign(0.9 * self.least + 0.1 * tf.reduce_mean(tf.abs(y - p)))
    def reset_state(self):
        self.least.assign(1.0)

class Own(keras.Sequential):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = tf.reduce_mean(tf.square(y - p))
        self.optimizer.apply_gradients(zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables))
        right = tf.reduce_sum(tf.cast((y > 0) == (p > 0), "int32"))
        self.count.update_state(right)
        return {"loss": loss, "rate": self.optimizer.learning_rate, "taken": self.optimizer.iterations, "beta": 0.5,
                "examples": tf.shape(x)[0], "right": right, "count": self.count.result()}

class Squeezed(keras.Sequential):
    # A number for each example, and no axis for it: the functions of Keras compare the examples of a batch then.
    def call(self, x, training=None):
        return super().call(x)[:, 0]

def history(scope, kind, **compiled):
    keras.utils.set_random_seed(0)
    with scope():
        m = kind([keras.Input((4,)), keras.layers.Dense(3)])
        m.count = keras.metrics.Mean(name="count")
        m.compile("sgd", **{"loss": "mse"} | {name: make() for name, make in compiled.items()})
    return m.fit(x, y[:, 0] if kind is Squeezed else y, batch_size=13, epochs=2, shuffle=False, verbose=0).history

def compared():
    metrics, losses = keras.metrics, keras.losses
    return [metrics.PearsonCorrelation(axis=0), metrics.ConcordanceCorrelation(axis=0),
            metrics.CosineSimilarity(axis=0), losses.dice, losses.tversky, losses.MeanSquaredError()]

for kind, compiled in (
    (Own, {}),
    (keras.Sequential, {"metrics": lambda: [Least(), Moving(), *compared()]}),
    (Squeezed, {"loss": lambda: "cosine_similarity", "metrics": lambda: ["mae", "kl_divergence"]}),
):
    plain, adapted = (history(scope, kind, **compiled) for scope in (contextlib.nullcontext, mirrored))
    for name in plain:
        off = np.max(np.abs(np.subtract(plain[name], adapted[name])) / np.maximum(1, np.abs(plain[name])))
        print(f"{kind.__name__}:{name} differs by {off:.1e}")
"""
)


def test_numbers_of_all_kinds_are_those_of_one_device(folder: Path) -> None:
    log = ran(folder, script=SCRIPT, imported=True)["worker-0"].log
    differences = {name: float(value) for name, value in re.findall(r"^(\S+) differs by (\S+)$", log, re.M)}
    own = ["beta", "count", "examples", "loss", "rate", "right", "taken"]
    compared = ["concordance_correlation", "cosine_similarity", "dice", "pearson_correlation", "tversky"]
    metrics = ["count", "least", "loss", "mean_squared_error", "moving", *compared]
    expected = {"Own": own, "Sequential": metrics, "Squeezed": ["count", "kl_divergence", "loss", "mae"]}
    assert sorted(differences) == sorted(f"{kind}:{name}" for kind, names in expected.items() for name in names)
    assert max(differences.values()) < 5e-6, differences


OPTIMIZERS = """
import contextlib, json, os, keras, numpy as np, tensorflow as tf

alone = os.environ["DTJ_STRATEGY"] == "OneDevice"
scope = contextlib.nullcontext if alone else tf.distribute.MultiWorkerMirroredStrategy().scope
x = np.random.default_rng(0).normal(size=(26, 4)).astype("float32")

class Several(keras.optimizers.Optimizer):
    def __init__(self, pairs):
        super().__init__(learning_rate=0.1)
        self.pairs = pairs
    learning_rate = property(lambda self: [one.learning_rate for one, _ in self.pairs], lambda self, rate: None)
    def apply(self, gradients, weights):
        given = {one.path: gradient for gradient, one in zip(gradients, weights)}
        for one, layer in self.pairs:
            one.apply([given[weight.path] for weight in layer.trainable_variables], layer.trainable_variables)

class Own(keras.Sequential):
    def compile(self, optimizer, **options):
        super().compile(**options)
        self.optimizer = optimizer
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self(data[0], training=True) - data[1]))
        weights = self.trainable_variables
        gradients = tape.gradient(loss, weights)
        each = [gradients] if isinstance(self.optimizer, Several) else [gradients[:2], gradients[2:]]
        for optimizer, some in zip(keras.tree.flatten(self.optimizer), each):
            optimizer.apply(some, weights[:len(some)] if some is each[0] else weights[2:])
        return {"loss": loss}

for combine in (Several, lambda pairs: [one for one, _ in pairs]):
    keras.utils.set_random_seed(0)
    with scope():
        m = Own([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(4)])
        m.compile(combine([(keras.optimizers.SGD(0.1), m.layers[0]), (keras.optimizers.Adam(0.1), m.layers[1])]))
    m.fit(x, x, batch_size=13, shuffle=False, verbose=0)
    print("weights", json.dumps([value for one in m.get_weights() for value in one.ravel().tolist()]))
"""


def test_several_optimizers_as_one_and_a_list_of_them_train_over_two_workers_as_on_one_device(folder: Path) -> None:
    kinds = ("OneDevice", "MultiWorkerMirrored")
    jobs = [ran(folder / kind, strategy=kind, script=OPTIMIZERS, imported=True) for kind in kinds]
    alone, shared = (re.findall(r"^weights (.*)$", job["worker-0"].log, re.M) for job in jobs)
    assert len(alone) == len(shared) == 2
    for one, other in zip(alone, shared, strict=True):
        assert json.loads(other) == pytest.approx(json.loads(one), abs=5e-6)
