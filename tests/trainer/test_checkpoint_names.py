"""Names in checkpoints: a swap of equal shapes is refused, and what is no change of the model is not."""

import re
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import ran

SMALL = (
    "--batch-size=32",
    "--checkpoint-every-steps=10",
    "--checkpoint-keep=20",
    "--model=mine:model",
    "--data=mine:data",
)


def library(name: str) -> Any:
    if name == "tf_keras":
        import tf_keras

        return tf_keras
    import keras

    return keras


def layers(keras: Any) -> Any:
    """A functional model of layers in layers, two of which were made in another order than they are called in."""
    made = keras.layers
    inputs = keras.Input((8, 4))
    outputs = made.Bidirectional(made.LSTM(3, return_sequences=True))(inputs)
    outputs = made.MultiHeadAttention(2, 3)(outputs, outputs)
    outputs = made.BatchNormalization()(outputs)
    outputs = made.TimeDistributed(made.Dense(5))(outputs)
    outputs = made.GRU(6)(outputs)
    outputs = keras.Sequential([keras.Input((6,)), made.Dense(6), made.Dense(6)])(outputs)
    first = keras.Input((6,))
    outputs = keras.Model(first, made.Dense(6)(first))(outputs)
    last, before = made.Dense(4), made.Dense(4, name="before")
    return keras.Model(inputs, last(before(made.Dense(4)(outputs))))


def subclass(keras: Any) -> Any:
    """A model of a user's own class."""

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.encoder = keras.layers.Dense(3)
            self.blocks = [keras.layers.Dense(3), keras.layers.Dense(3)]
            self.heads = {"left": keras.layers.Dense(3), "right": keras.layers.Dense(3, name="named")}

        def call(self, inputs: Any) -> Any:
            outputs = self.encoder(inputs)
            for block in self.blocks:
                outputs = block(outputs)
            return self.heads["left"](outputs) + self.heads["right"](outputs)

    model = Own()
    model(keras.ops.ones((2, 3)) if hasattr(keras, "ops") else keras.backend.ones((2, 3)))
    return model


def names(model: Any, optimizer: Any) -> dict[str, list[str]]:
    from dtj_trainer import two_kerases
    from dtj_trainer.checkpoint import variable_names

    optimizer.build(model.trainable_variables)
    return variable_names.of_training(model, optimizer, two_kerases.state(optimizer))


def rate(keras: Any) -> Any:
    return keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)


@pytest.mark.parametrize("build", [layers, subclass])
def test_names_say_where_a_variable_is_and_not_what_was_made_before_nor_in_which_keras(build: Any) -> None:
    import keras
    import tensorflow as tf
    import tf_keras

    found = []
    for each in (keras, tf_keras, keras, tf_keras):
        found.append(names(build(each), each.optimizers.Adam(rate(each))))
        with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
            found.append(names(build(each), each.optimizers.Adam(rate(each))))
    assert all(each == found[0] for each in found), found
    weights, state = found[0]["weights"], found[0]["optimizer"]
    assert len(set(weights)) == len(weights)
    assert state[:3] == ["iteration", f"{weights[0]}/momentum", f"{weights[0]}/velocity"]
    if build is subclass:
        assert [name for name in weights if name.endswith("kernel")] == [
            f"{layer}/kernel" for layer in ("encoder", "blocks_0", "blocks_1", "heads_left", "named")
        ]
    else:
        assert weights[0] == "bidirectional/forward_lstm/lstm_cell/kernel"
        assert [name for name in weights if re.search("dense.*kernel", name)] == [
            "time_distributed/dense/kernel",
            "sequential/dense/kernel",
            "sequential/dense_1/kernel",
            "functional/dense/kernel",
            "dense_1/kernel",
            "dense/kernel",
        ]


OPTIMIZERS = ("SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam", "Ftrl", "Lion")


@pytest.mark.parametrize(
    ("of", "optimizer"),
    [*(("keras", name) for name in (*OPTIMIZERS, "Lamb", "Muon")), *(("tf_keras", name) for name in OPTIMIZERS)],
)
def test_the_state_of_every_optimizer_has_the_same_names_each_time(optimizer: str, of: str) -> None:
    keras = library(of)
    kind = getattr(keras.optimizers, optimizer)
    found = [names(layers(keras), kind(learning_rate=rate(keras), use_ema=True)) for _ in range(2)]
    assert found[0] == found[1]
    state = found[0]["optimizer"]
    assert state[0] == "iteration"
    assert not [name for name in state if re.search(r"model|functional_\d|adam|sgd", name)]
    assert {f"{name}/average" for name in found[0]["weights"] if "moving" not in name} <= set(state)


@pytest.fixture
def saved(tmp_path: Path) -> Any:
    """Saves or restores a model of two layers in one directory, as each process would: returns what is restored."""
    import keras
    import tensorflow as tf

    from dtj_trainer import two_kerases
    from dtj_trainer.checkpoint import variable_names
    from dtj_trainer.checkpoint.manager import Store
    from dtj_trainer.checkpoint.state import State

    def store(*layer_names: str | None, optimizer: str = "Adam", of: Any = keras, units: int = 4) -> tuple[Store, Any]:
        made = [of.layers.Dense(units, name=name) for name in layer_names]
        model = of.Sequential([of.Input((4,)), *made])
        used = getattr(of.optimizers, optimizer)(rate(of))
        used.build(model.trainable_variables)
        state = two_kerases.state(used)
        step, total = (tf.Variable(0, dtype=tf.int64) for _ in range(2))
        return Store(
            State(
                variable_names.of_training(model, used, state),
                weights=two_kerases.variables(model.weights), optimizer=state, step=step, total_steps=total,
            ),
            tmp_path, keep=3, writes=True,
        ), model  # fmt: skip

    store.directory = tmp_path  # type: ignore[attr-defined]
    return store


@pytest.mark.parametrize(
    ("written", "read", "difference"),
    [
        (("a", "b"), ("b", "a"), "weights/0 is a/kernel, this model wants b/kernel"),
        (("a", None), (None, "a"), "weights/0 is a/kernel, this model wants dense/kernel"),
        (("a", "b", "c"), ("a", "b"), "weights/4 is c/kernel, this model wants none"),
        (("a", "b"), ("a", "b", "c"), "weights/4 is missing, this model wants c/kernel"),
    ],
)
def test_a_checkpoint_of_other_names_is_refused_in_one_line(
    saved: Any, written: Any, read: Any, difference: str
) -> None:
    from dtj_trainer.errors import UsageError

    saved(*written)[0].save(7)
    with pytest.raises(UsageError) as error:
        saved(*read)[0].restore_newest()
    assert str(error.value) == (
        f"checkpoint {saved.directory}/ckpt-7: {difference}; "
        "give the arguments of the run that wrote it, or an empty --checkpoint-dir"
    )


def test_state_of_another_optimizer_is_refused_though_the_shapes_fit(saved: Any) -> None:
    from dtj_trainer.errors import UsageError

    saved("a", optimizer="Adagrad")[0].save(7)
    with pytest.raises(UsageError, match=r"optimizer/1 is a/kernel/accumulator, this model wants a/kernel/velocity;"):
        saved("a", optimizer="RMSprop")[0].restore_newest()


def test_weights_of_another_shape_are_refused_though_the_names_fit(saved: Any) -> None:
    from dtj_trainer.errors import UsageError

    saved("a")[0].save(7)
    with pytest.raises(UsageError, match=r"weights/0 \(a/kernel\) has shape \(4, 4\), this model wants \(4, 5\);"):
        saved("a", units=5)[0].restore_newest()


@pytest.mark.parametrize(("writes", "reads"), [("keras", "tf_keras"), ("tf_keras", "keras"), ("keras", "keras")])
@pytest.mark.parametrize("layer_names", [("a", "b"), (None, None), ("a", None)])
def test_one_keras_goes_on_with_what_the_other_saved(saved: Any, writes: str, reads: str, layer_names: Any) -> None:
    store, written = saved(*layer_names, of=library(writes))
    store.save(7)
    store, read = saved(*layer_names, of=library(reads))
    store.restore_newest()
    assert store.last_step == 7
    assert [w.tolist() for w in written.get_weights()] == [w.tolist() for w in read.get_weights()]


def test_another_format_is_one_line_that_says_what_to_do(saved: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dtj_trainer.checkpoint import state
    from dtj_trainer.errors import UsageError

    with monkeypatch.context() as another_version:
        another_version.setattr(state, "FORMAT", 3)
        saved("a")[0].save(7)
    with pytest.raises(UsageError) as error:
        saved("a")[0].restore_newest()
    assert str(error.value) == (
        f"checkpoint {saved.directory}/ckpt-7 has format 3, and this trainer reads 2; give the version of the "
        "trainer that wrote it, or an empty --checkpoint-dir"
    )


MODEL = """
    import keras
    import numpy as np
    import tensorflow as tf

    def model():
        first, second = (keras.layers.Dense(8, activation, name=activation) for activation in ({order}))
        model = keras.Sequential([keras.Input((8,)), first, second, keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(1e-3), "mse")
        return model

    def data():
        random = np.random.RandomState(0)
        inputs = random.standard_normal((320, 8)).astype("float32")
        whole = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(1, keepdims=True)))
        return {"training": whole.take(256), "held_out": whole.skip(256)}
"""


def test_a_job_whose_layers_were_swapped_is_refused_and_the_one_of_before_goes_on(folder: Path) -> None:
    for order, epochs, code in (("'relu', 'tanh'", 2, 0), ("'tanh', 'relu'", 3, 2), ("'relu', 'tanh'", 3, 0)):
        files = {"mine.py": MODEL.replace("{order}", order)}
        job = ran(folder, code=code, arguments=[*SMALL, f"--epochs={epochs}"], files=files)
        if code:
            assert job["worker-0"].last_words == (
                f"checkpoint {job.checkpoints}/ckpt-16: weights/0 is relu/kernel, this model wants tanh/kernel; give "
                "the arguments of the run that wrote it, or an empty --checkpoint-dir"
            )
            assert "Traceback" not in job["worker-0"].log
    assert "resumed: step 16 of" in job["worker-0"].log
