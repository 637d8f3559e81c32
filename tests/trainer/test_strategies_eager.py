"""`tf.config.run_functions_eagerly` in the module of a model, to step through with a debugger: every strategy."""

from pathlib import Path

import pytest

from trainer.cluster import ran

THREE_STEPS = ("--model=mine:model", "--dataset=digits", "--epochs=1", "--batch-size=480", "--logical-cpus=2")
MINE = """
import tensorflow as tf
import keras

tf.config.run_functions_eagerly(True)


def model():
    model = keras.Sequential([keras.layers.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""


@pytest.mark.parametrize(
    "strategy", ["OneDevice", "Mirrored", "CentralStorage", "MultiWorkerMirrored", "ParameterServer"]
)
def test_it_trains_without_a_graph(folder: Path, strategy: str) -> None:
    library = "tf_keras" if strategy == "ParameterServer" else "keras"
    files = {"mine.py": MINE.replace("import keras", f"import {library} as keras")}
    assert ran(folder, strategy=strategy, arguments=THREE_STEPS, files=files).result["steps"] == 3
