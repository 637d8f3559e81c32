"""Fits models that draw, by several replicas, and writes down what each replica has drawn.

Takes a folder, and WAY:STEPS_PER_EXECUTION or WAY:eagerly. Each process writes WAY:….npz: the numbers of each of its
replicas by step and example, and those of one device as `alone`. order-….json is what it draws outside of steps.
"""

import collections
import json
import os
import random
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

task = json.loads(os.environ["TF_CONFIG"])
index, workers = task["task"]["index"], len(task["cluster"]["worker"])
if workers > 1:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
else:
    devices = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

import keras  # noqa: E402 - after the devices are set

STEPS, EXAMPLES, WIDE = 4, 32, 48
order = []
drawn = collections.defaultdict(list)


def put_in_order():
    """Draws what decides over order and splits, the same on all workers."""
    order.extend([random.random(), float(tf.random.uniform([])), *map(int, tf.data.Dataset.range(20).shuffle(20))])
    order.extend([*np.random.permutation(20).tolist(), *np.random.default_rng().permutation(20).tolist()])


def note(values):
    """Writes down what a replica has drawn in a step."""
    context = tf.distribute.get_replica_context()
    if context is not None and isinstance(tf.distribute.get_strategy(), type(strategy)):

        def write(replica, values):
            drawn[str(replica)].append(np.array(values))
            return np.int64(0)

        tf.numpy_function(write, [context.replica_id_in_sync_group, values], tf.int64)
    return 1e-6 * tf.reduce_mean(values, 1, keepdims=True)


def in_step(draw):
    class Model(keras.Model):
        def train_step(self, data):
            x, y = data
            return super().train_step((x + note(draw((tf.shape(x)[0], WIDE))), y))

    return Model


class Draws(keras.layers.Layer):
    """Notes what a layer makes of numbers that are the same in each example."""

    def __init__(self, layer, *shape):
        super().__init__()
        self.layer, self.shape = layer, shape

    def call(self, x):
        same = tf.reshape(tf.range(WIDE, dtype=tf.float32) + 1.0, self.shape)
        made = self.layer(tf.broadcast_to(same, [tf.shape(x)[0], *self.shape]), training=True)
        return x + note(tf.reshape(made, [-1, WIDE]))


class Unseeded(keras.layers.Layer):
    def call(self, x, training=False):
        return x + keras.random.normal(tf.shape(x))


def seeded():
    generator = keras.random.SeedGenerator(7)
    return lambda shape: keras.random.normal(shape, seed=generator)


def seeded_twice():
    draw = seeded()
    return lambda shape: tf.concat([draw((shape[0] // 2, WIDE)) for _ in range(2)], 0)


def seeded_in_loop():
    draw = seeded()
    return lambda shape: tf.reshape(tf.map_fn(lambda _: draw((shape[0] // 4, WIDE)), tf.zeros(4)), shape)


LAYERS = keras.layers
WAYS = {
    "normal": lambda: tf.random.normal,
    "shuffled": lambda: lambda shape: tf.reshape(tf.random.shuffle(tf.linspace(0.0, 1.0, shape[0] * WIDE)), shape),
    "with_seed": lambda: lambda shape: tf.random.truncated_normal(shape, seed=5),
    "in_branch": lambda: lambda shape: tf.cond(shape[0] > 0, lambda: tf.random.normal(shape), lambda: tf.zeros(shape)),
    "seed_generator": seeded,
    "two_draws": seeded_twice,
    "in_loop": seeded_in_loop,
    "unseeded": lambda: keras.random.normal,
    "generator": lambda: tf.random.Generator.from_seed(3).normal,
    "stateless": lambda: lambda shape: tf.random.stateless_normal(shape, (1, 2)),
    "dropout": lambda: Draws(LAYERS.Dropout(0.5), WIDE),
    "gaussian_noise": lambda: Draws(LAYERS.GaussianNoise(1.0), WIDE),
    "flip": lambda: Draws(LAYERS.RandomFlip("horizontal"), 4, 4, 3),
    "unseeded_layer": lambda: Draws(Unseeded(), WIDE),
}

put_in_order()
for case in sys.argv[2:]:
    way, _, how = case.partition(":")
    drawn.clear()
    keras.utils.set_random_seed(1)
    inputs = keras.Input((1,))
    made = WAYS[way]()
    with strategy.scope():
        if isinstance(made, keras.Layer):
            model = keras.Model(inputs, LAYERS.Dense(1)(made(inputs)))
        else:
            model = in_step(made)(inputs, LAYERS.Dense(1)(inputs))
    model.compile("sgd", "mse", run_eagerly=how == "eagerly", steps_per_execution=1 if how == "eagerly" else int(how))
    x = np.linspace(0, 1, STEPS * EXAMPLES * 2, dtype="float32")[:, None]
    model.fit(x, x, batch_size=EXAMPLES * 2, epochs=1, shuffle=False, verbose=0)
    if way in ("seed_generator", "two_draws", "generator"):
        draw = WAYS[way]()
        drawn["alone"] = [np.array(draw((EXAMPLES, WIDE))) for _ in range(STEPS)]
    np.savez(Path(sys.argv[1]) / f"{case}-{index}.npz", **drawn)
    for variable in model.variables:
        if variable.name == "seed_generator_state":
            states = [each.numpy().tolist() for each in strategy.experimental_local_results(variable.value)]
            print(case, "stands at", states[0][1], len({str(state) for state in states}))
put_in_order()
(Path(sys.argv[1]) / f"order-{index}.json").write_text(json.dumps(order))
