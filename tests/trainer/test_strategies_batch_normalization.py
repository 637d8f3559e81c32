"""BatchNormalization over several replicas: its statistics are those of the global batch, on every worker the same."""

from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import PATH, ran
from trainer.conftest import SHORT

NORMALISED = """
import keras

def build():
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(64, 3, activation="relu"),
            layers.BatchNormalization(),
            layers.Flatten(),
            layers.Dense(10),
        ]
    )
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""
NOTED = """
import os
import numpy
from dtj_trainer.checkpoint.manager import Store

save = Store.save

def noted(store, step):
    kept = store._state._variables
    weights = [variable.numpy() for name, variable in kept.items() if name.startswith("weights/")]
    numpy.savez(f"{os.environ['DTJ_ROLE']}-{os.environ['DTJ_INDEX']}-{step}.npz", *weights)
    save(store, step)

Store.save = noted
"""
"""Each task notes all its weights when it saves, also where that is thrown away."""


def test_its_statistics_are_equal_on_all_workers_and_those_of_one_device(folder: Path) -> None:
    import numpy

    def weights(part: str, task: str) -> list[Any]:
        with numpy.load(folder / part / f"{task}-90.npz") as saved:
            return [saved[name] for name in saved.files]

    arguments = [*SHORT, "--model=mine:build", "--dataset=digits"]
    files = {"mine.py": NORMALISED, "sitecustomize.py": NOTED}
    for strategy in ("OneDevice", "MultiWorkerMirrored"):
        place = folder / strategy
        environ = {"PYTHONPATH": f"{place}:{PATH}"}
        ran(place, strategy=strategy, arguments=arguments, files=files, environ=environ, exports=False)

    one = weights("OneDevice", "worker-0")
    first, second = (weights("MultiWorkerMirrored", f"worker-{index}") for index in range(2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True)), "the workers' models differ"
    statistics = [index for index, weight in enumerate(one) if weight.shape == (64,)]
    assert len(statistics) >= 4, "gamma, beta, mean and variance, beside the bias of a convolution"
    for index in statistics:
        assert numpy.abs(one[index]).max() > 1e-4
        assert first[index] == pytest.approx(one[index], abs=1e-3)
