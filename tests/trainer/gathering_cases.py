"""Losses of all examples, on two replicas of a process that gather, and on one device: run by `test_gathering.py`.

Prints for each case how far value and gradient differ, or the line that it is refused with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.config.entry_points import Name
from dtj_trainer.data.own_dataset import OwnData
from dtj_trainer.distribution.gathering import Whole
from dtj_trainer.errors import UsageError
from dtj_trainer.training import objective

ROWS, FIRST, WIDTH = 7, 5, 3
"""Examples, those of the first replica, and numbers of each."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A loss of (labels, outputs), and how they are made.

    Attributes:
        labels: of all examples, as an array or a ragged tensor.
        outputs: made of what a weight times the inputs is.
        stands_in: whether what the second replica has counts for nothing.
    """

    loss: Callable[[Any, Any], Any]
    labels: Callable[[], Any] = lambda: np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH) / 10
    outputs: Callable[[Any], Any] = lambda made: made
    stands_in: bool = False


def root(labels: Any, outputs: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(tf.square(tf.cast(labels, tf.float32) - tf.cast(outputs, tf.float32))))


def pairs(_labels: Any, outputs: Any) -> Any:
    return tf.reduce_mean(tf.abs(outputs[:, tf.newaxis] - outputs))


def of_rows(labels: Any, outputs: Any) -> Any:
    return tf.sqrt(tf.reduce_sum(tf.reduce_sum(labels, axis=1) * tf.square(tf.reduce_sum(outputs, axis=1))))


def masked(_labels: Any, outputs: Any) -> Any:
    mask = tf.cast(keras3.mask_of(outputs), tf.float32)
    return tf.reduce_sum(tf.square(outputs) * mask) / tf.reduce_sum(mask)


def with_mask(made: Any) -> Any:
    outputs = tf.identity(made)
    keras3.put_mask(outputs, made > 0.3)
    return outputs


def ragged(values: Any) -> Any:
    # The rows differ in their lengths, and so does what each replica has.
    return tf.RaggedTensor.from_tensor(values, lengths=1 + tf.range(tf.shape(values)[0]) % WIDTH)


def without_one_class(made: Any) -> Any:
    return tf.concat([made, tf.fill([tf.shape(made)[0], 1], -np.inf)], 1)


def smoothed(labels: Any, outputs: Any) -> Any:
    return tf.sqrt(tf.reduce_sum(labels[:, 0] * tf.reduce_logsumexp(outputs, axis=1)))


CASES: dict[str, Case] = {
    "of all": Case(loss=root),
    "pairs": Case(loss=pairs),
    "all of one replica": Case(loss=pairs, stands_in=True),
    "ragged": Case(loss=of_rows, labels=lambda: ragged(CASES["of all"].labels()), outputs=ragged),
    "ragged of one replica": Case(
        loss=of_rows, labels=lambda: ragged(CASES["of all"].labels()), outputs=ragged, stands_in=True
    ),
    "bfloat16": Case(loss=root, outputs=lambda made: tf.cast(made, tf.bfloat16)),
    "float16": Case(loss=root, outputs=lambda made: tf.cast(made, tf.float16)),
    "bool": Case(loss=root, labels=lambda: np.arange(ROWS * WIDTH).reshape(ROWS, WIDTH) % 2 == 0),
    "uint8": Case(loss=root, labels=lambda: np.arange(ROWS * WIDTH, dtype="uint8").reshape(ROWS, WIDTH)),
    "large int64": Case(loss=root, labels=lambda: np.full((ROWS, WIDTH), 2**40 + 1)),
    "masks": Case(loss=masked, outputs=with_mask),
    "infinite logits": Case(loss=smoothed, outputs=without_one_class),
    "a dict": Case(
        loss=lambda labels, outputs: root(labels["a"], outputs["b"]) + pairs(None, outputs["a"]),
        labels=lambda: {"a": CASES["of all"].labels(), "none": None},
        outputs=lambda made: {"a": made, "b": 2 * made},
    ),
    "each": Case(loss=lambda labels, outputs: tf.reduce_sum(tf.square(labels - outputs), axis=-1)),
    "texts": Case(loss=root, labels=lambda: np.full((ROWS, WIDTH), "word")),
    "no rows": Case(loss=root, outputs=tf.reduce_sum),
}


COMPILED = ("of all", "pairs", "ragged", "bfloat16", "uint8", "large int64", "masks", "infinite logits")
"""Cases of all kinds of what is sent."""


def _inputs() -> Any:
    return tf.constant(np.random.default_rng(1).normal(size=(ROWS, WIDTH)), tf.float32)


def _part(values: Any, part: slice) -> Any:
    return tf.nest.map_structure(lambda one: None if one is None else one[part], values)


def alone(case: Case) -> tuple[Any, Any]:
    """Value and gradient on one device."""
    part = slice(0, FIRST if case.stands_in else ROWS)
    weight = tf.Variable([0.5, -1.0, 1.5])
    labels = tf.nest.map_structure(lambda one: None if one is None else one[part], case.labels())
    with tf.GradientTape() as tape:
        outputs = case.outputs(_inputs()[:FIRST] * weight) if case.stands_in else _outputs(case, weight)
        loss = case.loss(tf.nest.map_structure(_tensor, labels), outputs) + tf.reduce_sum(weight**2)
    return loss, tape.gradient(loss, weight)


def _outputs(case: Case, weight: Any) -> Any:
    """As two replicas have them, in one tensor."""
    parts = [case.outputs(_inputs()[part] * weight) for part in (slice(0, FIRST), slice(FIRST, ROWS))]

    def joined(*each: Any) -> Any:
        whole = tf.concat(each, 0)
        if keras3.mask_of(each[0]) is not None:
            keras3.put_mask(whole, tf.concat([keras3.mask_of(one) for one in each], 0))
        return whole

    return tf.nest.map_structure(joined, *parts)


def _tensor(value: Any) -> Any:
    return value if value is None or isinstance(value, tf.RaggedTensor) else tf.constant(value)


def together(case: Case, strategy: Any) -> tuple[Any, Any]:
    """The same by two replicas."""
    with strategy.scope():
        weight = tf.Variable([0.5, -1.0, 1.5])

    def step(inputs: Any, labels: Any, present: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            whole = Whole(present if case.stands_in else None)
            outputs = case.outputs(inputs * weight)
            labels, outputs = whole.gathered((labels, outputs))
            loss = whole.part(case.loss(labels, outputs) + tf.reduce_sum(weight**2))
        return loss, tape.gradient(loss, weight)

    labels = case.labels()

    def given(context: Any) -> Any:
        number = context.replica_id_in_sync_group
        part = slice(FIRST, ROWS) if number else slice(0, FIRST)
        return _inputs()[part], tf.nest.map_structure(_tensor, _part(labels, part)), tf.constant(1 - number)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def run(arguments: Any) -> Any:
        found = strategy.run(step, args=arguments)
        return [strategy.reduce("SUM", one, axis=None) for one in found]

    value, gradient = run(strategy.experimental_distribute_values_from_function(given))
    return value, gradient


def compiled(case: Case) -> list[float]:
    """The same by XLA, as on a TPU: two replicas of as many examples, each of which does not know its number before."""
    rows = ROWS // 2
    # In one process, XLA compiles no other reduction.
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())

    def step(weight: Any, numbers: Any, inputs: Any, labels: Any) -> tuple[Any, Any]:
        context = tf.distribute.get_replica_context()
        first = rows * context.replica_id_in_sync_group
        inputs, labels = _part((inputs, labels), slice(first, first + rows))
        as_on_tpu = SimpleNamespace(
            num_replicas_in_sync=2,
            replica_id_in_sync_group=numbers[context.replica_id_in_sync_group],
            all_reduce=context.all_reduce,
            all_gather=context.all_gather,
        )
        with patch.object(tf.distribute, "get_replica_context", return_value=as_on_tpu):
            whole = Whole(static=True)
        with tf.GradientTape() as tape:
            tape.watch(weight)
            labels, outputs = whole.gathered((labels, case.outputs(inputs * weight)))
            loss = whole.part(case.loss(labels, outputs) + tf.reduce_sum(weight**2))
        return loss, tape.gradient(loss, weight)

    @tf.function(autograph=False, jit_compile=True)  # type: ignore[untyped-decorator]
    def run(*arguments: Any) -> Any:
        return [strategy.reduce("SUM", one, axis=None) for one in strategy.run(step, args=arguments)]

    labels = tf.nest.map_structure(_tensor, _part(case.labels(), slice(0, 2 * rows)))
    weight, inputs = tf.constant([0.5, -1.0, 1.5]), _inputs()[: 2 * rows]
    with tf.GradientTape() as tape:
        tape.watch(weight)
        loss = case.loss(labels, case.outputs(inputs * weight)) + tf.reduce_sum(weight**2)
    expected = loss, tape.gradient(loss, weight)
    return _differences(run(weight, tf.range(2), inputs, labels), expected)


def objective_of_a_tpu(batch: int) -> list[float]:
    """Loss and metric of a model, by a step that XLA compiles, of two replicas with as many examples."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], tf.distribute.ReductionToOneDevice())
    name = Name(flag="--data", module="mine", function="data")
    inputs, labels = _inputs()[:6], tf.constant(CASES["of all"].labels()[:6])
    rows = tf.data.Dataset.from_tensor_slices((inputs, labels))
    data = OwnData(name, lambda: {"training": rows, "held_out": rows}, shuffle=False)
    with strategy.scope(), patch.object(objective, "is_static", return_value=True):
        model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(WIDTH)])
        model.compile("sgd", root, metrics=[root])
        made = objective.CompiledObjective("--model=mine:model", model, data, batch=batch, default=None)

        def step(inputs: Any, labels: Any) -> tuple[Any, Any]:
            first = 3 * tf.distribute.get_replica_context().replica_id_in_sync_group
            inputs, labels = inputs[first : first + 3], labels[first : first + 3]
            return made.loss(2 * inputs, labels, None, inputs)

        @tf.function(autograph=False, jit_compile=True)  # type: ignore[untyped-decorator]
        def run(*arguments: Any) -> Any:
            return [strategy.reduce("SUM", one, axis=None) for one in strategy.run(step, args=arguments)]

        loss, sums = run(inputs, labels)
    means, expected = made.means(sums), root(labels, 2 * inputs)
    return _differences([loss, means["loss"], means["root"]], [expected] * 3)


def _differences(found: Any, expected: Any) -> list[float]:
    pairs = zip(found, expected, strict=True)
    return [float(np.abs(np.asarray(one) - np.asarray(other)).max()) for one, other in pairs]


def main() -> None:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        try:
            found[name] = _differences(together(case, strategy), alone(case))
            if name in COMPILED:
                found[f"compiled {name}"] = compiled(case)
        except UsageError as error:
            found[name if name not in found else f"compiled {name}"] = str(error)
    for batch in (6, 7):
        try:
            found[f"TPU, batch of {batch}"] = objective_of_a_tpu(batch)
        except UsageError as error:
            found[f"TPU, batch of {batch}"] = str(error)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
