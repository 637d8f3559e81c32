"""Keras 3's `fit`, `evaluate` and `predict` in scripts of others: several workers measure what one device does."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainer.cluster import DEADLINE, SOURCE, TWO_DEVICES, Job, inherited, ran
from trainer.outcome import largest_difference, points
from trainer.parity_scripts import SERVED, TOLERANCE

HERE = Path(__file__).resolve().parent
COMPILED = HERE / "scripts" / "compiled.py"
FITTED = (
    "momentum:shuffled_points", "mean_by_weight:weighted", "summed:points", "masked:tokens", "global_clipnorm:points",
    "normalised_penalties:points", "normalised_masked:tokens", "area_under_curve:yes_or_no",
    "several:pairs", "several:batches_of_pairs", "summed:batches_of_points",
    "train_step:points", "average_that_overwrites:points", "scaled_and_averaged:points", "scaled_and_clipped:points",
    "accumulation:points", "accumulation_with_all:points", "one_number:points", "one_sum:points",
    "of_two_losses:values", "compute_loss:points", "own_means:values", "listed_means:values", "own_sums:values",
    "of_images:own_arrays",
    # Losses and layers of the examples of all replicas.
    "dice_of_the_batch:one_hot_points", "circle:points", "one_number:weighted", "own_call:values",
    "compute_loss_of_pairs:points", "compute_loss_that_leaves_out:points", "compute_loss_masked:tokens",
    "activities_summed:points", "own_state:points",
)  # fmt: skip
"""Models and data of the table of parity."""
NO_STEP = ".train_step takes gradients of what is neither the mean nor the sum of what"
REFUSED = {
    "step_that_leaves_out:values": f"LeavesOut{NO_STEP}",
    "step_of_pairs:values": f"Pairs{NO_STEP}",
    "own_root_of_noise:values": f"RootOfNoise{NO_STEP}",
    "own_root:values": f"OwnRoot{NO_STEP}",
}
"""The same, and what they are refused with."""


def workers(folder: Path, script: Path, *words: str, options: Sequence[str] = (), imported: bool = False) -> Job:
    """Two workers that run a script."""
    arguments = [f"--script={script}", *options, "--", *words]
    return Job(folder, strategy="MultiWorkerMirrored", arguments=arguments, imported=imported)


def test_compile_and_fit_on_two_workers_measure_what_plain_keras_measures_on_one_device(
    folder: Path, tmp_path: Path
) -> None:
    words = (str(tmp_path / "alone.json"), "4", str(tmp_path / "alone"))
    subprocess.run([sys.executable, COMPILED, *words], env=inherited(), cwd=tmp_path, check=True, timeout=DEADLINE)
    with workers(folder, COMPILED, "measured.json", "4", "files") as job:
        # Each task has a folder of its own for what it measured, and one with the other for the callbacks' files.
        script = folder / "of_each.py"
        script.write_text(OF_EACH)
        job.arguments[job.arguments.index(f"--script={COMPILED}")] = f"--script={script}"
        assert job.start(environ={"TEST_ENDS_IN_EPOCH": "2"}).wait() == {"worker-0": 3, "worker-1": 3}
        job.imported = True  # the first start was as in a pod
        assert job.start().wait() == {"worker-0": 0, "worker-1": 0}
    alone = json.loads((tmp_path / "alone.json").read_text())
    measured = [json.loads((folder / f"measured-{index}.json").read_text()) for index in (0, 1)]
    assert measured[0] == measured[1]
    # The second start continues with the third epoch, out of the backup.
    alone["history"] = {name: values[2:] for name, values in alone["history"].items()}
    assert largest_difference(alone, measured[0])[0] < 2e-5
    assert (folder / "files" / "best.keras").exists()
    assert not (folder / "files" / "backup").exists()
    assert len(list((folder / "files" / "curves" / "train").iterdir())) == 2  # the leader's two starts
    assert list(points(folder / "files" / "curves" / "validation")["epoch_loss"]) == [0, 1, 2, 3]
    assert len((folder / "files" / "table.csv").read_text().splitlines()) == 3
    printed = r"^Keras 3\.15\.\d: fit, evaluate and predict are adapted to 2 replicas, with synchronized Batch"
    assert len(re.findall(printed, job["worker-0"].log, re.M)) == 2
    assert not re.findall(printed, job["worker-1"].log, re.M)


OF_EACH = f"""
import json, os, runpy, sys

index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
sys.argv[1] = sys.argv[1].replace(".json", f"-{{index}}.json")
runpy.run_path({str(COMPILED)!r}, run_name="__main__")
"""


def test_a_backup_that_only_the_leader_finds_ends_all_tasks_with_one_line(folder: Path) -> None:
    folder.mkdir()
    apart = OF_EACH.replace("runpy.run_path", 'sys.argv[3] += f"-{index}"\nrunpy.run_path')
    (folder / "apart.py").write_text(apart)
    with workers(folder, folder / "apart.py", "measured.json", "4", "files", imported=True) as job:
        assert job.start(environ={"TEST_ENDS_IN_EPOCH": "2"}).wait() == {"worker-0": 3, "worker-1": 3}
        assert job.start().wait() == {"worker-0": 2, "worker-1": 2}
    words = {replica.last_words for replica in job.replicas.values()}
    assert words == {
        f"BackupAndRestore: backup_dir=files-{index}/backup: tasks begin with different epochs (2, 0); give it to "
        "all tasks, with a backup_dir on one volume that all share"
        for index in (0, 1)
    }


@pytest.mark.parametrize("part", [0, 1, 2])
def test_what_is_compiled_counts_with_two_replicas_as_on_one_device(folder: Path, part: int) -> None:
    fitted = FITTED[part::3]
    arguments = [f"--script={HERE / 'scripts' / 'replicas.py'}", "--", *fitted]
    log = ran(folder, arguments=arguments, imported=True)["worker-0"].log
    differences = {case: float(value) for case, value in re.findall(r"^(\w+:\w+) (\d\.\de-\d+)$", log, re.M)}
    assert sorted(differences) == sorted(fitted)
    assert max(differences.values()) < 5e-6, differences


def test_a_step_whose_losses_replicas_cannot_divide_is_refused_by_its_name(folder: Path) -> None:
    arguments = [f"--script={HERE / 'scripts' / 'replicas.py'}", "--", *REFUSED]
    log = ran(folder, arguments=arguments, imported=True)["worker-0"].log
    lines = dict(re.findall(r"^(\w+:\w+) fit (?:and evaluate )?with 2 replicas: (.*)$", log, re.M))
    assert {case for case, line in lines.items() if line.startswith(REFUSED[case])} == set(REFUSED)


TRACELESS = """
import random

import keras, numpy as np, tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

class Counts(keras.Sequential):
    def train_step(self, data):
        random.random(), np.random.rand()
        self.mine[0].assign_add(1)
        self.seen.assign_add(1.0)
        return super().train_step(data)

keras.utils.set_random_seed(3)
with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    model = Counts([keras.Input((2,)), keras.layers.Dense(1)])
    model.mine = [tf.Variable(0, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)]
    model.seen = keras.Variable(0.0, aggregation="only_first_replica", trainable=False)
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
state, drawn = random.getstate(), np.random.get_state()[1].tolist()
from dtj_trainer.keras_fit import override
look = override.first_batch.look

def looked(*args, **kwargs):
    found = look(*args, **kwargs)
    print("left", int(model.mine[0].numpy()), float(model.seen.value.numpy()), random.getstate() == state,
          np.random.get_state()[1].tolist() == drawn, int(model.optimizer.iterations.numpy()),
          float(model.metrics[0].result()))
    return found

override.first_batch.look = looked
x = np.ones((8, 2), "float32")
model.fit(tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(8), verbose=0)
print("steps", int(model.mine[0].numpy()), float(model.seen.value.numpy()))
"""


def test_to_look_at_the_first_batch_leaves_no_trace(folder: Path) -> None:
    log = ran(folder, script=TRACELESS, imported=True)["worker-0"].log
    assert "left 0 0.0 True True 0 0.0" in log
    assert "steps 1 1.0" in log


HALF = """
import sys
import keras, numpy as np, tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
keras.mixed_precision.set_global_policy(sys.argv[1])

class Own(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            p = self(x, training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True))
            loss = tf.sqrt(loss) if sys.argv[2] == "root" else loss
            scaled = self.optimizer.scale_loss(loss)
        v = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(scaled, v), v))
        return {"loss": loss}

keras.utils.set_random_seed(1)
with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    x = keras.Input((8, 8, 3))
    h = keras.layers.Flatten()(keras.layers.BatchNormalization()(keras.layers.Conv2D(16, 3, activation="relu")(x)))
    h = keras.layers.LayerNormalization()(keras.layers.Dense(64, "gelu")(keras.layers.Dropout(0.3)(h)))
    model = Own(x, keras.layers.Dense(10, dtype="float32")(h))
    model.compile("adam")
r = np.random.default_rng(0)
model.fit(r.normal(size=(32, 8, 8, 3)).astype("float32"), r.integers(0, 10, 32), batch_size=16, verbose=0)
"""


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize(("loss", "code"), [("mean", 0), ("root", 2)])
def test_a_step_in_half_precision_divides_if_its_loss_is_a_mean(
    folder: Path, policy: str, loss: str, code: int
) -> None:
    job = ran(folder, code=code, script=HALF, imported=True, arguments=["--", policy, loss])
    assert not code or f"Own{NO_STEP}" in job["worker-0"].last_words


SILENT = """
import keras, numpy as np, tensorflow as tf

cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)

class Silent(keras.Sequential):
    def train_step(self, data):
        super().train_step(data)
        return {}

    def test_step(self, data):
        return {}

with tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"]).scope():
    model = Silent([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.ones((8, 2), "float32")
history = model.fit(x, x[:, :1], batch_size=4, verbose=0).history
print("measured", history, model.evaluate(x, verbose=0, return_dict=True))
"""


def test_steps_that_measure_nothing_train_and_evaluate_with_two_replicas(folder: Path) -> None:
    assert "\nmeasured {} {}\n" in ran(folder, script=SILENT, imported=True)["worker-0"].log


ONE_WORKER = """
import keras, numpy as np, tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
x = np.ones((8, 2), "float32")

def model_of():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])

def fitted(optimizer, metric, model):
    model.compile(optimizer, "mse", metrics=[metric])
    return model.fit(x, x[:, :1], batch_size=4, verbose=0).history

def looped(optimizer, metric, model):
    def learn():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - x[:, :1]) ** 2)
        weights = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        metric.update_state(x[:, :1], model(x))
    tf.function(strategy.run)(learn)
    return float(metric.result())

for train in (fitted, looped):
    for outside in ("nothing", "optimizer, metric", "model"):
        parts = keras.optimizers.Adam(), keras.metrics.MeanAbsoluteError(), model_of()
        with strategy.scope():
            inside = keras.optimizers.Adam(), keras.metrics.MeanAbsoluteError(), model_of()
        parts = [one if kind in outside else other
                 for kind, one, other in zip(("optimizer", "metric", "model"), parts, inside)]
        try:
            print(train.__name__, outside, train(*parts))
        except Exception as error:
            print(train.__name__, outside, error)
"""


def test_one_worker_trains_what_is_made_outside_of_the_scope_or_says_why_not(folder: Path) -> None:
    job = ran(folder, strategy="MultiWorkerMirrored", roles={"worker": 1}, script=ONE_WORKER, imported=True)
    found = {
        train: re.findall(rf"^{train} (?:nothing|optimizer, metric|model) (.*)", job["worker-0"].log, re.M)
        for train in ("fitted", "looped")
    }
    line = r"(fit: the model|strategy\.run: a weight) .* outside the scope of the MultiWorkerMirroredStrategy"
    for within, parts, model in found.values():
        assert within == parts
        assert re.match(line, model), model


PARTING = """
import json, os, sys
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
second = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((2,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")

class OnOne(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if second and epoch == 1:
            if sys.argv[1] == "epoch":
                self.model.stop_training = True
            if sys.argv[1] == "rate":
                self.model.optimizer.learning_rate = 0.5

class InBatch(OnOne):
    def on_train_batch_end(self, batch, logs=None):
        if second and batch == 2:
            self.model.stop_training = True

callbacks = [InBatch() if sys.argv[1] == "batch" else OnOne()]
if sys.argv[1] == "alone":
    callbacks = [InBatch()] if second else [tf.keras.callbacks.BackupAndRestore("backup")]
x = np.ones((64, 2), "float32")
history = model.fit(x, x[:, :1], batch_size=8, epochs=4, verbose=0, callbacks=callbacks)
print("epochs", len(history.history["loss"]), "batches", int(model.optimizer.iterations))
"""


@pytest.mark.parametrize(
    ("does", "code", "line"),
    [
        ("epoch", 0, "epochs 2 batches 16"),
        ("batch", 0, "epochs 1 batches 3"),
        ("alone", 0, "epochs 1 batches 3"),
        ("rate", 2, "fit: after epoch 2 the learning rate is 0.01 on worker 0 and 0.5 on worker 1; "),
    ],
)
def test_a_callback_of_one_worker_parts_it_from_the_others_in_no_way(
    folder: Path, does: str, code: int, line: str
) -> None:
    words = ["--", does]
    job = ran(folder, code=code, strategy="MultiWorkerMirrored", script=PARTING, arguments=words, imported=True)
    for replica in job.replicas.values():
        assert line in replica.log
    stopped = "a callback on worker 1 has stopped the training: all workers stop"
    assert (stopped in job["worker-0"].log) == (code == 0)


def test_a_session_trains_the_same_without_the_trainers_command_line(folder: Path) -> None:
    fits = HERE / "scripts" / "fits.py"
    with Job(folder, strategy="MultiWorkerMirrored", program=(str(fits),), plain=True) as job:
        job.arguments = ["20"]
        assert job.start().wait() == {"worker-0": 0, "worker-1": 0}
    assert "adapted to 2 replicas" in job["worker-0"].log
    assert job.newest_checkpoint == 20


def test_switched_off_keras_is_left_as_it_is(folder: Path) -> None:
    with workers(folder, COMPILED, "x.json", "1", "files", options=["--keras-override=off"]) as job:
        assert job.start().wait() == {"worker-0": 1, "worker-1": 1}
    assert "adapted to" not in job["worker-0"].log
    assert job["worker-0"].last_words


NEXT_KERAS = """
class backend:
    @staticmethod
    def backend():
        return "tensorflow"

__version__ = "3.16.0"
"""


def test_another_version_of_keras_is_reported_in_one_line_and_left_as_it_is(folder: Path) -> None:
    environ = {"PYTHONPATH": os.pathsep.join((str(folder), str(SOURCE)))}
    files = {"keras.py": NEXT_KERAS}
    job = ran(folder, strategy="MultiWorkerMirrored", script="import keras\n", files=files, environ=environ)
    assert re.search(
        r"^warning: Keras 3\.16\.0 is installed, and fit, evaluate and predict with several replicas are only known to "
        r"work with Keras 3\.15: Keras is left as it is; install keras==3\.15\.\*$",
        job["worker-0"].log,
        re.M,
    )


UNDER_PARAMETER_SERVER = """
import contextlib, json, os
import numpy as np
import tensorflow as tf

scope = contextlib.nullcontext()
if "TF_CONFIG" in os.environ:
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if resolver.task_type in ("worker", "ps"):
        tf.distribute.Server(
            resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
        ).join()
    scope = tf.distribute.ParameterServerStrategy(resolver).scope()
layers, inputs = tf.keras.layers, np.random.default_rng(7).normal(size=(48, 4)).astype("float32")
first, second = (tf.keras.initializers.GlorotUniform(seed) for seed in (1, 2))
with scope:
    hidden = layers.Dense(8, "relu", kernel_initializer=first)
    model = tf.keras.Sequential([layers.Input((4,)), hidden, layers.Dense(1, kernel_initializer=second)])
    model.compile("adam", "mse", metrics=["mae"])
data = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(1, keepdims=True))).batch(16).repeat()
history = model.fit(data, epochs=3, steps_per_epoch=3, verbose=0).history
print("measured", json.dumps({**history, "weights": [weight.tolist() for weight in model.get_weights()]}))
"""


@pytest.mark.parametrize("keras", SERVED)
def test_under_parameter_server_a_script_gives_the_numbers_of_plain_keras_or_one_line(folder: Path, keras: str) -> None:
    legacy = {"TF_USE_LEGACY_KERAS": str(int(keras == "tf_keras"))}
    code, line = SERVED[keras] or (0, "")
    job = ran(folder, code=code, strategy="ParameterServer", script=UNDER_PARAMETER_SERVER, environ=legacy)
    chief = job["chief-0"]
    if code:
        assert chief.last_words.startswith(line)
        return
    plain = subprocess.check_output(
        [sys.executable, folder / "train.py"], env={**inherited(), **legacy}, text=True, timeout=DEADLINE
    )
    one, other = (json.loads(re.findall("^measured (.*)", log, re.M)[0]) for log in (plain, chief.log))
    assert largest_difference(one, other)[0] <= TOLERANCE


OWN_LOOP = """
import keras
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy(["CPU:0"])
seen = []
notes = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
callbacks = keras.callbacks.CallbackList([notes, keras.callbacks.CSVLogger("log")])
weight, other = tf.Variable(2.0), tf.Variable(3.0)
callbacks.on_train_begin()
for epoch in range(2):
    callbacks.on_epoch_begin(epoch)
    callbacks.on_train_batch_begin(0)
    with tf.GradientTape() as tape:
        loss = weight * weight
    print(*(one.numpy() for one in tape.gradient(loss, [weight, other], None, tf.UnconnectedGradients.ZERO)))
    callbacks.on_train_batch_end(0, {"loss": float(loss)})
    callbacks.on_epoch_end(epoch, {"loss": float(loss)})
callbacks.on_train_end()
print("seen", seen)
"""


def test_callbacks_and_gradients_in_a_loop_of_ones_own_are_those_of_keras_and_tensorflow(folder: Path) -> None:
    log = ran(folder, script=OWN_LOOP, imported=True)["worker-0"].log
    assert "4.0 0.0" in log
    assert "seen [0, 1]" in log


NUMBERS = (
    TWO_DEVICES
    + """
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.25), "mse")

class Say(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("rate", float(self.model.optimizer.learning_rate), int(self.model.optimizer.iterations))

model.fit(np.ones((8, 2)), np.ones((8, 1)), batch_size=4, verbose=0, callbacks=[Say()])
"""
)


def test_a_callback_gets_the_numbers_that_an_optimizer_has_on_all_replicas(folder: Path) -> None:
    job = ran(folder, script=NUMBERS, imported=True)
    assert "rate 0.25 2" in job["worker-0"].log
