"""`python -m dtj_trainer --self-check`: whether the installed libraries are what this version of the trainer needs.

Tries, on tiny models, every private name of Keras, tf_keras and TensorFlow that the trainer uses, and whether it does
what it did. Each image is built with it. Imports TensorFlow.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# There is none where images are built, and these checks need none.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import keras
import tensorflow as tf
import tf_keras

from dtj_trainer import draws, keras_fit, variable_names
from dtj_trainer.compat import keras3, keras_override, mentions, private, require, version_of
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.compat.names import USED
from dtj_trainer.config import parse
from dtj_trainer.progress import DTJCallback

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
    libraries = ", ".join(f"{library} {version_of(library)}" for library in ("tensorflow", "keras", "tf_keras"))
    if not failed:
        print(f"self-check: {len(CHECKS)} checks passed with {libraries}")
    return 1 if failed else 0


def _names() -> None:
    for library in (keras, tf_keras):
        made = dict(_objects(library))
        missing = [
            f"{what}: {name}"
            for what, names in USED[library.__name__].items()
            for name in names
            # Not of the instance alone: Keras 3 makes some of it when it is first asked.
            if not hasattr(made[what], name)
        ]
        require(not missing, f"there is no {', '.join(missing)}", library=library.__name__)


def _objects(library: Any) -> Iterator[tuple[str, Any]]:
    name = library.__name__
    model = _model(library)
    optimizers, losses = library.optimizers, library.losses
    options: Mapping[str, Any] = {"gradient_accumulation_steps": 2} if library is keras else {}
    optimizer = optimizers.Adam(use_ema=True, **options)
    model.compile(optimizer, losses.BinaryCrossentropy(from_logits=True), metrics=["mae"], loss_weights=[1.0], **_PLAIN)
    model.fit(tf.ones((2, 4)), tf.ones((2, 1)), verbose=0)
    yield "model", model
    inputs = library.Input((4,))
    yield "functional model", library.Model(inputs, model(inputs))
    yield "layer", model.layers[-1]
    yield "optimizer", optimizer
    yield "batch normalization", library.layers.BatchNormalization(synchronized=True)
    yield "loss", losses.BinaryCrossentropy(from_logits=True)
    own = ("_compile_loss", "_compile_metrics") if library is keras else ("compiled_loss", "compiled_metrics")
    for what, attribute in zip(("losses of a model", "metrics of a model"), own, strict=True):
        yield what, private(model, attribute, library=name)
    scaled = library.mixed_precision.LossScaleOptimizer(optimizers.Adam())
    yield "optimizer with a loss scale", scaled
    if library is not keras:
        yield "loss scale", private(scaled, "_loss_scale", library=name)
    yield "masked tensor", library.layers.Embedding(3, 2, mask_zero=True)(tf.constant([[1, 0]]))


def _model(library: Any) -> Any:
    layers = library.layers
    return library.Sequential([library.Input((4,)), layers.Dense(3), layers.Dropout(0.5), layers.Dense(1)])


def _loss_options() -> None:
    for library in (keras, tf_keras):
        loss = library.losses.BinaryCrossentropy(from_logits=True)
        options = private(loss, "_fn_kwargs", library=library.__name__)
        require(options.get("from_logits") is True, "a loss does not keep from_logits", library=library.__name__)


def _replaced() -> None:
    """What the trainer replaces on an object has an effect only if the library calls it there."""
    adam, normalization = keras.optimizers.Adam, keras.layers.BatchNormalization
    calls = (
        ("keras", adam, "_backend_update_step", "_all_reduce_sum_gradients"),
        ("keras", adam, "apply", "_backend_apply_gradients"),
        ("keras", adam, "finalize_variable_values", "_overwrite_model_variables_with_average_value"),
        ("keras", normalization, "call", "_moments"),
        ("keras", keras.Model, "fit", "_maybe_symbolic_build"),
        ("tf_keras", tf_keras.layers.BatchNormalization, "_calculate_mean_and_var", "_sync_calculate_mean_and_var"),
    )
    for library, owner, caller, name in calls:
        found = private(owner, caller, library=library)
        require(mentions(found, name), f"{owner.__name__}.{caller} does not call {name}", library=library)


def _random_layers() -> None:
    for library in (keras, tf_keras):
        with draws.counted(3):
            model = _model(library)
        require(len(draws.states(model)) == 1, "Dropout has no state", library=library.__name__)
        place = draws.Draws(model).place

        def drawn(step: int, model: Any = model, place: Any = place) -> bytes:
            with tf.distribute.get_strategy().scope():
                place(tf.constant(step, tf.int64))
            values: bytes = tf.convert_to_tensor(model.layers[1](tf.ones((1, 64)), training=True)).numpy().tobytes()
            return values

        first, second, again = drawn(1), drawn(2), drawn(1)
        require(first == again and first != second, "Dropout does not draw by its state", library=library.__name__)
    legacy = tf_keras.Sequential([tf_keras.Input((4,)), tf_keras.layers.Dropout(0.5, rng_type="legacy_stateful")])
    require(len(draws.uncounted(legacy)) == 1, "a layer without a count is not known as such", library="tf_keras")


def _graph_of_layers() -> None:
    inputs = keras.Input((3,))
    embedding = keras.layers.Embedding(4, 2, mask_zero=True)
    embedded = embedding(inputs)
    require(keras3.has_mask(embedded), "the outputs of an Embedding have no mask", library="keras")
    require(not keras3.has_mask(inputs), "an input has a mask", library="keras")
    require(keras3.maker(embedded).operation is embedding, "a tensor does not name its layer", library="keras")


def _variable_names() -> None:
    expected = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    for library in (keras, tf_keras):
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
    keras_fit.check_version(keras.__version__)
    for library in (keras, tf_keras):
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


def _reductions() -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
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


def _parts() -> None:
    parts = [tf.Variable([1.0]), tf.Variable([2.0])]
    whole = compat.sharded(parts)
    require(all(compat.whole_variable(part) is whole for part in parts), "parts have no whole", library="tensorflow")
    other = tf.Variable(1.0)
    require(compat.whole_variable(other) is other, "a variable is a part of another", library="tensorflow")


def _lean(check: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _LEAN.format(check=check)], capture_output=True, text=True, timeout=120, check=False
    )
    if ended.returncode or ended.stdout:
        said = (ended.stdout or ended.stderr).strip().splitlines()
        raise RuntimeError(said[-1] if said else f"exit code {ended.returncode}")


CHECKS: Mapping[str, Callable[[], None]] = {
    # First: TensorFlow reads these before anything of it has run.
    "coordination service": compat.check_coordination,
    "parameter servers' memory": compat.check_keep_alive,
    "server": lambda: _lean(_LEAN_CHECKS["server"]),
    "data service": lambda: _lean(_LEAN_CHECKS["data service"]),
    "names": _names,
    "options of losses": _loss_options,
    "what is replaced": _replaced,
    "random layers": _random_layers,
    "graph of layers": _graph_of_layers,
    "names of variables": _variable_names,
    "fit": _fit,
    "AutoGraph": _conversion,
    "sums over replicas": _reductions,
    "split variables": _parts,
    # Last: it changes Keras in this process.
    "fit of scripts": lambda: keras_override.install(lambda _: None, parse((), {})),
}
"""What is checked -> a function that raises where it fails."""
