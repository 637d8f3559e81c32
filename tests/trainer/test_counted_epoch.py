"""What is counted in an epoch of a `fit`.

What two workers train in the first one is counted over both, and compared with what the data hold.
"""

import json
import subprocess
import sys
from pathlib import Path

from trainer.cluster import DEADLINE, inherited, ran

SCRIPT = """
import json, os

import keras
import numpy as np
import tensorflow as tf

index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()
OFF = tf.data.Options()
OFF.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
x = np.random.default_rng(0).normal(size=(45, 2)).astype("float32")
rows = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))

with strategy.scope():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")


def fit(name, data, **options):
    print("fit", name, flush=True)
    model.fit(data, verbose=0, **options)


class Stops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True


class Evaluates(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.evaluate(x, x[:, :1], verbose=0)


fit("all of the data", rows.batch(8), epochs=2, validation_data=rows.batch(8), callbacks=[Evaluates()])
fit("arrays", x, y=x[:, :1], batch_size=8, class_weight=None, shuffle=True)
fit("without the rest", rows.shuffle(45, seed=1).batch(8, drop_remainder=True).prefetch(1))
fit("some steps", rows.repeat().batch(8), steps_per_epoch=3)
fit("repeated", rows.repeat(2).batch(8))
fit("stopped", rows.batch(8), callbacks=[Stops()])
fit("more in a batch", rows.batch(8).map(lambda x, y: (tf.repeat(x, 2, 0), tf.repeat(y, 2, 0))))
fit("own shard", rows.shard(2, index).map(lambda x, y: (x, y)).batch(8).with_options(OFF))
fit("an own shard of three", rows.shard(3, index).batch(8).with_options(OFF), epochs=2)
"""


def test_an_epoch_of_fewer_examples_than_the_data_hold_is_one_warning_with_both_numbers(folder: Path) -> None:
    job = ran(folder, strategy="MultiWorkerMirrored", script=SCRIPT, imported=True)
    lines = [line for line in job["worker-0"].log.splitlines() if "fit " in line[:4] or "in the first epoch" in line]
    found = [place for place, line in enumerate(lines) if "in the first epoch" in line]
    assert len(found) == 1, lines
    assert lines[found[0] - 1] == "fit an own shard of three"
    assert "all workers together have trained 30 examples in the first epoch, the data hold 45; " in lines[found[0]]
    assert "in the first epoch" not in job["worker-1"].log


WITHOUT_LENGTH = """
import json
import keras, numpy as np, tensorflow as tf

if REPLICAS > 1:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
else:
    strategy = tf.distribute.get_strategy()

def mean_of_squares(labels, outputs):
    return keras.ops.mean((labels - outputs) ** 2)

counted = []
for number in range(9):
    batches = (10, 1, 5)[number % 3]
    if number % 3 == 0:
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
            optimizers = (
                keras.optimizers.SGD(0.1),
                keras.optimizers.AdamW(0.1),
                keras.optimizers.Adam(0.1, gradient_accumulation_steps=2),
            )
            model.compile(optimizers[number // 3], mean_of_squares)
    data = tf.data.Dataset.from_tensor_slices((np.ones((4 * batches, 2)), np.ones((4 * batches, 1))))
    model.fit(data.batch(4).filter(lambda *_: True), verbose=0)
    count = model.optimizer._iterations.value
    counted.append(sorted({int(one) for one in getattr(count, "values", [count])}))
with open("counted.json", "w") as file:
    json.dump(counted, file)
"""


def test_an_optimizer_counts_what_it_counts_on_one_device_where_data_do_not_say_their_length(
    folder: Path, tmp_path: Path
) -> None:
    # With such a loss, the step after the tenth is looked at: here, it finds the end.
    alone, several = tmp_path / "alone.json", tmp_path / "several.json"
    script = f"REPLICAS = 1{WITHOUT_LENGTH.replace('counted.json', str(alone))}"
    subprocess.run([sys.executable, "-c", script], env=inherited(), check=True, timeout=DEADLINE)
    ran(folder, script=f"REPLICAS = 2{WITHOUT_LENGTH.replace('counted.json', str(several))}", imported=True)
    counted = json.loads(several.read_text())
    assert counted == json.loads(alone.read_text())
    # Keras counts an update more, but not behind an accumulation.
    assert counted[:3] == [[11], [13], [19]]
    assert counted[6:] == [[10], [11], [16]]
