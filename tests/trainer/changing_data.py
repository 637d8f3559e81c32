"""A program whose data can change: in which order they come, on which worker, and when."""

from typing import Any

MODULE = """
import os
from pathlib import Path

import {keras} as keras
import numpy as np
import tensorflow as tf

COUNT = {count}
INDEX = int(os.environ["DTJ_INDEX"])
SAVED = Path(__file__).parent / "checkpoints"

def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(4), keras.layers.Dense(1, name="last")])
    model.compile(loss="mse")
    return model

numbers = np.arange(2 * COUNT, dtype="float32").reshape(COUNT, 2) / COUNT

def plain():
    return tf.data.Dataset.from_tensor_slices((numbers, numbers[:, :1]))

def reversed_late(where):
    # In another order after place 400.
    rest = tf.data.Dataset.from_tensor_slices((numbers[400:][::-1], numbers[400:, :1][::-1]))
    return plain().take(400).concatenate(rest) if where else plain()

def once_saved(here=True):
    # The order changes when the first checkpoint is there.
    def place(number):
        changed = here and any(SAVED.glob("*.index"))
        return np.int64(number if number < 400 or not changed else COUNT + 399 - number)

    def example(number):
        found = tf.numpy_function(place, [number], tf.int64)
        found.set_shape([])
        row = tf.gather(numbers, found)
        return row, row[:1]

    return tf.data.Dataset.range(COUNT).map(example)

def split(whole):
    # Of each five, the last is held out.
    def part(held_out):
        chosen = whole.enumerate().filter(lambda number, _: tf.equal(number % 5 == 4, held_out))
        return chosen.map(lambda _, example: example)

    return {{"training": part(False), "held_out": part(True)}}

def data():
    examples = plain()
    later = examples.take(400).concatenate(examples.skip(400).shuffle(COUNT))
    return {data}
"""
ARGUMENTS = (
    "--model=mine:model", "--data=mine:data", "--batch-size=32", "--epochs=1", "--steps-per-call=5", "--no-shuffle",
)  # fmt: skip
OPTIONS = {
    "OneDevice": (),
    "Mirrored": ("--logical-cpus=2",),
    "MultiWorkerMirrored": (),
    "ParameterServer": (),
    "Pipeline": ("--stages=last", "--micro-batches=2"),
}
"""Of each strategy."""


def options_of(strategy: str, data: str, *arguments: str, count: int = 1600) -> dict[str, Any]:
    """What a job of this strategy and these data is made with.

    Args:
        data: an expression of what the function returns, or of a dataset of which each fifth example is held out.
    """
    given = [*ARGUMENTS, *OPTIONS[strategy], *arguments]
    data = data if "held_out" in data else f"split({data})"
    text = MODULE.format(keras="tf_keras" if strategy == "ParameterServer" else "keras", data=data, count=count)
    return {"strategy": strategy, "arguments": given, "files": {"mine.py": text}, "exports": False}
