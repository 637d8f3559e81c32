"""Replicas are compared: a flipped bit is found before it is saved, and the training goes on as if there was none."""

import json
import re
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from log_lines import log_lines
from loopback import free_ports
from trainer.cluster import DEADLINE, Job, image_entrypoint, ran
from trainer.conftest import SHORT
from trainer.outcome import tensors

FLIPS = """
import json
import os
from pathlib import Path

class Flips:
    every_steps = {step}

    def __call__(self, step, metrics, model):
        task = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
        if step != {step} or task != {task} or Path("flipped").exists():
            return
        Path("flipped").touch()
        one = {variable}.value.values[{component}]
        values = one.numpy()
        values.view("int32").flat[0] {flip}
        one.assign(values)

def actions():
    return [Flips()]
"""
WEIGHT = "model.trainable_variables[0]"
SLOT = "next(one for one in model.optimizer.variables if one.path.endswith('kernel_velocity'))"
OWN = """
import keras
import numpy as np
import tensorflow as tf

def data():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(480, 6)).astype("float32")
    examples = tf.data.Dataset.from_tensor_slices((inputs, inputs.sum(axis=1, keepdims=True)))
    return {{"training": examples, "held_out": examples.take(16)}}

def model():
    keras.mixed_precision.set_dtype_policy("{policy}")
    found = keras.Sequential([
        keras.Input((6,)), keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3),
        keras.layers.Dense(1, dtype="float32"),
    ])
    found.compile(keras.optimizers.{optimizer}, loss="mse")
    return found
"""
OWN_ARGUMENTS = ("--model=mine:model", "--data=mine:data", "--batch-size=16", "--epochs=5")


def flips(
    variable: str = WEIGHT, *, step: int = 45, task: int = 0, component: int = 0, flip: str = "^= 8"
) -> Mapping[str, str]:
    """A file with an action that flips a bit in what one replica holds, once."""
    return {"flips.py": FLIPS.format(variable=variable, step=step, task=task, component=component, flip=flip)}


def corrupt(job: Job, name: str) -> Mapping[str, Any]:
    """What a task leaves to the operator."""
    line, document = job[name].last_words.splitlines()
    assert line in job[name].log
    found: Mapping[str, Any] = json.loads(document)["corrupt"]
    return found


FLIPPED = ("--actions=flips:actions",)


def options(strategy: str, *arguments: str) -> dict[str, Any]:
    return {"strategy": strategy, "arguments": [*SHORT, *arguments], "exports": False}


@pytest.fixture(scope="module")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """SHORT, uninterrupted, by two replicas of one process; finished."""
    return ran(tmp_path_factory.mktemp("mirrored"), **options("Mirrored", "--logical-cpus=2"))


@pytest.mark.parametrize(
    ("variable", "every"), [(WEIGHT, ()), (SLOT, ("--compare-replicas-every=50",))], ids=["weight", "slot"]
)
def test_of_two_replicas_both_are_suspects_and_the_run_resumes_before_the_flip(
    folder: Path, mirrored: Job, variable: str, every: Sequence[str]
) -> None:
    more = options("Mirrored", "--logical-cpus=2", *FLIPPED, *every)
    with Job(folder, files=flips(variable, component=1), **more) as job:
        assert job.start().wait() == {"worker-0": 75}
        found = corrupt(job, "worker-0")
        assert found["replicas"] == [0, 1]
        assert found["workers"] == ["worker-0"]
        assert found["step"] == 50
        assert job.newest_checkpoint == 40
        named = rf"replicas 0, 1 differ, and no majority shows which one is wrong, in {found['variable']} by step 50: "
        assert named in job["worker-0"].log
        assert job.start().wait() == {"worker-0": 0}
    assert tensors(job.checkpoints / "ckpt-90") == tensors(mirrored.checkpoints / "ckpt-90")


def test_a_flip_that_leaves_no_finite_number_is_no_fault_of_the_model(folder: Path) -> None:
    more = options("Mirrored", "--logical-cpus=2", *FLIPPED)
    job = ran(folder, code=75, files=flips(step=50, flip="|= 0x7F800000"), **more)
    assert corrupt(job, "worker-0")["step"] == 50
    assert job.newest_checkpoint == 40


def test_of_three_workers_the_wrong_one_is_named_and_all_start_again(folder: Path) -> None:
    more = options("MultiWorkerMirrored", "--compare-replicas-every=4") | {"roles": {"worker": 3}}
    whole = ran(folder / "whole", **more)
    more["arguments"] += FLIPPED
    with Job(folder / "flipped", files=flips(SLOT, step=44, task=1), **more) as job:
        assert set(job.start().wait().values()) == {75}
        for name in job.replicas:
            found = corrupt(job, name)
            assert found["replicas"] == [1]
            assert found["workers"] == ["worker-1"]
            assert found["step"] == 44
            assert found["variable"].endswith("velocity")
        assert job.newest_checkpoint == 40
        assert set(job.start().wait().values()) == {0}
    assert tensors(job.checkpoints / "ckpt-90") == tensors(whole.checkpoints / "ckpt-90")


def test_launchers_start_two_workers_again_in_place_and_show_the_operator_why(folder: Path, together: Job) -> None:
    ports = dict(zip(("worker-0", "worker-1"), free_ports(2), strict=True))
    more = options("MultiWorkerMirrored", *FLIPPED) | {"program": image_entrypoint()}
    with Job(folder, files=flips(task=1), **more) as job:
        job.hold_at(60)
        for name, port in ports.items():
            job.start(name, environ={"DTJ_STATUS_PORT": str(port)})
        job.wait_for_checkpoint(60)
        for port in ports.values():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=DEADLINE) as answer:
                assert json.load(answer)["corrupt"]["workers"] == ["worker-0", "worker-1"]
        job.let_go()
        assert set(job.wait().values()) == {0}
    for name in ports:
        assert job[name].log.count("replicas differ (exit code 75): starting again in place") == 1
    assert tensors(job.checkpoints / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


@pytest.mark.parametrize(
    ("optimizer", "policy"),
    [
        ("Adam(0.01, use_ema=True, ema_overwrite_frequency=7)", "float32"),
        ("LossScaleOptimizer(keras.optimizers.Adam(0.01, gradient_accumulation_steps=3))", "mixed_float16"),
        ("SGD(0.01, momentum=0.9, clipnorm=1.0)", "float32"),
    ],
    ids=["moving averages", "mixed float16", "momentum"],
)
def test_sound_replicas_raise_no_alarm(folder: Path, optimizer: str, policy: str) -> None:
    files = {"mine.py": OWN.format(optimizer=optimizer, policy=policy)}
    arguments = [*OWN_ARGUMENTS, "--logical-cpus=3", "--compare-replicas-every=1", "--batch-size=17"]
    job = ran(folder, strategy="Mirrored", arguments=arguments, files=files, exports=False)
    assert "differ" not in job["worker-0"].log


SESSION = """
import dtj_trainer
import keras
import numpy as np

class Flips(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 11:
            one = self.model.trainable_variables[0].value.values[1]
            values = one.numpy()
            values.view("int32").flat[0] ^= 8
            one.assign(values)

inputs = np.random.default_rng(0).normal(size=(320, 6)).astype("float32")
with dtj_trainer.session() as s:
    with s.strategy.scope():
        model = keras.Sequential([
            keras.Input((6,)), keras.layers.Dense(8), keras.layers.BatchNormalization(), keras.layers.Dropout(0.3),
            keras.layers.Dense(1),
        ])
        model.compile(keras.optimizers.Adam(0.01), loss="mse")
    s.checkpoint(model=model)
    model.fit(inputs, inputs.sum(axis=1), batch_size=16, callbacks=[Flips(), s.callback()], verbose=0)
"""


def test_a_flip_in_a_session_is_found(folder: Path) -> None:
    arguments = ["--logical-cpus=2", "--compare-replicas-every=5"]
    job = ran(folder, code=75, script=SESSION, strategy="Mirrored", arguments=arguments, imported=True, exports=False)
    assert corrupt(job, "worker-0")["step"] == 15
    assert "compared no more" not in job["worker-0"].log


def test_replicas_are_not_compared_where_the_user_says_so(folder: Path) -> None:
    more = options("Mirrored", "--logical-cpus=2", *FLIPPED, "--compare-replicas-every=0")
    assert "differ" not in ran(folder, files=flips(component=1), **more)["worker-0"].log


@pytest.mark.parametrize("first", [[7, 8], [7, 7]], ids=["differ", "are alike"])
def test_replicas_that_differ_when_they_are_compared_first_are_compared_no_more(
    monkeypatch: pytest.MonkeyPatch, first: Sequence[int]
) -> None:
    import tensorflow as tf

    from dtj_trainer.checkpoint import compared_replicas

    found = iter([first, [7, 8], [7, 8]] if first == [7, 7] else [first, first])
    monkeypatch.setattr(compared_replicas, "_is_alike", lambda variable: True)
    monkeypatch.setattr(compared_replicas, "numbers_of_each_replica", lambda *_: tf.constant([next(found)]))
    config: Any = SimpleNamespace(
        cluster=SimpleNamespace(leads=True, trainers=(), task="worker 0"),
        strategy="Mirrored",
        compare_steps=None,
        looks_often=False,
    )
    replicas = compared_replicas.ComparedReplicas(
        config, SimpleNamespace(num_replicas_in_sync=2), [("dense/kernel", None)]
    )
    with log_lines() as printed:
        ends = [replicas.differing(step) for step in (1, 2)]
    assert not replicas.begins
    if first == [7, 7]:
        assert printed == []
        assert [str(end).partition(":")[0] for end in ends if end] == [
            "replicas 0, 1 differ, and no majority shows which one is wrong, in dense/kernel by step 2"
        ]
        assert str(ends[1]).endswith("; or, if they are meant to differ, use --compare-replicas-every=0")
    else:
        assert ends == [None, None]
        assert len(printed) == 1
        assert re.fullmatch("warning: replicas differ in dense/kernel after step 1, .* compared no more", printed[0])


@pytest.mark.parametrize(
    ("numbers", "odd"), [((7, 7, 7), []), ((7, 8), [0, 1]), ((7, 8, 7), [1]), ((7, 7, 8, 8), [0, 1, 2, 3])]
)
def test_who_does_not_have_what_more_than_half_have_is_wrong(numbers: Sequence[int], odd: Sequence[int]) -> None:
    from dtj_trainer.checkpoint.compared_replicas import odd_ones

    assert odd_ones(numbers) == odd
