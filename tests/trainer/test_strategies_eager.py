"""`tf.config.run_functions_eagerly` in the module of a model, to step through with a debugger: every strategy."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainer.cluster import Job

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
    ("strategy", "roles"),
    [
        ("OneDevice", {"worker": 1}),
        ("Mirrored", {"worker": 1}),
        ("CentralStorage", {"worker": 1}),
        ("MultiWorkerMirrored", {"worker": 2}),
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1}),
    ],
    ids=str,
)
def test_it_trains_without_a_graph(folder: Path, strategy: str, roles: Mapping[str, int]) -> None:
    library = "tf_keras" if strategy == "ParameterServer" else "keras"
    with Job(folder, strategy=strategy, roles=roles, arguments=THREE_STEPS) as job:
        (folder / "mine.py").write_text(MINE.replace("import keras", f"import {library} as keras"))
        job.start()
        trains = [name for name in job.replicas if strategy != "ParameterServer" or name == "chief-0"]
        assert {job[name].wait() for name in trains} == {0}
    assert job.result["steps"] == 3
