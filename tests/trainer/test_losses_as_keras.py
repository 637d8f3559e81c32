"""Losses and metrics of all kinds are shown under Keras' names, and train as in Keras on one device."""

import math
import textwrap
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import ran

BATCH, EPOCHS = 24, 2
MODELS = """
    import keras
    import numpy as np
    import tensorflow as tf

    INPUTS = np.random.default_rng(0).normal(size=(120, 4)).astype("float32")
    KINDS = INPUTS[:, :3].argmax(axis=1)
    PRICES = 5 * INPUTS.sum(axis=1, keepdims=True) ** 2

    def layers():
        init = [keras.initializers.GlorotUniform(seed=seed) for seed in range(3)]
        x = keras.Input((4,))
        h = keras.layers.Dense(4, "tanh", kernel_initializer=init[0])(x)
        price = keras.layers.Dense(1, name="price", kernel_initializer=init[1])(h)
        return x, price, keras.layers.Dense(3, "softmax", name="kind", kernel_initializer=init[2])(h)

    def compiled(model, loss=None, **options):
        model.compile(keras.optimizers.SGD(0.02), loss, **options)
        return model

    def of_dict():
        x, price, kind = layers()
        loss = {"price": "mse", "kind": "sparse_categorical_crossentropy"}
        return compiled(keras.Model(x, {"price": price, "kind": kind}), loss, loss_weights={"price": 0.1, "kind": 2.0})

    def of_names():
        x, price, kind = layers()
        return compiled(keras.Model(x, [price, kind]), {"kind": "sparse_categorical_crossentropy", "price": "mse"})

    def of_one():
        # Of which the trainer shows no metric, since it shows none of one output of several.
        x, price, kind = layers()
        return compiled(keras.Model(x, [kind, price]), "mse")

    def absolute(y, p):
        return tf.abs(tf.reshape(tf.cast(y, p.dtype), [-1, 1]) - p)

    class ByCall(keras.Model):
        def __init__(self, parts):
            super().__init__()
            self.parts = parts
        def call(self, x):
            price, kind = self.parts(x)
            return {"price": price, "kind": kind}

    def of_call():
        x, price, kind = layers()
        # One loss for all outputs.
        return compiled(ByCall(keras.Model(x, [price, kind])), absolute)

    class NotCalled(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight, training=True):
            return tf.reduce_mean(tf.square(y["price"] - y_pred["price"]))

    def not_called():
        x, price, kind = layers()
        model = NotCalled(x, {"price": price, "kind": kind})
        return compiled(model, {"price": "mse", "kind": "sparse_categorical_crossentropy"})

    class NotCalledByOne(keras.Model):
        def compute_loss(self, x, y, y_pred, sample_weight, training=True):
            return tf.reduce_mean(tf.abs(y - y_pred))

    def not_called_by_one():
        x, price, _ = layers()
        return compiled(NotCalledByOne(x, price), "mse", metrics=["mae"])

    class Measures(keras.Model):
        def make(self):
            self.error = keras.metrics.Mean(name="error")
            return self
        def compute_loss(self, x, y, y_pred, sample_weight, training=True):
            return tf.reduce_mean(tf.square(y - y_pred))
        def compute_metrics(self, x, y, y_pred, sample_weight):
            self.error.update_state(tf.abs(y - y_pred))
            return {**super().compute_metrics(x, y, y_pred, sample_weight), "root": tf.sqrt(self.error.result())}

    class MeasuresAll(Measures):
        def make(self):
            self.last = keras.metrics.Mean(name="last")
            return super().make()
        def compute_loss(self, *given, **options):
            loss = super().compute_loss(*given, **options)
            self.last.update_state(loss)
            return loss
        def compute_metrics(self, x, y, y_pred, sample_weight):
            found = super().compute_metrics(x, y, y_pred, sample_weight)
            of_batch = {"batch": tf.reduce_mean(y), "of_last": self.last.result()}
            return {**found, "log": tf.math.log(found["loss"]), **of_batch}

    def measures_all():
        x, price, _ = layers()
        return compiled(MeasuresAll(x, price).make(), metrics=["mae"])

    def measures():
        x, price, _ = layers()
        return compiled(Measures(x, price).make())

    def measures_more():
        x, price, _ = layers()
        return compiled(Measures(x, price).make(), metrics=[keras.metrics.MeanSquaredError(name="square")])

    class MeasuresTwice(Measures):
        @property
        def metrics(self):
            # Keras has it already.
            return super().metrics + [self.error]

    def measures_twice():
        x, price, _ = layers()
        return compiled(MeasuresTwice(x, price).make())

    def distiller():
        x, _, kind = layers()
        teacher, student = keras.Model(x, kind), keras.models.clone_model(keras.Model(x, kind))
        losses = keras.distillation.LogitsDistillation(temperature=3.0)
        return compiled(keras.distillation.Distiller(teacher, student, losses), "sparse_categorical_crossentropy")

    def crossentropy():
        x, _, kind = layers()
        return compiled(keras.Model(x, kind), "crossentropy", metrics=["accuracy"])

    def misspelled():
        x, price, _ = layers()
        return compiled(keras.Model(x, price), "sqare")

    def data(labels):
        whole = tf.data.Dataset.from_tensor_slices((INPUTS, labels))
        return {"training": whole.take(96), "held_out": whole.skip(96)}

    def both():
        return data({"price": PRICES, "kind": KINDS})

    def listed():
        return data((PRICES, KINDS))

    def twice():
        return data({"price": PRICES, "kind": PRICES})

    def priced():
        return data(PRICES)

    def kinds():
        return data(KINDS)
"""
CASES = {
    "of_dict": "both",
    "of_names": "listed",
    "of_call": "both",
    "of_one": "twice",
    "not_called": "both",
    "not_called_by_one": "priced",
    "measures": "priced",
    "measures_more": "priced",
    "measures_all": "priced",
    "measures_twice": "priced",
    "distiller": "kinds",
    "distiller --loss=sparse_categorical_crossentropy": "kinds",
    "crossentropy": "kinds",
}
"""Models, with other arguments, and their data."""
NOT_SHOWN = {
    "of_one": ("mean_absolute_error",),
    "distiller": ("distillation_loss", "student_loss", "total_loss"),
    "measures_all": ("last", "of_last", "batch"),
}
"""What is of a single batch, of one output of several, or given to a metric by a `compute_loss`."""


@pytest.mark.parametrize("strategy", ["OneDevice", "Mirrored"])
@pytest.mark.parametrize("model", CASES)
def test_losses_and_metrics_are_those_that_keras_shows_on_one_device(folder: Path, model: str, strategy: str) -> None:
    data = CASES[model]
    model, *more = model.split()
    expected = by_keras(model, data)
    arguments = [
        f"--model=mine:{model}", f"--data=mine:{data}", *more, f"--batch-size={BATCH}", f"--epochs={EPOCHS}",
        "--no-shuffle", *(("--logical-cpus=2",) * (strategy == "Mirrored")),
    ]  # fmt: skip
    job = ran(folder, strategy=strategy, arguments=arguments, files={"mine.py": MODELS}, exports=False)
    expected = {name: value for name, value in expected.items() if name not in NOT_SHOWN.get(model, ())}
    assert not {*job.result} & {*NOT_SHOWN.get(model, ())}
    line = "MeasuresAll.compute_metrics returns batch, of_last of single batches, which is not shown; update a metric"
    assert (line in job["worker-0"].log) == (model == "measures_all")
    found = {name: job.result.get(name, math.nan) for name in expected}
    assert found == pytest.approx(expected, rel=1e-4)


def by_keras(model: str, data: str) -> dict[str, float]:
    """What Keras evaluates after it has trained."""
    space: dict[str, Any] = {"__name__": "mine"}
    exec(textwrap.dedent(MODELS), space)
    made, parts = space[model](), space[data]()
    made.fit(parts["training"].batch(BATCH), epochs=EPOCHS, shuffle=False, verbose=0)
    found: dict[str, float] = made.evaluate(parts["held_out"].batch(BATCH), verbose=0, return_dict=True)
    return found


def test_a_compiled_loss_that_keras_does_not_know_is_one_line(folder: Path) -> None:
    arguments = ["--model=mine:misspelled", "--data=mine:priced"]
    job = ran(folder, code=2, arguments=arguments, files={"mine.py": MODELS}, exports=False)
    assert job["worker-0"].last_words == (
        "--model=mine:misspelled: the model is compiled with loss sqare: Keras has no such loss; give one of "
        "keras.losses, such as huber"
    )


@pytest.mark.parametrize("strategy", ["OneDevice", "Pipeline"])
@pytest.mark.parametrize("loss", ["ce", "crossentropy"])
def test_a_crossentropy_of_the_command_line_is_the_one_of_the_shapes(loss: str, strategy: str) -> None:
    import tensorflow as tf

    from dtj_trainer.config.entry_points import Name
    from dtj_trainer.data.own_dataset import OwnData
    from dtj_trainer.training.model import ModelFactory

    space: dict[str, Any] = {"__name__": "mine"}
    exec(textwrap.dedent(MODELS), space)
    name = Name(flag="--data", module="mine", function="kinds")
    data = OwnData(name, space["kinds"], shuffle=False)
    factory = ModelFactory("--model", space["crossentropy"], data, loss=loss, strategy=strategy)
    found = factory.compute_metrics(tf.constant([[0.1, 0.7, 0.2]]), tf.constant([1]))
    assert {one: float(value[0]) for one, value in found.items()} == pytest.approx(
        {"loss": -math.log(0.7), "accuracy": 1}
    )
