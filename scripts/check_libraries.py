"""Whether the installed libraries are what this version of the trainer needs; runs in the trainer's environment.

Every private name of Keras, tf_keras and TensorFlow is behind a function that makes sure of it when it is called; here
all of these are called, mostly by small trainings. What the trainer makes of them is for its tests to show. Each image
is built with it.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# There is none where images are built, and these checks need none.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import tensorflow as tf

from dtj_launch.progress import ProgressStore
from dtj_trainer import keras_fit, two_kerases
from dtj_trainer.compat import keras3, optimizers, require, session_of, version_of
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.parsing import parse
from dtj_trainer.config.pipeline_layout import Layout
from dtj_trainer.config.store_url import Location
from dtj_trainer.keras_fit import override
from dtj_trainer.object_store.bucket import Bucket
from dtj_trainer.pipeline_parallel import graph_cut
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.training import synchronous
from dtj_trainer.training.model import prepare
from dtj_trainer.training.reporting import Run

_PLAIN: Mapping[str, Any] = {"jit_compile": False}
"""TensorFlow for TPUs cannot compile for a machine without one."""
_WORDS, _LABELS = [[1, 2, 0], [2, 0, 0]] * 4, [[1.0], [0.0]] * 4
_LEAN = """
import sys
from dtj_trainer.compat import lean
{check}
assert not hasattr(sys.modules["tensorflow"], "Variable"), "all of TensorFlow is imported with its servers"
"""


def main() -> int:
    """Runs all checks; prints one line for each that fails, or one for all. Returns the exit code."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    failed = 0
    for name, check in CHECKS.items():
        try:
            check()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a library is one line
            failed += 1
            line = (str(error).strip() or "no message").splitlines()[0]
            print(f"libraries: {name}: {type(error).__name__}: {line[:300]}")
    names = ["tensorflow", "keras", *(["tf_keras"] if _has("tf_keras") else [])]
    libraries = ", ".join(f"{name} {version_of(name)}" for name in names)
    if not _has("tf_keras"):
        libraries += "; without tf_keras, which strategy ParameterServer needs"
    if not failed:
        print(f"libraries: {len(CHECKS)} checks passed with {libraries}")
    return 1 if failed else 0


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@cache
def _strategy() -> Any:
    """One for all checks: the sums of two, over the same devices, take each other for their own."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _lean(check: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LEAN.format(check=check)], capture_output=True, text=True, timeout=120, check=False
    )
    if ended.returncode or ended.stdout:
        output = (ended.stdout or ended.stderr).strip().splitlines()
        raise RuntimeError(output[-1] if output else f"exit code {ended.returncode}")


def _object_stores() -> None:
    """The libraries that are installed work. A client of S3 needs the certificates of the machine."""
    if _has("obstore"):
        Bucket(Location.of("s3://example-bucket"), option="--checkpoint-dir", retry_seconds=1)
    if _has("google.cloud"):
        storage, auth = map(importlib.import_module, ("google.cloud.storage", "google.auth.credentials"))
        session_of(storage.Client(project=None, credentials=auth.AnonymousCredentials()))


def _tensorflow() -> None:
    compat.check_keep_alive()
    tf.constant(0)
    require(compat.computes_alone(), "a process that computes is not known to", library="tensorflow")
    compat.note_sums(lambda: None)
    compat.replace_reductions(_strategy(), lambda one, several: (one, several))
    before = sys.unraisablehook
    compat.forget_executors_in_silence()
    compat.separate_mirrored_strategies()
    compat.strategy_of(tf.random.Generator.from_seed(1))
    sys.unraisablehook = before


def model() -> Any:
    """Of `--model`: what needs something of Keras' own to be trained by several replicas."""
    words = keras.Input((3,), dtype="int32")
    embedded = keras.layers.Embedding(4, 2, mask_zero=True)(words)
    summed = keras.layers.GlobalAveragePooling1D()(embedded)
    features = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(summed))
    outputs = {
        "one": keras.layers.Dense(1, activity_regularizer="l2")(features),
        "other": keras.layers.Dense(1)(features),
    }
    made = keras.Model(words, outputs)
    settings = {"gradient_accumulation_steps": 2, "use_ema": True, "ema_overwrite_frequency": 2}
    made.compile(
        keras.optimizers.SGD(0.1, momentum=0.9, clipnorm=1.0, **settings),
        {"one": "mse", "other": keras.losses.BinaryCrossentropy(from_logits=True)},
        loss_weights={"one": 1.0, "other": 2.0}, metrics={"one": ["mae"]}, **_PLAIN,
    )  # fmt: skip
    return made


def data() -> Any:
    """Of `--data`."""
    labels = {"one": tf.constant(_LABELS), "other": tf.constant(_LABELS)}
    whole = tf.data.Dataset.from_tensor_slices((tf.constant(_WORDS), labels))
    return {"training": whole.take(4), "held_out": whole.skip(4)}


def _trainer() -> None:
    """Our own loop, with two replicas."""
    folder = tempfile.mkdtemp()
    arguments = [f"--{name}=check_libraries:{name}" for name in ("model", "data")]
    arguments += ["--strategy=Mirrored", "--batch-size=2", "--epochs=1", "--validate-every=epoch"]
    try:
        config = parse([*arguments, f"--checkpoint-dir={folder}"], {"DTJ_JOB_NAME": "libraries"})
        context = TaskContext(config=config, progress_store=ProgressStore(), termination=Termination(leave=os._exit))
        factory, source = prepare(config)
        synchronous.train(Run(context=context, model=factory, data=source), _strategy())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _single_calls() -> None:
    """What only a model of several stages, a loss with a mask, or labels without names would call."""
    inputs = keras.Input((3,))
    chain = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(2)(inputs)))
    graph_cut.cut(chain, Layout(stages=2))
    with keras3.changing_losses(lambda _: [tf.constant(2.0)]):
        require(chain.losses == [2.0], "the losses of a model cannot be changed", library="keras")
    keras3.put_mask(tf.ones(2), tf.ones(2, tf.bool))
    keras3.storage_of(keras.Variable(1.0))
    keras3.of_same_rank(tf.ones((2, 1)), tf.ones(2))
    function = keras3.function_of_loss(keras.losses.MeanSquaredError())
    require(function is keras.losses.mean_squared_error, "a loss does not keep its function", library="keras")
    optimizers.lets_decay(keras.optimizers.AdamW(), keras.Variable([1.0]))
    reading = [optimizers.reads_count(one) for one in (keras.optimizers.Adam(), keras.optimizers.SGD())]
    require(reading == [True, False], "updates of Adam and SGD do not show what they read", library="keras")


def _tf_keras() -> None:
    if not _has("tf_keras"):
        return
    library = importlib.import_module("tf_keras")
    embedded = library.layers.Embedding(3, 2, mask_zero=True)(tf.constant([[1, 0]]))
    require(keras3.mask_of(embedded) is not None, "an Embedding gives no mask", library="tf_keras")
    made = library.Sequential([library.Input((4,)), library.layers.Dense(1)])
    loss = library.losses.BinaryCrossentropy(from_logits=True)
    made.compile("adam", [loss], metrics=["mae"], weighted_metrics=["mse"], loss_weights=[2.0], **_PLAIN)
    options = keras3.options_of_loss(loss)
    require(options.get("from_logits") is True, "a loss does not keep from_logits", library="tf_keras")
    require(two_kerases.given_losses(made) == ([loss], [2.0]), "a model has other losses", library="tf_keras")
    require(two_kerases.given_metrics(made) == ["mae", "mse"], "a model has other metrics", library="tf_keras")
    for ask in (optimizers.rate_of, optimizers.count_of, optimizers.made_under):
        ask(made.optimizer)


def _fit_of_scripts() -> None:
    """Keras' `fit` as `--script` has it: what it asks of Keras in passing has no version of its own."""
    tested = f"the versions that are tested are {', '.join(keras_fit.TESTED_VERSIONS)}"
    require(keras_fit.is_tested(keras.__version__), tested, library="keras")
    override.install(parse((), {}))
    folder = tempfile.mkdtemp()
    callbacks = [
        keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", monitor="loss", save_best_only=True),
        keras.callbacks.BackupAndRestore(f"{folder}/backup"),
        keras.callbacks.CSVLogger(f"{folder}/log.csv"),
    ]
    inputs, labels, weights = tf.constant(_WORDS), tf.constant(_LABELS), tf.ones(8)
    try:
        with _strategy().scope():
            layers = [keras.layers.Embedding(4, 2, mask_zero=True), keras.layers.GlobalAveragePooling1D()]
            model = keras.Sequential([*layers, keras.layers.BatchNormalization(), keras.layers.Dense(1)])
            inner = keras.optimizers.SGD(0.1, clipnorm=1.0, gradient_accumulation_steps=2)
            model.compile(keras.mixed_precision.LossScaleOptimizer(inner), "mse", steps_per_execution=2, **_PLAIN)
            own = _OwnMethods([keras.Input((1,)), keras.layers.Dense(1)], name="own")
            own.compile("sgd", "mse", **_PLAIN)
        model.fit(inputs, labels, sample_weight=weights, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
        own.fit(labels, labels, batch_size=2, verbose=0)
        arrays = labels.numpy(), labels.numpy()
        own.fit((arrays for _ in range(2)), steps_per_epoch=2, verbose=0)
        own.train_on_batch(*arrays)
        require(own.predict_on_batch(arrays[0]).shape == (8, 1), "rows are predicted twice", library="keras")
        alone = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        alone.compile("sgd", "mse", **_PLAIN)
        alone.fit(tf.data.Dataset.from_tensors(arrays), verbose=0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _OwnMethods(keras.Sequential):  # type: ignore[misc]
    """Its loss is divided over the replicas, and so is the mean that its train step adds. It updates in a condition."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return 2.0 * super().compute_loss(*args, **kwargs)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = self(data[0], training=True)
            loss = self.compute_loss(x=data[0], y=data[1], y_pred=outputs) + tf.reduce_mean(outputs)
        gradients, _ = tf.function(tf.clip_by_global_norm)(tape.gradient(loss, self.trainable_variables), 1.0)
        update = self.optimizer.apply
        tf.cond(tf.constant(value=True), lambda: update(gradients, self.trainable_variables), lambda: None)
        return {"loss": loss}


CHECKS: Mapping[str, Callable[[], None]] = {
    # First: TensorFlow reads this before anything of it has run.
    "coordination service": compat.check_coordination,
    "server": lambda: _lean("library = lean.server_library(); library.Server, library.ClusterSpec"),
    "data service": lambda: _lean(
        "library = lean.data_service_library(); library.DispatchServer, library.WorkerServer, "
        "library.DispatcherConfig, library.WorkerConfig; lean.errors_library().OpError"
    ),
    "object stores": _object_stores,
    "TensorFlow": _tensorflow,
    "models of tf_keras": _tf_keras,
    "single calls": _single_calls,
    "training": _trainer,
    # Last: it changes Keras in this process.
    "fit of scripts": _fit_of_scripts,
}
"""What is checked -> a function that raises where it fails."""

if __name__ == "__main__":
    sys.exit(main())
