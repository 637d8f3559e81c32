"""`python -m dtj_trainer --self-check`: whether the installed libraries are what this version of the trainer needs.

Tries, on tiny models, every private name of Keras, tf_keras and TensorFlow that the trainer uses, and whether it does
what it did. Each image is built with it. Imports TensorFlow.
"""

import importlib.util
import logging
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
import numpy as np
import tensorflow as tf

from dtj_launch.progress import DTJCallback
from dtj_trainer import keras_compat, keras_fit, rng_state
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.compat import google_storage, keras3, optimizers, require, version_of
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.compat import tf_keras as tf_keras_names
from dtj_trainer.config.parsing import parse
from dtj_trainer.config.store_url import Location
from dtj_trainer.keras_fit import override
from dtj_trainer.object_store.bucket import Bucket

try:
    import tf_keras
except ImportError:
    tf_keras = None

_LIBRARIES = (keras,) if tf_keras is None else (keras, tf_keras)
_PLAIN: Mapping[str, Any] = {"jit_compile": False}
"""TensorFlow for TPUs cannot compile for a machine without one."""
_LEAN = """
import sys
from dtj_trainer.compat import lean
{check}
assert not hasattr(sys.modules["tensorflow"], "Variable"), "all of TensorFlow is imported with its servers"
"""
_LEAN_CHECKS = {
    "server": "library = lean.server_library(); library.Server, library.ClusterSpec",
    "data service": (
        "library = lean.data_service_library(); library.DispatchServer, library.WorkerServer, "
        "library.DispatcherConfig, library.WorkerConfig; lean.errors_library().OpError"
    ),
}


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
            print(f"self-check: {name}: {type(error).__name__}: {line[:300]}")
    names = ["tensorflow", *(library.__name__ for library in _LIBRARIES)]
    libraries = ", ".join(f"{name} {version_of(name)}" for name in names)
    if tf_keras is None:
        libraries += "; without tf_keras, which strategy ParameterServer needs"
    if not failed:
        print(f"self-check: {len(CHECKS)} checks passed with {libraries}")
    return 1 if failed else 0


def _model(library: Any) -> Any:
    layers = library.layers
    return library.Sequential([library.Input((4,)), layers.Dense(3), layers.Dropout(0.5), layers.Dense(1)])


@cache
def _strategy() -> Any:
    """One for all checks: the sums of two, over the same devices, take each other for their own."""
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _object_stores() -> None:
    """The libraries that are installed work. A client of S3 needs the certificates of the machine."""
    if importlib.util.find_spec("obstore") is not None:
        Bucket(Location.of("s3://example-bucket"), option="--checkpoint-dir", retry_seconds=1)
    if importlib.util.find_spec("google.cloud") is not None:
        storage, auth = map(importlib.import_module, ("google.cloud.storage", "google.auth.credentials"))
        google_storage.session_of(storage.Client(project=None, credentials=auth.AnonymousCredentials()))


def _layers() -> None:
    for library in _LIBRARIES:
        name = library.__name__
        model = _model(library)
        require(len(keras3.sublayers(model, recursive=True)) >= 3, "a model has no layers", library=name)
        require(
            keras3.call_arguments(model, training=True) == {"training": True}, "a call takes no training", library=name
        )
        embedded = library.layers.Embedding(3, 2, mask_zero=True)(tf.constant([[1, 0]]))
        mask = keras3.mask_of(embedded)
        require(mask is not None and not mask.numpy().all(), "an Embedding gives no mask", library=name)

    embedded = keras.layers.Embedding(3, 2, mask_zero=True)(tf.constant([[1, 0]]))
    keras3.put_mask(embedded, tf.ones((1, 2), tf.bool))
    summed = keras.layers.GlobalAveragePooling1D()(embedded)
    require(np.allclose(summed, tf.reduce_mean(embedded, 1)), "a layer does not read the mask", library="keras")

    class Plain(keras.Model):  # type: ignore[misc]
        def call(self, inputs: Any) -> Any:
            return inputs

    require(not keras3.call_arguments(Plain(), training=True), "any call takes training", library="keras")
    inputs = keras.Input((4,))
    functional = keras.Model(inputs, {"a": keras.layers.Dense(1)(inputs)})
    require(list(keras3.structure_of_outputs(functional)) == ["a"], "outputs have no structure", library="keras")
    layer = keras.layers.Dense(1, activity_regularizer="l2")
    losses: list[Any] = []
    layer.build((2, 4))
    keras3.separate_losses(layer, losses, set())
    layer.add_loss(tf.constant(1.0))
    require(len(losses) == 1, "a layer does not add its losses to its list", library="keras")


def _moments() -> None:
    inputs = tf.ones((2, 3))
    strategy = _strategy()
    asked: list[Any] = []

    def three_axes(inputs: Any, axes: Any, mask: Any) -> tuple[Any, Any]:
        asked.append(tuple(axes))
        return tf.zeros(3), tf.ones(3)

    with strategy.scope():
        layer = keras.layers.BatchNormalization(synchronized=True)
        layer.build((None, 3))
    keras3.replace_moments(layer, three_axes)
    tf.function(strategy.run, autograph=False)(lambda: layer(inputs, training=True))
    require(set(asked) == {(0,)}, "BatchNormalization takes other statistics", library="keras")


def _compiled() -> None:
    for library in _LIBRARIES:
        name = library.__name__
        model, loss = _model(library), library.losses.BinaryCrossentropy(from_logits=True)
        model.compile("adam", [loss], metrics=["mae"], weighted_metrics=["mse"], loss_weights=[2.0], **_PLAIN)
        if library is keras:
            keras3.build_by(model, (tf.ones((2, 4)), tf.ones((2, 1)), None))
        options = (keras3 if library is keras else tf_keras_names).options_of_loss(loss)
        require(options.get("from_logits") is True, "a loss does not keep from_logits", library=name)
        given = keras_compat.given_losses(model)
        require(given == ([loss], [2.0]), "a model does not keep its losses", library=name)
        require(keras_compat.given_metrics(model) == ["mae", "mse"], "a model does not keep its metrics", library=name)


def _compiled_by_keras_3() -> None:
    require(not keras3.options_of_loss(keras.losses.Loss()), "a Loss has options", library="keras")
    model, half = _model(keras), keras.losses.MeanSquaredError()
    model.compile("sgd", "mse", loss_weights=1.0, **_PLAIN)
    arguments = keras3.compute_loss_arguments(model, training=True)
    require(arguments == {"training": True}, "compute_loss takes no training", library="keras")
    keras3.replace_losses(model, [half], [0.5])
    keras3.build_by(model, (tf.ones((2, 4)), tf.ones((2, 1)), None))
    require(len(keras3.single_losses(model)) == 1, "a model has no single losses", library="keras")
    outputs, labels = tf.ones((2, 1)), tf.zeros((2, 1))
    value = model.compute_loss(tf.ones((2, 4)), labels, outputs, None)
    require(float(value) == 0.5, "compute_loss does not ask the losses", library="keras")
    require(keras3.loss_tracker(model) in model.metrics, "the loss has no metric", library="keras")
    with keras3.as_on_one_replica():
        keras.losses.MeanSquaredError()(tf.ones((2, 1)), tf.zeros((2, 1)))


def _updates() -> None:
    def built(**options: Any) -> tuple[Any, Any]:
        weight = keras.Variable([1.0])
        optimizer = keras.optimizers.SGD(1.0, **options)
        optimizer.build([weight])
        return optimizer, weight

    def check(condition: object, what: str) -> None:
        require(condition, what, library="keras")

    def value(of: Any) -> float:
        return float(tf.convert_to_tensor(of)[0])

    gradient = tf.constant([1.0])
    optimizer, weight = built(weight_decay=0.1)
    check(optimizers.weights_of(optimizer) == [weight], "an optimizer does not keep its weights")
    check(float(optimizers.rate_of(optimizer)) == 1.0, "an optimizer does not keep its rate")
    check(optimizers.made_under(optimizer) is tf.distribute.get_strategy(), "an optimizer does not keep its strategy")
    check(optimizers.lets_decay(optimizer, weight), "a weight does not decay")
    optimizer.exclude_from_weight_decay(var_list=[weight])
    check(not optimizers.lets_decay(optimizer, weight), "a weight decays that is left out")
    optimizers.sum_gradients_by(optimizer, lambda pairs: [(2 * one, weight) for one, weight in pairs])
    optimizer.apply([gradient])
    check(value(weight) == -1.0, "an optimizer sums its gradients elsewhere")
    check(int(optimizers.count_of(optimizer)) == 1, "an optimizer does not count")
    optimizers.replace_update(optimizer, lambda _: lambda gradients, weights: weights[0].assign(gradients[0]))
    optimizer.apply([gradient])
    check(value(weight) == 1.0, "an optimizer updates elsewhere")

    optimizer, weight = built(gradient_accumulation_steps=2)
    optimizer.apply([gradient])
    (sum_,) = optimizers.accumulated(optimizer, [weight])
    check(value(sum_) == 1.0 and value(weight) == 1.0, "gradients are not accumulated")
    optimizers.update_by_means(optimizer, [gradient], [weight])
    check(value(sum_) == 0.0 and value(weight) == 0.0, "an update does not take the means")

    optimizer, weight = built(use_ema=True, ema_momentum=0.5)
    (mean,) = optimizers.averages_of(optimizer)
    optimizers.average(optimizer)
    optimizers.count_of(optimizer).assign(1)
    weight.assign([3.0])
    optimizers.average(optimizer)
    check(value(mean) == 2.0, "the moving average is not taken")
    optimizers.overwrite(optimizer)
    check(value(weight) == 2.0, "weights are not overwritten")
    optimizers.replace_overwriting(optimizer, lambda _: lambda weights: weights[0].assign([7.0]))
    optimizer.finalize_variable_values([weight])
    check(value(weight) == 7.0, "weights are overwritten elsewhere")


def _updates_of_tf_keras() -> None:
    if tf_keras is None:
        return
    optimizer = tf_keras.optimizers.SGD(0.5)
    optimizer.build([tf.Variable([1.0])])

    def check(condition: object, what: str) -> None:
        require(condition, what, library="tf_keras")

    check(float(optimizers.rate_of(optimizer)) == 0.5, "an optimizer does not keep its rate")
    check(optimizers.count_of(optimizer) is optimizer.iterations, "an optimizer does not count")
    check(optimizers.made_under(optimizer) is tf.distribute.get_strategy(), "an optimizer does not keep its strategy")


def _random_layers() -> None:
    model = _model(keras)
    require(len(rng_state.states(model)) == 1, "Dropout has no state", library="keras")
    fold_in = rng_state.RngState(model).fold_in

    def drawn(step: int) -> bytes:
        with tf.distribute.get_strategy().scope():
            fold_in(tf.constant(step, tf.int64))
        values: bytes = tf.convert_to_tensor(model.layers[1](tf.ones((1, 64)), training=True)).numpy().tobytes()
        return values

    first, second, again = drawn(1), drawn(2), drawn(1)
    require(first == again and first != second, "Dropout does not draw by its state", library="keras")


def _graph_of_layers() -> None:
    inputs = keras.Input((3,))
    embedding = keras.layers.Embedding(4, 2, mask_zero=True)
    embedded = embedding(inputs)
    require(keras3.has_mask(embedded), "the outputs of an Embedding have no mask", library="keras")
    require(not keras3.has_mask(inputs), "an input has a mask", library="keras")
    require(keras3.maker(embedded).operation is embedding, "a tensor does not name its layer", library="keras")


def _variable_names() -> None:
    expected = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    for library in _LIBRARIES:
        model = _model(library)
        optimizer = library.optimizers.SGD(momentum=0.9)
        optimizer.build(model.trainable_variables)
        state = [variable.value if library is keras else variable for variable in optimizer.variables]
        names = variable_names.of_training(model, optimizer, state)
        require(names["weights"] == expected, f"weights are called {names['weights']}", library=library.__name__)
        slots = [f"{name}/momentum" for name in expected]
        found = [name.replace("/m", "/momentum") if name.endswith("/m") else name for name in names["optimizer"][-4:]]
        require(found == slots, f"slots are called {names['optimizer']}", library=library.__name__)


def _fit() -> None:
    tested = f"the versions that are tested are {', '.join(keras_fit.TESTED_VERSIONS)}"
    require(keras_fit.is_tested(keras.__version__), tested, library="keras")
    for library in _LIBRARIES:
        batches: list[int] = []

        class Counting(DTJCallback):
            def on_train_batch_end(self, batch: int, logs: Any = None, batches: list[int] = batches) -> None:
                batches.append(batch)

        model = _model(library)
        model.compile("sgd", "mse", **_PLAIN)
        model.fit(tf.ones((8, 4)), tf.ones((8, 1)), batch_size=4, verbose=0, callbacks=[Counting()])
        require(batches == [0, 1], "fit does not call DTJCallback after each batch", library=library.__name__)


def _conversion() -> None:
    def sign(value: Any) -> Any:
        if value > 0:
            return 1
        return -1

    converted = compat.convert_in_graphs(sign)
    call = tf.function(lambda value: converted(value), autograph=False)
    require(int(call(tf.constant(2.0))) == 1, "a function is not converted for graphs", library="tensorflow")
    within = compat.convert_in_graphs(lambda: tf.data.Dataset.range(1).map(sign), itself=False)
    made = tf.function(lambda: next(iter(within())), autograph=False)
    require(int(made()) == -1, "what a function makes graphs of is not converted", library="tensorflow")


def _reductions() -> None:
    strategy = _strategy()
    seen: list[str] = []

    def wrap(one: Callable[..., Any], several: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        def reduce_to(*args: Any, **kwargs: Any) -> Any:
            seen.append("reduce_to")
            return one(*args, **kwargs)

        def batch_reduce_to(*args: Any, **kwargs: Any) -> Any:
            seen.append("batch_reduce_to")
            return several(*args, **kwargs)

        return reduce_to, batch_reduce_to

    compat.replace_reductions(strategy, wrap)

    def summed() -> Any:
        return tf.distribute.get_replica_context().all_reduce("SUM", [tf.constant(1.0), tf.constant(2.0)])

    total = strategy.reduce("SUM", strategy.run(summed)[0], axis=None)
    require(float(total) == 4.0 and seen, "sums over replicas are not made by reduce_to", library="tensorflow")


def _fit_of_scripts() -> None:
    """Keras' `fit` as `--script` has it: what it asks of Keras in passing has no version of its own."""
    lines: list[object] = []
    seen = logging.Handler()
    seen.emit = lines.append  # type: ignore[method-assign, assignment]
    override.log.addHandler(seen)
    override.log.setLevel(logging.INFO)
    override.install(parse((), {}))
    folder = tempfile.mkdtemp()
    callbacks = [
        keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", monitor="loss", save_best_only=True),
        keras.callbacks.BackupAndRestore(f"{folder}/backup"),
        keras.callbacks.CSVLogger(f"{folder}/log.csv"),
    ]
    inputs, labels, weights = tf.constant([[1, 2, 0], [2, 0, 0]] * 4), tf.ones((8, 1)), tf.ones(8)
    try:
        with _strategy().scope():
            layers = [keras.layers.Embedding(4, 2, mask_zero=True), keras.layers.GlobalAveragePooling1D()]
            model = keras.Sequential([*layers, keras.layers.BatchNormalization(), keras.layers.Dense(1)])
            optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.SGD(0.1, clipnorm=1.0))
            model.compile(optimizer, "mse", steps_per_execution=2, **_PLAIN)
        model.fit(inputs, labels, sample_weight=weights, batch_size=2, epochs=2, verbose=0, callbacks=callbacks)
        require(int(optimizer.inner_optimizer.iterations.numpy()) == 8, "fit takes other steps", library="keras")
        require(len(lines) == 1, "fit of several replicas is not adapted", library="keras")
        require(os.path.exists(f"{folder}/best.keras"), "ModelCheckpoint saves nothing", library="keras")
        with _strategy().scope():
            own = _OwnMethods([keras.Input((1,)), keras.layers.Dense(1)], name="own")
            own.compile("sgd", "mse", **_PLAIN)
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
    """Its loss is divided over the replicas, and so is the mean that its train step adds."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        return 2.0 * super().compute_loss(*args, **kwargs)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            outputs = self(data[0], training=True)
            loss = self.compute_loss(x=data[0], y=data[1], y_pred=outputs) + tf.reduce_mean(outputs)
        gradients, _ = tf.function(tf.clip_by_global_norm)(tape.gradient(loss, self.trainable_variables), 1.0)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


def _lean(check: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LEAN.format(check=check)], capture_output=True, text=True, timeout=120, check=False
    )
    if ended.returncode or ended.stdout:
        output = (ended.stdout or ended.stderr).strip().splitlines()
        raise RuntimeError(output[-1] if output else f"exit code {ended.returncode}")


def _computes_alone() -> None:
    tf.constant(0)
    require(compat.computes_alone(), "a process that computes is not known to", library="tensorflow")


def _forgotten_executors() -> None:
    before = sys.unraisablehook
    try:
        compat.forget_executors_in_silence()
        require(sys.unraisablehook is not before, "errors of executors are printed", library="tensorflow")
    finally:
        sys.unraisablehook = before


CHECKS: Mapping[str, Callable[[], None]] = {
    # First: TensorFlow reads these before anything of it has run.
    "coordination service": compat.check_coordination,
    "parameter servers' memory": compat.check_keep_alive,
    "server": lambda: _lean(_LEAN_CHECKS["server"]),
    "data service": lambda: _lean(_LEAN_CHECKS["data service"]),
    "object stores": _object_stores,
    "layers": _layers,
    "batch normalization": _moments,
    "compiled models": _compiled,
    "compiled models of Keras 3": _compiled_by_keras_3,
    "updates": _updates,
    "updates of tf_keras": _updates_of_tf_keras,
    "random layers": _random_layers,
    "graph of layers": _graph_of_layers,
    "names of variables": _variable_names,
    "fit": _fit,
    "begin of computing": _computes_alone,
    "executors of lost tasks": _forgotten_executors,
    "AutoGraph": _conversion,
    "sums over workers": lambda: compat.note_sums(lambda: None),
    "sums over replicas": _reductions,
    # Last: it changes Keras in this process.
    "fit of scripts": _fit_of_scripts,
}
"""What is checked -> a function that raises where it fails."""
