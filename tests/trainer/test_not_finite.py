"""A loss that is NaN: the training stops, goes back or leaves the update out, and no checkpoint is spoiled."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.cluster import Job
from trainer.outcome import tensors

pytestmark = pytest.mark.trainer

TWO = {"worker": 2}
BAD_STEP = 33
MINE = f"""
import keras
import numpy as np
import tensorflow as tf

def data():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(480, 4)).astype("float32")
    labels = inputs.sum(axis=1, keepdims=True)
    inputs[({BAD_STEP} - 1) * 8 + 5] = np.nan  # of 2 workers, the second has the second half of a batch of 8
    examples = tf.data.Dataset.from_tensor_slices((inputs, labels))
    return {{"training": examples, "held_out": examples.take(8)}}

def model(*between):
    layers = [keras.layers.Dense(4, use_bias=False), *between, keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    model.compile(loss="mse")
    return model

def normalized():
    return model(keras.layers.BatchNormalization())

@tf.custom_gradient
def no_gradient(inputs):
    return tf.identity(inputs), lambda gradient: gradient * np.inf

class NoGradient(keras.layers.Layer):
    def call(self, inputs):
        return no_gradient(inputs)

def overflows():
    found = model()
    inner = keras.optimizers.SGD(0.001)
    found.compile(keras.optimizers.LossScaleOptimizer(inner, initial_scale=1e38, dynamic_growth_steps=1000), loss="mse")
    return found

def infinite_gradients():
    return model(NoGradient())
"""
ARGUMENTS = (
    "--model=mine:model", "--data=mine:data", "--no-shuffle", "--batch-size=8", "--epochs=1",
    "--checkpoint-every-steps=10", "--checkpoint-keep=2", "--optimizer=adam", "--learning-rate=0.001",
)  # fmt: skip
WHERE = {
    "OneDevice": f"the loss is not finite at step {BAD_STEP}",
    "MultiWorkerMirrored": f"the loss is not finite at step {BAD_STEP} on worker 1",
}
LIBRARY = {"ParameterServer": "tf_keras", "Pipeline": "keras"}
ROLES = {"OneDevice": {"worker": 1}, "MultiWorkerMirrored": TWO}


def ran(folder: Path, strategy: str, *arguments: str, program: str = MINE) -> Job:
    """A job of MINE that has ended."""
    with Job(folder, strategy=strategy, roles=ROLES[strategy], arguments=[*ARGUMENTS, *arguments]) as job:
        (folder / "mine.py").write_text(program)
        job.start().wait()
    return job


def codes(job: Job) -> set[int]:
    """The exit codes of a job that has ended."""
    return set(job.wait().values())


def weights(job: Job, step: int) -> list[Any]:
    """All numbers of a checkpoint's weights."""
    found = tensors(job.checkpoints / f"ckpt-{step}")
    return [np.frombuffer(found[name], "float32") for name in sorted(found) if name.startswith("weights")]


@pytest.mark.parametrize("loop", ["custom", "fit"])
@pytest.mark.parametrize("strategy", ["OneDevice", "MultiWorkerMirrored"])
def test_a_nan_loss_ends_every_worker_with_1_and_the_step_and_keeps_the_finite_checkpoints(
    folder: Path, strategy: str, loop: str
) -> None:
    job = ran(folder, strategy, f"--loop={loop}", "--steps-per-call=7")
    assert codes(job) == {1}
    for replica in job.replicas.values():
        stays = f"the last finite checkpoint is {job.checkpoints}/ckpt-30"
        assert replica.last_words.startswith(f"{WHERE[strategy]}; {stays}")
        assert "Traceback" not in replica.log
    assert sorted(path.stem for path in job.checkpoints.glob("ckpt-*.index")) == ["ckpt-20", "ckpt-30"]
    assert all(np.isfinite(each).all() for each in weights(job, 30))
    assert not (folder / "export").exists() or not any((folder / "export").iterdir())


@pytest.mark.parametrize(
    ("strategy", "roles", "where"),
    [
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1}, r"the loss is not finite by step \d+; "),
        ("Pipeline", {"worker": 2}, f"the loss is not finite at step {BAD_STEP}; "),
    ],
)
def test_strategies_that_can_only_stop_do_so_and_keep_the_finite_checkpoints(
    folder: Path, strategy: str, roles: dict[str, int], where: str
) -> None:
    leader = "chief-0" if "chief" in roles else "worker-0"
    with Job(folder, strategy=strategy, roles=roles, arguments=[*ARGUMENTS, "--steps-per-call=4"]) as job:
        (folder / "mine.py").write_text(MINE.replace("import keras", f"import {LIBRARY[strategy]} as keras"))
        assert job.start()[leader].wait() == 1
    assert re.match(where + "the last finite checkpoint is .*/ckpt-30; ", job[leader].last_words)
    assert job.newest_checkpoint == 30


def test_a_last_step_that_is_not_finite_is_not_saved(folder: Path) -> None:
    job = ran(folder, "OneDevice", program=MINE.replace("(480, 4)", f"({BAD_STEP * 8}, 4)"))
    assert codes(job) == {1}
    assert job.newest_checkpoint == 30


def test_a_finite_loss_with_weights_that_are_not_finite_is_never_saved(folder: Path) -> None:
    arguments = ["--model=mine:infinite_gradients", "--checkpoint-every-steps=1"]
    job = ran(folder, "OneDevice", *arguments)
    assert codes(job) == {1}
    assert job["worker-0"].last_words.startswith("the weights are not finite at step 1; there is no checkpoint; ")
    assert not list(job.checkpoints.glob("*.index"))


@pytest.mark.parametrize("strategy", ["OneDevice", "MultiWorkerMirrored"])
def test_rollback_goes_on_from_the_last_checkpoint_without_the_batch(folder: Path, strategy: str) -> None:
    job = ran(folder, strategy, "--on-nan=rollback")
    assert codes(job) == {0}
    log = job["worker-0"].log
    back = f"back to step 30, {job.checkpoints}/ckpt-30; the batch of step {BAD_STEP} is left out"
    assert f"{WHERE[strategy]}: {back}" in log
    assert job.result["steps"] == 60
    assert all(np.isfinite(each).all() for each in weights(job, 60))
    assert np.isfinite(job.result["loss"])


@pytest.mark.parametrize("action", ["fail", "rollback", "skip"])
def test_gradients_that_overflow_under_loss_scaling_are_no_failure(folder: Path, action: str) -> None:
    program = MINE.replace("    inputs[(", "    # ")
    arguments = [a for a in ARGUMENTS if not a.startswith(("--model", "--optimizer", "--learning-rate"))]
    arguments += ["--model=mine:overflows", f"--on-nan={action}"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments) as job:
        (folder / "mine.py").write_text(program)
        assert job.start().wait() == {"worker-0": 0}
    assert "not finite" not in job["worker-0"].log
    assert all(np.isfinite(each).all() for each in weights(job, 60))


def test_rollback_is_repeated_at_most_as_often_as_was_set(folder: Path) -> None:
    job = ran(folder, "OneDevice", "--on-nan=rollback", "--on-nan-limit=2", program=MINE.replace("+ 5]", "+ 5:]"))
    assert codes(job) == {1}
    assert job["worker-0"].last_words.endswith("--on-nan=rollback has gone on 2 times (--on-nan-limit)")
    assert len(re.findall("rollback . of at most 2", job["worker-0"].log)) == 2


@pytest.mark.parametrize("model", ["model", "normalized"])
@pytest.mark.parametrize("strategy", ["OneDevice", "MultiWorkerMirrored"])
def test_skip_leaves_out_the_update_on_all_replicas(folder: Path, strategy: str, model: str) -> None:
    job = ran(folder, strategy, "--on-nan=skip", f"--model=mine:{model}")
    assert codes(job) == {0}
    # Synchronized normalization makes it not finite on both.
    on = {"model": WHERE[strategy], "normalized": ""}[model].replace("the loss is", "the loss or a gradient is")
    assert re.search(rf"warning: .*{on}.*: its update is skipped \(1 of at most 10\)", job["worker-0"].log)
    # The same as plain Keras, which is not given the batch at all.
    for ours, theirs in zip(weights(job, 60), expected(folder, model), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)


def test_a_result_never_holds_a_bare_nan(folder: Path) -> None:
    program = MINE.replace("examples.take(8)", "examples.skip(256)").replace('{{"training": examples,', "")
    program = program.replace('"training": examples,', '"training": examples.take(80),')
    job = ran(folder, "OneDevice", program=program)
    assert codes(job) == {0}

    def refuse(name: str) -> None:
        raise AssertionError(name)

    result = json.loads((folder / "logs" / "result.json").read_text(), parse_constant=refuse)
    assert result["loss"] is None


def expected(folder: Path, build: str) -> list[Any]:
    """The weights that plain Keras comes to without the batch."""
    import importlib.util

    import keras

    spec = importlib.util.spec_from_file_location("mine", folder / "mine.py")
    assert spec is not None
    assert spec.loader is not None
    mine = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mine)
    keras.utils.set_random_seed(0)
    model = getattr(mine, build)()
    model.compile(optimizer=keras.optimizers.Adam(0.001), loss="mse")
    for number, (inputs, labels) in enumerate(mine.data()["training"].batch(8), start=1):
        if number != BAD_STEP:
            model.train_on_batch(inputs, labels)
    return [weight.numpy().ravel() for weight in model.weights]
