"""What replicas draw in the steps of `fit` differs; what decides over the order and the splits does not."""

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.cluster import Job, ran

NOISE = Path(__file__).resolve().parent / "scripts" / "noise.py"
STEPS, EXAMPLES = 4, 32
BY_REPLICAS = (
    "normal:1", "normal:3", "shuffled:1", "with_seed:eagerly", "in_branch:3", "seed_generator:3", "two_draws:1",
    "in_loop:1", "unseeded:eagerly", "unseeded_layer:1", "generator:1", "dropout:3", "dropout:eagerly",
    "gaussian_noise:1", "flip:1", "stateless:1",
)  # fmt: skip
BY_WORKERS = (
    "normal:3", "normal:eagerly", "with_seed:1", "seed_generator:1", "unseeded_layer:3", "generator:1", "dropout:1",
    "flip:3", "stateless:1",
)  # fmt: skip
AS_ONE_DEVICE = ("seed_generator", "two_draws", "generator")
"""Ways of which the first replica draws what one device does."""


@pytest.mark.parametrize(
    ("strategy", "cases"), [("Mirrored", BY_REPLICAS), ("MultiWorkerMirrored", BY_WORKERS)], ids=["replicas", "workers"]
)
def test_each_replica_draws_its_own_noise_and_all_workers_the_same_order(
    folder: Path, strategy: str, cases: tuple[str, ...]
) -> None:
    folder.mkdir()
    with Job(
        folder, strategy=strategy, arguments=[f"--script={NOISE}", "--", str(folder), *cases], imported=True
    ) as job:
        assert set(job.start().wait().values()) == {0}
        log = job["worker-0"].log
    drawn: dict[str, dict[str, Any]] = defaultdict(dict)
    for found in folder.glob("*.npz"):
        drawn[found.name.rsplit("-", 1)[0]].update(np.load(found))
    assert sorted(drawn) == sorted(cases)
    for case, by_replica in drawn.items():
        first, second = by_replica["0"], by_replica["1"]
        assert first.shape[:2] == second.shape[:2] == (STEPS, EXAMPLES), case
        rows = len(np.unique(np.concatenate([first, second]).reshape(2 * STEPS * EXAMPLES, -1), axis=0))
        steps = len(np.unique(np.concatenate([first, second]).reshape(2 * STEPS, -1), axis=0))
        if case.startswith("stateless"):  # the seed of the user's own, in each step
            assert (rows, steps) == (EXAMPLES, 1), case
        elif case.startswith("flip"):  # each image is flipped, or not
            assert (rows, steps) == (2, 2 * STEPS), case
        else:
            assert (rows, steps) == (2 * STEPS * EXAMPLES, 2 * STEPS), case
        if case.startswith("dropout"):
            assert 0.48 < np.mean((first == 0) == (second == 0)) < 0.52, case
        if case.startswith(AS_ONE_DEVICE):
            assert np.array_equal(first, by_replica["alone"]), case
    # Once for each step, alike on all replicas.
    places = re.findall(r"^\S+ stands at (\d+) (\d+)$", log, re.M)
    assert places
    assert set(places) <= {(str(STEPS), "1"), (str(2 * STEPS), "1")}
    order = [json.loads(found.read_text()) for found in folder.glob("order-*.json")]
    assert all(each == order[0] for each in order)


NOISY = """
import numpy as np
import tensorflow as tf
import keras

class Noisy(keras.layers.Layer):
    def call(self, inputs, training=False):
        noise = tf.random.normal(tf.shape(inputs), seed=5)
        context = tf.distribute.get_replica_context()
        many = isinstance(tf.distribute.get_strategy(), tf.distribute.MirroredStrategy)
        if training and context is not None and many:
            tf.numpy_function(note, [context.replica_id_in_sync_group, noise], tf.int64)
        return inputs + 1e-6 * noise

def note(replica, noise):
    with open("drawn.txt", "a") as file:
        file.writelines(f"{replica} {row.tolist()}\\n" for row in noise)
    return np.int64(0)

def model():
    model = keras.Sequential([keras.layers.Input((4,)), Noisy(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def data():
    inputs = np.random.RandomState(1).standard_normal((80, 4)).astype("float32")
    examples = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(axis=1)))
    return {"training": examples.take(64), "held_out": examples.skip(64)}
"""


def test_a_layer_that_draws_by_tensorflow_differs_on_the_replicas_of_the_own_loop(folder: Path) -> None:
    arguments = ["--model=mine:model", "--data=mine:data", "--logical-cpus=2", "--batch-size=16", "--epochs=1"]
    ran(folder, strategy="Mirrored", arguments=arguments, files={"mine.py": NOISY}, imported=True)
    drawn = [line.partition(" ") for line in (folder / "drawn.txt").read_text().splitlines()]
    by_replica = {each: [row for replica, _, row in drawn if replica == each] for each in "01"}
    assert len(by_replica["0"]) == len(by_replica["1"]) == 32
    assert len({row for _, _, row in drawn}) == 64
