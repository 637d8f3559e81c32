"""A model that gets data in each way that several workers may; writes what came of every cell.

Arguments: the folder to write to, with the files to read, replicas (`one device` is plain Keras), and cells.
`../test_shared_data.py` has them all.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

folder, replicas, *cells = sys.argv[1:]
folder = Path(folder)
index = json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"]
strategy = None if replicas == "one device" else tf.distribute.MultiWorkerMirroredStrategy()
ONE, TWO = (1, 0) if strategy is None else (2, index), 2
"""Of how many parts, and which of them, a worker has that divides by itself."""
values = np.linspace(-1, 1, 240, dtype="float32").reshape(240, 1)
names, texts = (sorted(str(path) for path in folder.glob(f"*.{kind}")) for kind in ("tfrecord", "txt"))
OFF, DATA = tf.data.Options(), tf.data.Options()
OFF.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
DATA.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
DATA.deterministic = False


def labelled(record):
    value = tf.reshape(tf.io.decode_raw(record, tf.float32), [1])
    return value, tf.cast(value * 240, tf.int64) % 3


def files(named=names, deterministic=None):
    return tf.data.TFRecordDataset(named).map(labelled, num_parallel_calls=2, deterministic=deterministic)


def lines(named):
    numbers = tf.data.TextLineDataset(named).map(lambda line: tf.strings.to_number(line, tf.int64))
    return numbers.map(lambda one: (tf.cast([one], tf.float32) / 120 - 1, [one % 3]))


def arrays(part=slice(None)):
    return values[part], (values[part] * 240).astype("int64") % 3


def rows(part=slice(None)):
    return tf.data.Dataset.from_tensor_slices(arrays(part))


def own():
    return slice(ONE[1], None, ONE[0])


def batches(part=slice(None), size=20):
    x, y = arrays(part)
    for first in range(0, len(x), size):
        yield x[first:][:size], y[first:][:size]


class Batches(keras.utils.PyDataset):
    def __init__(self, part=slice(None)):
        super().__init__()
        self.batches = list(batches(part))

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, place):
        return self.batches[place]


def from_service(job_name):
    """The rows as a service gives them that the first worker runs."""
    path = folder / f"service-{job_name}"
    if index == 0:
        dispatcher = tf.data.experimental.service.DispatchServer()
        address = dispatcher.target.split("://")[1]
        config = tf.data.experimental.service.WorkerConfig(dispatcher_address=address)
        serving.extend([dispatcher, tf.data.experimental.service.WorkerServer(config)])
        path.with_suffix(".part").write_text(dispatcher.target)
        path.with_suffix(".part").rename(path)
    while not path.exists():
        time.sleep(0.05)
    give = tf.data.experimental.service.distribute
    mode = "distributed_epoch" if job_name else "parallel_epochs"
    return rows().batch(10).apply(give(mode, path.read_text(), job_name=job_name)).unbatch().batch(20)


serving = []


def augmented(x, y):
    return x + tf.random.normal([1]) * 1e-9, y


def run(cell):
    """What is measured: what Keras shows and predicts, how many examples it has counted, and the weights."""
    keras.utils.set_random_seed(1)
    with strategy.scope() if strategy else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(4, "tanh"), keras.layers.Dense(3)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    shown = []

    def fit(*given, **options):
        shown.append(model.fit(*given, verbose=0, shuffle=options.pop("shuffle", False), **options).history)
        shown.append(float(model._loss_tracker.count.numpy()))

    def evaluate(*given, **options):
        shown.append(model.evaluate(*given, verbose=0, **options))

    def predict(*given, **options):
        shown.append(model.predict(*given, verbose=0, **options).tolist())

    d, split = files(), 180
    part = own()
    place = ONE[1]
    {
        "files": lambda: fit(d.batch(20)),
        "files, take and skip": lambda: (
            fit(d.take(split).batch(20), validation_data=d.skip(split).batch(20), epochs=2),
            evaluate(d.skip(split).batch(20)), predict(d.skip(split).batch(20)),
        ),
        "files, predicted": lambda: predict(d.batch(20)),
        "files, some steps": lambda: (
            fit(d.batch(20), steps_per_epoch=3), fit(d.repeat().batch(20), steps_per_epoch=8, epochs=2),
            evaluate(d.batch(20), steps=4),
        ),
        "files, DATA": lambda: fit(d.batch(20).with_options(DATA), epochs=2),
        "one file": lambda: (
            fit(files(names[:1]).batch(20), validation_data=lines(texts[1:2]).batch(16)),
            fit(tf.data.Dataset.list_files(texts[:1]).interleave(lines).batch(16)),
            evaluate(files(names[2]).batch(20)),
        ),
        "files in any order": lambda: fit(
            tf.data.Dataset.from_tensor_slices(names)
            .interleave(lambda name: files(name), 2, 1, 2, False).take(split).batch(20)
        ),
        "files in any order, within a function": lambda: fit(
            tf.data.Dataset.from_tensor_slices(names)
            .flat_map(lambda name: files(name, deterministic=False)).take(split).batch(20)
        ),
        "files in any order, DATA": lambda: fit(files(deterministic=False).batch(20).with_options(DATA)),
        "changed at random": lambda: fit(rows().map(augmented, num_parallel_calls=4).batch(20)),
        "the same generator": lambda: (
            fit(batches()), fit(Batches(), validation_data=Batches()), predict(Batches()),
            fit(tf.data.Dataset.from_generator(batches, output_signature=signature())),
        ),
        "shuffled by Keras": lambda: fit(*arrays(), shuffle=True, batch_size=20, epochs=2),
        "shuffled by Keras, without a seed": lambda: (
            tf.random.set_seed(None), fit(*arrays(), shuffle=True, batch_size=20), tf.random.set_seed(1)
        ),
        "own shard, OFF": lambda: fit(
            rows().shard(*ONE).batch(20).with_options(OFF), validation_data=rows().shard(*ONE).batch(20)
            .with_options(OFF), epochs=2,
        ),
        "own rows of another number, OFF": lambda: (
            fit(rows(slice(0, 90) if place else slice(90, 240)).batch(20).with_options(OFF), epochs=2)
            if strategy else fit(rows().batch(20), epochs=2),
            evaluate(rows(slice(0, 90) if place else slice(90, 240)).batch(20).with_options(OFF))
            if strategy else evaluate(rows().batch(20)),
        ),
        "the same rows, OFF": lambda: fit(rows().batch(20).with_options(OFF)),
        "rows that end on one worker, OFF": lambda: fit(
            (rows().repeat() if place else rows()).batch(20).with_options(OFF), steps_per_epoch=2
        ),
        "a service, shared": lambda: fit(from_service("shared")),
        "a service": lambda: fit(from_service(None)),
        "own shard": lambda: fit(rows().shard(*ONE).batch(16)),
        "own rows": lambda: fit(*arrays(part), batch_size=16),
        "own rows in held-out examples": lambda: fit(*arrays(), validation_data=arrays(part)),
        "own rows, predicted": lambda: predict(values[part]),
        "own files": lambda: fit(files(names[part]).batch(16)),
        "own text files": lambda: fit(lines(texts[part]).batch(16)),
        "own generator": lambda: fit(batches(part)),
        "own PyDataset": lambda: fit(Batches(part)),
        "drawn by each worker": lambda: fit(*arrays(np.random.default_rng(os.getpid()).permutation(240)[:split])),
    }[cell]()  # fmt: skip
    return [shown, [value.tolist() for value in model.get_weights()]]


def signature():
    return tf.TensorSpec((None, 1), tf.float32), tf.TensorSpec((None, 1), tf.int64)


out = folder / f"{replicas} {index}"
out.mkdir(exist_ok=True)
for cell in cells:
    try:
        measured = {"measured": run(cell)}
    except Exception as error:  # noqa: BLE001 - a test reads it
        measured = {"line": f"{type(error).__name__}: {error}"}
    (out / f"{cell}.json").write_text(json.dumps(measured))
