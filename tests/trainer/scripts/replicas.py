"""Models of ../parity_models.py, fitted on one device and on two replicas; prints the largest difference of each.

Takes MODEL:DATA, or MODEL:batches_of_DATA for its single batches. Of a model that is refused the line is printed.
"""

import contextlib
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

devices = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
sys.path.append(str(Path(__file__).parents[1]))

import keras  # noqa: E402 - after the devices are set
import parity_models  # noqa: E402


def on_data(model, data):
    history = model.fit(data, epochs=2, verbose=0).history
    evaluated = model.evaluate(data, verbose=0, return_dict=True)
    predicted = keras.tree.flatten(model.predict(data, verbose=0))
    return [*history.values(), *evaluated.values(), *predicted]


def on_batches(model, data):
    batch = next(iter(data))
    learned, judged = (one(*batch, return_dict=True) for one in (model.train_on_batch, model.test_on_batch))
    return [*learned.values(), *judged.values(), *keras.tree.flatten(model.predict_on_batch(batch[0]))]


def on_own_arrays(model):
    """What is fitted on arrays of the user's, which stay what they are."""
    room = np.zeros(3 * 8192 + 16, "float32")
    start = -room.ctypes.data % 64 // room.itemsize  # TensorFlow copies what is not aligned
    values = room[start:][: 3 * 8192].reshape(3, 16, 8, 64)
    values[:] = np.random.default_rng(3).normal(size=values.shape)
    pairs, before = [(each, each[:, 0, :1] * 2) for each in values], values.copy()

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return len(pairs)

        def __getitem__(self, place):
            return pairs[place]

    model.fit(Batches(), shuffle=False, epochs=2, verbose=0)
    model.fit((pair for pair in pairs), verbose=0)
    return [values - before]


def measured(name, data, strategy):
    keras.backend.clear_session()
    keras.utils.set_random_seed(7)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = getattr(parity_models, name)()
    if data == "own_arrays":
        return [*on_own_arrays(model), *model.get_weights()]
    examples = getattr(parity_models, data.removeprefix("shuffled_").removeprefix("batches_of_"))()["training"]
    examples = examples.shuffle(99, seed=1) if data.startswith("shuffled_") else examples
    measure = on_batches if data.startswith("batches_of_") else on_data
    return [*measure(model, examples.batch(13)), *model.get_weights()]


mirrored = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for case in sys.argv[1:]:
    name, _, data = case.partition(":")
    alone = measured(name, data, None)
    try:
        pairs = zip(alone, measured(name, data, mirrored), strict=True)
    except Exception as error:
        if type(error).__name__ not in ("UsageError", "Undivided"):
            raise
        print(f"{case} {error}", flush=True)
        continue
    print(f"{case} {max(float(np.max(np.abs(np.subtract(*pair)))) for pair in pairs):.1e}", flush=True)
