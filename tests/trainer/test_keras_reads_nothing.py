"""To build a model for `fit` reads no batch: all that a generator gives is trained on, in the order of a shuffle."""

import re
from pathlib import Path

from trainer.cluster import TWO_DEVICES, ran

SCRIPT = (
    TWO_DEVICES
    + """
mirrored = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope
x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")

def of_many_lengths():
    r = np.random.default_rng(1)
    for number in range(12):
        a = r.normal(size=(6, 3 + number * 5 % 7, 4)).astype("float32")
        yield a, a.sum((1, 2))[:, None]

class Draws(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.r = np.random.default_rng(2)
    def __len__(self):
        return 9
    def __getitem__(self, number):
        a = self.r.normal(size=(6, 3 + number % 4, 4)).astype("float32")
        return a, a.sum((1, 2))[:, None]

def series():
    return keras.utils.timeseries_dataset_from_array(x, x[:, :1], 5, batch_size=7, shuffle=True, seed=3)

def padded():
    def line(n):
        return tf.ones((n % 5 + 1, 4)) * tf.cast(n, "float32"), tf.cast(n, "float32")
    return tf.data.Dataset.range(2, 22).map(line).shuffle(20, seed=4).padded_batch(6)

def trained(scope, data):
    keras.utils.set_random_seed(0)
    with scope():
        m = keras.Sequential([keras.Input((None, 4)), keras.layers.LSTM(3), keras.layers.Dense(1)])
        m.compile(keras.optimizers.SGD(1e-3), "mse")
    losses = m.fit(data, epochs=2 if not hasattr(data, "send") else 1, shuffle=False, verbose=0).history["loss"]
    return np.concatenate([losses, *map(np.ravel, m.get_weights())])

for make in (of_many_lengths, Draws, series, padded):
    plain, adapted = trained(contextlib.nullcontext, make()), trained(mirrored, make())
    print(make.__name__, "differs by", f"{np.max(np.abs(plain - adapted) / np.maximum(1, np.abs(plain))):.1e}")
"""
)


def test_data_of_sizes_that_only_a_batch_shows_are_all_trained_on_in_their_order(folder: Path) -> None:
    log = ran(folder, script=SCRIPT, imported=True)["worker-0"].log
    differences = {name: float(value) for name, value in re.findall(r"^(\w+) differs by (\S+)$", log, re.M)}
    assert sorted(differences) == ["Draws", "of_many_lengths", "padded", "series"]
    assert max(differences.values()) < 5e-6, differences


ONE = (
    SCRIPT.replace('["cpu:0", "cpu:1"]', '["cpu:0"]')
    .replace("in (of_many_lengths, Draws, series, padded)", "in (once, shuffled)")
    .replace(
        "def trained(",
        """def once():
    for number in range(12):
        yield np.full((6, 5, 4), number, "float32"), np.full((6, 1), number, "float32")

def shuffled():
    return tf.data.Dataset.from_tensor_slices((x[:, None], x[:, :1])).shuffle(40, seed=4).batch(7)

def trained(""",
    )
)


def test_one_replica_of_a_strategy_trains_on_all_data_in_their_order_as_without_a_strategy(folder: Path) -> None:
    log = ran(folder, script=ONE, imported=True)["worker-0"].log
    differences = {name: float(value) for name, value in re.findall(r"^(\w+) differs by (\S+)$", log, re.M)}
    assert sorted(differences) == ["once", "shuffled"]
    assert max(differences.values()) < 5e-6, differences


UNKNOWN = (
    TWO_DEVICES
    + """
x = np.ones((8, 4), "float32")
data = tf.data.Dataset.from_generator(
    lambda: ((x, x[:, :1]) for _ in range(3)), output_signature=(tf.TensorSpec([None, None]), tf.TensorSpec([None, 1])))

def of_kinds():
    kinds = keras.layers.Dense(4, "softmax")
    return keras.Sequential([keras.layers.Input((4,)), kinds])

class OfRows(keras.Model):
    def call(self, rows):
        return tf.stack([rows[number, :1] for number in range(rows.shape[0])])

kinds = tf.data.Dataset.from_generator(
    lambda: ((x, x) for _ in range(3)), output_signature=(tf.TensorSpec([None, 4]), tf.TensorSpec([None, None])))
plain = lambda: keras.Sequential([keras.layers.Dense(1)])
for made, eager, metrics in (plain, False, []), (OfRows, True, []), (of_kinds, False, [keras.metrics.F1Score()]):
    with tf.distribute.MirroredStrategy(["cpu:0"]).scope():
        m = made()
        m.compile("sgd", "mse", metrics=metrics, run_eagerly=eager)
    print("epochs:", len(m.fit(kinds if metrics else data, verbose=0, epochs=2).history["loss"]))
"""
)


def test_one_replica_builds_a_model_of_a_batch_that_needs_its_sizes(folder: Path) -> None:
    assert ran(folder, script=UNKNOWN, imported=True)["worker-0"].log.count("epochs: 2") == 3


NONE = (
    TWO_DEVICES
    + """
x = np.ones((8, 4), "float32")
with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    m = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    m.compile("sgd", "mse")
m.fit((x, x[:, :1], None) for _ in range(3))
"""
)


def test_a_generator_that_yields_none_is_refused_in_one_line(folder: Path) -> None:
    line = ran(folder, code=2, script=NONE, imported=True)["worker-0"].last_words
    assert re.fullmatch(r"train.py:\d+: the generator yields None, .* among 2 replicas; leave it out: .*", line)
