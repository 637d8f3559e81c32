"""Models that are hard to cut, and what the tests of the pipeline compare: run in a process of its own.

    python pipeline_parallel_models.py CASE...      one line of JSON: name of the case -> its figures

Logical devices of one process stand in for the workers, so that many ways to cut are tried in seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from dtj_trainer.config.pipeline_layout import Layout
from dtj_trainer.data.full_batches import Arrays
from dtj_trainer.datasets import digits
from dtj_trainer.pipeline_parallel.graph_cut import cut
from dtj_trainer.pipeline_parallel.stages import Stage, make_stages, weights_of
from dtj_trainer.pipeline_parallel.step import PipelineStep
from dtj_trainer.tasks.shipped import image_classification
from dtj_trainer.training.model import ModelFactory

BATCH = 48
DEVICES = 8
RATE = 0.0005
DATA = Arrays(digits())


@cache
def factory() -> ModelFactory:
    """Of the model for digits. To make it runs TensorFlow, which has to know its devices before."""
    return ModelFactory("--task=image-classification", image_classification(DATA, keras).build, DATA, loss=None)


def adam() -> Any:
    """The optimizer of every model here."""
    return keras.optimizers.Adam(RATE)


class Harness:
    """A pipeline over logical devices."""

    def __init__(self, model: Any, *, stages: int, micro_batches: int) -> None:
        layout = Layout(stages=stages, micro_batches=micro_batches, first_layers=())
        devices = [f"/CPU:{stage}" for stage in range(stages)]
        parts = cut(model, layout)
        self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.stages: tuple[Stage, ...] = make_stages(model, parts, devices, adam)
        self.pipeline = PipelineStep(layout=layout, model=factory(), stages=self.stages, step=self.step, batch=BATCH)

    def gradients(self, inputs: Any, labels: Any) -> list[Any]:
        """Of the trainable weights, in the model's order."""
        gradients, states, metrics, _ = tf.function(self.pipeline.gradients)(inputs, labels)
        self.loss = float(metrics[0]) / BATCH
        self.states = [value.numpy() for state in states for value in state]
        of = {
            id(v): g for s, gs in zip(self.stages, gradients, strict=True) for v, g in zip(s.trainable, gs, strict=True)
        }
        return [of[id(variable)].numpy() for variable in weights_of(self.stages) if variable.trainable]


def cnn() -> Any:
    keras.utils.set_random_seed(1)
    return factory().build(DATA)


def plain_gradients(model: Any, inputs: Any, labels: Any) -> list[Any]:
    """One tape over the whole model and the whole batch."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(factory().compute_metrics(model(inputs, training=True), labels)["loss"])
    return [tf.convert_to_tensor(g).numpy() for g in tape.gradient(loss, [w.value for w in model.trainable_weights])]


def difference(left: list[Any], right: list[Any]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))


def batch() -> tuple[Any, Any]:
    inputs, labels = next(iter(DATA.batches(batch=BATCH, seed=3)))
    return inputs, labels


def normalised() -> Any:
    """Blocks with a branch and BatchNormalization."""
    keras.utils.set_random_seed(2)
    layers = keras.layers
    inputs = tensor = layers.Input(DATA.input_spec.shape[1:])
    for place in range(3):
        tensor = layers.Conv2D(8, 3, padding="same", name=f"widen_{place}")(tensor)
        branch = layers.BatchNormalization()(tensor)
        branch = layers.Conv2D(8, 3, padding="same", activation="relu")(branch)
        tensor = layers.Add()([tensor, branch])
    tensor = layers.Flatten()(tensor)
    return keras.Model(inputs, layers.Dense(10)(tensor))


def normalisation() -> Mapping[str, float]:
    """Gradients with one micro-batch, and moving statistics with one and with four, against the whole model."""
    found = {}
    for micro_batches in (1, 4):
        model, (inputs, labels) = normalised(), batch()
        harness = Harness(model, stages=3, micro_batches=micro_batches)
        got = harness.gradients(inputs, labels)
        if micro_batches == 1:
            found["gradients, 1 micro-batch"] = difference(got, plain_gradients(model, inputs, labels))
        else:
            for part in tf.split(inputs, micro_batches):
                model(part, training=True)
        moved = [weight.numpy() for weight in model.non_trainable_weights]
        found[f"statistics, {micro_batches} micro-batches"] = difference(harness.states, moved)
        found["how far they moved"] = float(np.abs(moved[0]).max())
    return found


def penalised() -> Any:
    """Layers that add penalties to the loss, on their weights and on what comes out of them."""
    keras.utils.set_random_seed(4)
    layers, penalty = keras.layers, keras.regularizers.L2(0.1)
    hidden = [
        layers.Dense(32, "relu", kernel_regularizer=penalty, activity_regularizer=penalty, name=f"hidden_{place}")
        for place in range(3)
    ]
    outputs = layers.Dense(10, kernel_regularizer=penalty)
    return keras.Sequential([layers.Input(DATA.input_spec.shape[1:]), layers.Flatten(), *hidden, outputs])


def penalties() -> Mapping[str, float]:
    """The loss of all stages and micro-batches, against that of the whole model and its penalties."""
    model, (inputs, labels) = penalised(), batch()
    harness = Harness(model, stages=3, micro_batches=4)
    harness.gradients(inputs, labels)
    plain = tf.reduce_mean(factory().compute_metrics(model(inputs, training=True), labels)["loss"])
    return {"loss": harness.loss, "wanted": float(tf.add_n([plain, *model.losses])), "without": float(plain)}


def dropped() -> Any:
    keras.utils.set_random_seed(3)
    layers = keras.layers
    hidden = [layer for _ in range(4) for layer in (layers.Dense(32, activation="relu"), layers.Dropout(0.5))]
    return keras.Sequential([layers.Input(DATA.input_spec.shape[1:]), layers.Flatten(), *hidden, layers.Dense(10)])


def dropout() -> Mapping[str, float]:
    """What is computed a second time drops the same: cut and uncut give the same gradients; the next step others."""
    model, (inputs, labels) = dropped(), batch()
    whole, pieces = (Harness(model, stages=stages, micro_batches=4) for stages in (1, 3))
    first = pieces.gradients(inputs, labels)
    found = {
        "cut and uncut": difference(first, whole.gradients(inputs, labels)),
        "the same step again": difference(first, pieces.gradients(inputs, labels)),
    }
    pieces.step.assign(1)
    return {**found, "the next step": difference(first, pieces.gradients(inputs, labels))}


def computed_again() -> Mapping[str, float]:
    """Convolutions in the graph that is run in the end, after all that TensorFlow has to say about it."""
    inputs, labels = batch()
    run = tf.function(Harness(cnn(), stages=2, micro_batches=2).pipeline.gradients)
    context.enable_run_metadata()
    run(inputs, labels)
    nodes = (node.op for graph in context.export_run_metadata().partition_graphs for node in graph.node)
    return {"convolutions": sum("Conv2D" in op and "Backprop" not in op for op in nodes)}


CASES: dict[str, Callable[[], Mapping[str, float]]] = {
    case.__name__: case for case in (normalisation, penalties, dropout, computed_again)
}

if __name__ == "__main__":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * DEVICES)
    print(json.dumps({name: CASES[name]() for name in sys.argv[1:]}))
