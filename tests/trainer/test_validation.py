"""`--validate-every` and `--keep-best`: what plain Keras shows as val_*, on any number of workers, and what follows."""

import json
import re
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer.cluster import DEADLINE, NO_EXPORT, PATH, Job, ran
from trainer.outcome import assert_training_curves, points, tensors

ARGUMENTS = ("--no-shuffle", "--epochs=3", "--validate-every=epoch")
"""Of 96 examples; 24 are held out."""
SCRIPTS = Path(__file__).parent / "scripts"
HERE = {"PYTHONPATH": f"{PATH}:{Path(__file__).parent}:{SCRIPTS}", "CUDA_VISIBLE_DEVICES": "", **NO_EXPORT}
ONE, TWO = {"worker": 1}, {"worker": 2}


@pytest.fixture(autouse=True)
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of the parity table can be imported here as the trainer imports them."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(SCRIPTS))


def history(model: str, data: str, *, batch: int, judged_by: int) -> Mapping[str, list[float]]:
    """What plain Keras says of each epoch, on one device, with batches of so many to learn from and to be judged by."""
    import keras
    import parity_models

    keras.utils.set_random_seed(0)
    made, parts = getattr(parity_models, model)(), getattr(parity_models, data)()
    training, held_out = parts["training"].batch(batch), parts["held_out"].batch(judged_by)
    found: Mapping[str, list[float]] = made.fit(
        training, validation_data=held_out, epochs=3, shuffle=False, verbose=0
    ).history
    return found


def arguments_for(model: str, data: str, strategy: str) -> list[str]:
    """Of a job with two replicas, except under OneDevice."""
    devices = ["--logical-cpus=2"] if strategy in ("Mirrored", "CentralStorage") else []
    return [*ARGUMENTS, f"--model=parity_models:{model}", f"--data=parity_models:{data}", *devices]


SHOWN = ("metrics", "several", "area_under_curve", "metric_of_maxima")
"""Models whose curves of the training are looked at, too."""
MIRRORED = ("Mirrored", ONE)
WORKERS = ("MultiWorkerMirrored", TWO)
CASES = [
    # The last batch is smaller. With batches of 8, one replica has a batch more than the other.
    *(("metrics", "weighted", 16, *run) for run in (
        ("OneDevice", ONE), MIRRORED, ("CentralStorage", ONE), WORKERS,
    )),
    *(("metric_of_maxima", "points", 16, *run) for run in (
        ("OneDevice", ONE), MIRRORED, ("CentralStorage", ONE), WORKERS,
    )),
    ("masked", "tokens", 16, *WORKERS),
    ("masked_by_weight", "tokens", 8, *MIRRORED),
    *(("normalised_penalties", "points", 8, *run) for run in (MIRRORED, WORKERS)),
    # Keras takes the losses of single outputs as means of batches, whatever size these have.
    *(("several", "pairs", 8, *run) for run in (("OneDevice", ONE), MIRRORED, ("CentralStorage", ONE), WORKERS)),
    ("area_under_curve", "yes_or_no", 24, *WORKERS),
    # These have a test_step of their own.
    ("guided_evaluation", "weighted", 16, *MIRRORED),
    ("extended_evaluation", "points", 16, *WORKERS),
    ("extended_evaluation", "points", 16, "CentralStorage", ONE),
    ("own_evaluation", "points", 8, *WORKERS),
]  # fmt: skip


@pytest.mark.parametrize(("model", "data", "batch", "strategy", "roles"), CASES, ids=str)
def test_validation_is_that_of_keras(
    folder: Path, model: str, data: str, batch: int, strategy: str, roles: Mapping[str, int]
) -> None:
    arguments = [*arguments_for(model, data, strategy), f"--batch-size={batch}", f"--steps-per-call={96 // batch}"]
    job = ran(folder, strategy=strategy, roles=roles, arguments=arguments, environ=HERE)
    measured = history(model, data, batch=batch, judged_by=batch)
    wanted = {name: values for name, values in measured.items() if name.startswith("val_")}
    # Keras shows it of the last batch alone.
    wanted.pop("val_of_batch", None)
    shown = points(folder / "logs" / "validation")
    assert {f"val_{name}" for name in shown} >= set(wanted)
    for name, values in wanted.items():
        curve = shown[name.removeprefix("val_")]
        assert list(curve) == [96 // batch * epoch for epoch in (1, 2, 3)]
        assert list(curve.values()) == pytest.approx(values, abs=1e-5), name
    # Of a metric whose result is a variable, `fit` shows for the training what the validation left in it.
    measured.pop("hits", None)
    if model in SHOWN:
        # Masks make the loss depend on the batch; these metrics are the same in the evaluation at the end, but one.
        for name, values in wanted.items() if model != "metric_of_maxima" else ():
            assert job.result[name.removeprefix("val_")] == pytest.approx(values[-1], abs=1e-5), name
        assert_training_curves(job, {name: values[-1] for name, values in measured.items() if name not in wanted})
    first, *_ = job.replicas.values()
    assert re.search(r"^step (\d+)/\1 .* val_loss \d", first.log, re.M), "the progress shows no val_loss"


OVERFITS = ("--no-shuffle", "--epochs=20", "--batch-size=16", "--steps-per-call=4", "--data=overfits:dataset")
"""At most 60 steps, 3 an epoch."""


KEEPS = ("--validate-every=3", "--keep-best=val_loss", "--checkpoint-every-steps=3", "--checkpoint-keep=2")


@pytest.mark.parametrize(("strategy", "roles"), [("OneDevice", ONE), WORKERS])
def test_the_best_step_survives_a_restart_and_is_exported(
    folder: Path, strategy: str, roles: Mapping[str, int]
) -> None:
    results, bits, records = [], [], []
    for name in ("whole", "killed"):
        at = folder / name
        arguments = [*OVERFITS, *KEEPS, "--model=overfits:drops"]
        environ = {**HERE, "DTJ_EXPORT_DIR": str(at / "export"), "DTJ_METRICS_FILE": str(at / "metrics.jsonl")}
        with Job(at, strategy=strategy, roles=roles, arguments=arguments) as job:
            if name == "killed":
                job.hold_at(36)
                job.start(environ=environ).wait_for_checkpoint(36)
                job.kill()
                job.wait()
                job.let_go()
            assert set(job.start(environ=environ).wait().values()) == {0}
        results.append(job.result)
        bits.append(tensors(job.checkpoints / "ckpt-60"))
        records.append(json.loads((job.checkpoints / "validation.json").read_text()))
    assert bits[0] == bits[1]
    assert records[0] == records[1]
    curve = points(folder / "whole" / "logs" / "validation")["loss"]
    assert list(curve) == list(range(3, 61, 3))
    measured = [json.loads(line) for line in (folder / "whole" / "metrics.jsonl").read_text().splitlines()]
    validated = {line["step"]: line["metrics"]["val_loss"] for line in measured if "val_loss" in line["metrics"]}
    assert validated == pytest.approx(curve, rel=1e-6), "by the leader alone, at the steps of TensorBoard's curve"
    assert {"loss", "examples_per_second"} <= {name for line in measured for name in line["metrics"]}
    assert measured[-1]["metrics"]["held_out/loss"] == pytest.approx(results[0]["loss"])
    best = min(curve, key=lambda step: curve[step])
    assert best < 54, "the best checkpoint would not have been pruned"
    assert results[0]["bestStep"] == results[1]["bestStep"] == best
    for result in results:
        assert result["loss"] == pytest.approx(curve[best], abs=1e-5)
        assert result["steps"] == 60
    assert f"the weights are those of step {best}, the best one by --keep-best=val_loss (min)" in job["worker-0"].log
    kept = sorted(int(path.stem.removeprefix("ckpt-")) for path in job.checkpoints.glob("ckpt-*.index"))
    assert kept == [best, 57, 60]


def test_the_best_weights_are_exported_as_they_were_validated_though_the_optimizer_averages(folder: Path) -> None:
    averages = ["--optimizer=sgd", "--learning-rate=0.05", "--optimizer-options=momentum=0.9,use_ema=true"]
    job = ran(folder, arguments=[*OVERFITS, *KEEPS, *averages, "--model=overfits:build"], environ=HERE)
    curve = points(folder / "logs" / "validation")["loss"]
    assert job.result["loss"] == pytest.approx(curve[job.result["bestStep"]], abs=1e-5)


NO_ROOM_FOR_A_WHILE = """
import os
import pathlib

class Moves:
    every_steps = 3
    place, aside = pathlib.Path("checkpoints"), pathlib.Path("aside")

    def __call__(self, step, metrics, model):
        if os.environ["DTJ_INDEX"] != "0":
            return
        if step == 6:
            self.place.rename(self.aside)
            self.place.write_text("")
        if step == 9:
            self.place.unlink()
            self.aside.rename(self.place)

def actions():
    return [Moves()]
"""


@pytest.mark.parametrize(("strategy", "roles"), [("OneDevice", ONE), WORKERS])
def test_a_best_step_that_cannot_be_saved_is_one_warning_and_the_next_one_is(
    folder: Path, strategy: str, roles: Mapping[str, int]
) -> None:
    arguments = [*OVERFITS, *KEEPS, "--epochs=4", "--model=overfits:build", "--actions=moves:actions"]
    environ = {**HERE, "PYTHONPATH": f"{folder}:{HERE['PYTHONPATH']}"}
    files = {"moves.py": NO_ROOM_FOR_A_WHILE}
    job = ran(folder, strategy=strategy, roles=roles, arguments=arguments, environ=environ, files=files)
    lines = job["worker-0"].log.splitlines()
    (warning,) = [line for line in lines if "step 6 cannot be saved" in line]
    assert "ckpt-3 stays" in warning
    assert warning.endswith("; the training goes on and tries again")
    assert [line for line in lines if line.startswith("validation: step 6/12") and "best so far, but not saved" in line]
    best = json.loads((job.checkpoints / "validation.json").read_text())["best"]["step"]
    assert job.result["bestStep"] == best
    assert best in (9, 12)


DAMAGES_THE_BEST = """
import json
import pathlib

class Damages:
    every_steps = 60

    def __call__(self, step, metrics, model):
        step = json.loads(pathlib.Path("checkpoints/validation.json").read_text())["best"]["step"]
        (data,) = pathlib.Path("checkpoints").glob(f"ckpt-{step}.data-*")
        data.write_bytes(data.read_bytes()[:100])

def actions():
    return [Damages()]
"""


def test_a_best_checkpoint_that_is_damaged_is_left_with_a_warning(folder: Path) -> None:
    arguments = [*OVERFITS, *KEEPS, "--model=overfits:drops"]
    with Job(folder, arguments=arguments, files={"damages.py": DAMAGES_THE_BEST}) as job:
        assert job.start(environ=HERE, arguments=["--actions=damages:actions"]).wait() == {"worker-0": 0}
        line = r"warning: the best checkpoint, of step \d+, cannot be read any more \(damaged: .*\); the weights"
        assert re.search(line, job["worker-0"].log)
        assert (job.result["steps"], job.result.get("bestStep")) == (60, None)
        # At the start, it is early enough for another step to be the best.
        assert job.start(environ=HERE).wait() == {"worker-0": 0}
    assert re.search(
        r"warning: the best checkpoint, \S+, cannot be used \(damaged: .*\); only later", job["worker-0"].log
    )
    assert job.result["bestStep"] == 60


def test_validations_leave_the_training_as_it_is_without_them(folder: Path) -> None:
    saved = []
    for name, more in (("with", ["--validate-every=2"]), ("without", [])):
        job = ran(folder / name, arguments=[*OVERFITS, "--model=overfits:drops", *more], environ=HERE)
        saved.append(tensors(job.checkpoints / "ckpt-60"))
    assert saved[0] == saved[1]


def test_a_best_step_by_a_metric_that_is_not_there_is_one_line(folder: Path) -> None:
    arguments = [*OVERFITS, "--model=overfits:build", "--validate-every=epoch", "--keep-best=val_auc"]
    job = ran(folder, code=2, arguments=arguments, environ=HERE)
    assert job["worker-0"].last_words == (
        "--keep-best=val_auc: there is no such metric; this model has val_accuracy, val_loss"
    )


SLOW = """
import time
import keras
import overfits
import tensorflow as tf

class Waits(keras.layers.Layer):
    def call(self, x, training=None):
        def wait(x):
            open("validates", "a").close()
            time.sleep(0.5)
            return x
        if training or isinstance(x, keras.KerasTensor):
            return x
        waited = tf.py_function(wait, [x], x.dtype)
        waited.set_shape(x.shape)
        return waited

def build():
    model = overfits.build()
    model.add(Waits())
    model.compile(optimizer=model.optimizer, loss=model.loss)
    return model

def dataset():
    made = overfits.dataset()
    return {"training": made["training"], "held_out": made["held_out"].repeat(20)}
"""


def test_sigterm_in_the_midst_of_a_validation_saves_and_the_next_start_validates_that_step(folder: Path) -> None:
    arguments = [*OVERFITS, "--model=slow:build", "--data=slow:dataset", "--validate-every=30"]
    with Job(folder, strategy="MultiWorkerMirrored", arguments=arguments, files={"slow.py": SLOW}) as job:
        job.start(environ=HERE)
        job["worker-0"].wait_for(r"batch 16 global")
        (folder / "validates").unlink(missing_ok=True)
        until = time.monotonic() + DEADLINE
        while not (folder / "validates").exists():
            assert time.monotonic() < until, "it does not validate"
            time.sleep(0.05)
        job["worker-1"].kill(signal.SIGTERM)
        assert job.wait() == {"worker-0": 42, "worker-1": 42}
        assert job.newest_checkpoint == 30
        assert "validation: step" not in job["worker-0"].log
        (folder / "slow.py").write_text(SLOW.replace("    model.add(Waits())\n", ""))
        assert job.start(environ=HERE).wait() == {"worker-0": 0, "worker-1": 0}
    steps = re.findall(r"validation: step (\d+)/60", job["worker-0"].log)
    assert steps == ["30", "60"]


@pytest.mark.parametrize("strategy", ["OneDevice", "Pipeline"])
def test_a_test_step_that_returns_what_no_metric_adds_up_is_one_line_before_the_first_step(
    folder: Path, strategy: str
) -> None:
    arguments = [
        "--epochs=1", "--batch-size=24", "--model=parity_models:evaluation_of_single_batches",
        "--data=parity_models:points",
    ]  # fmt: skip
    job = ran(folder, code=2, strategy=strategy, arguments=arguments, environ=HERE)
    assert job["worker-0"].last_words == (
        "--model=parity_models:evaluation_of_single_batches: Unshown.test_step returns loss, which no metric adds up "
        "over the batches; update a metric of the model with it"
    )
    assert "step 1/" not in job["worker-0"].log


def test_the_evaluation_of_a_pipeline_calls_the_test_step_of_the_model(folder: Path) -> None:
    arguments = [
        "--no-shuffle", "--epochs=3", "--batch-size=24", "--micro-batches=2", "--model=parity_models:own_evaluation",
        "--data=parity_models:points",
    ]  # fmt: skip
    job = ran(folder, strategy="Pipeline", arguments=arguments, environ=HERE)
    measured = history("own_evaluation", "points", batch=24, judged_by=12)
    for name in ("loss", "odds", "overlap"):
        assert job.result[name] == pytest.approx(measured[f"val_{name}"][-1], abs=1e-5)
    assert (
        "Own.test_step returns of_batch of single batches, which is not shown; update a metric of the model with it"
    ) in job["worker-0"].log


@pytest.mark.parametrize("eager", [False, True])
def test_a_long_validation_shows_between_its_batches_that_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, eager: bool
) -> None:
    """By this, the watch for stalls begins again, and a task that is asked to stop can stop."""
    import overfits
    import tensorflow as tf

    from dtj_trainer.data.held_out_examples import HeldOut
    from dtj_trainer.training import evaluation
    from dtj_trainer.training.evaluation import Validator
    from dtj_trainer.training.objective import CompiledObjective

    class Few:
        validation_examples = 5

        def validation(self, *, batch: int) -> Any:
            return overfits.dataset()["held_out"].take(5).batch(batch)

    # Each batch takes longer than the time between two agreements.
    monkeypatch.setattr(evaluation, "steps_within", lambda most, pace: 1)
    alive: list[bool] = []
    tf.config.run_functions_eagerly(eager)
    try:
        strategy = tf.distribute.OneDeviceStrategy("CPU:0")
        with strategy.scope():
            model = overfits.build()
            objective = CompiledObjective("few", model, Few(), batch=16, default=None)  # type: ignore[arg-type]
        validation_data = HeldOut(Few(), "few")  # type: ignore[arg-type]
        validator = Validator(strategy, model, objective, validation_data, batch=1, agree_on_data=[].append)
        found = validator(lambda: False, lambda: alive.append(True))
        assert len(alive) == 5
        assert found is not None
        ((inputs, labels),) = overfits.dataset()["held_out"].take(5).batch(5)
        expected = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(inputs))
        assert found["loss"] == pytest.approx(float(tf.reduce_mean(expected)), abs=1e-6)
        assert validator(lambda: len(alive) > 6, lambda: alive.append(True)) is None
        assert len(alive) == 7
    finally:
        tf.config.run_functions_eagerly(False)


def test_a_metric_that_a_layer_updates_is_named_and_not_shown(folder: Path) -> None:
    arguments = [*arguments_for("watched_layer", "points", "OneDevice"), "--batch-size=24"]
    job = ran(folder, arguments=arguments, environ=HERE)
    line = "watched_layer: size cannot be shown, because the model updates it when it is called"
    assert line in job["worker-0"].log


DRAWN = """
    import keras
    import numpy as np
    import tensorflow as tf

    class Features(keras.layers.Layer):
        def build(self, shape):
            self.drawn = tf.constant(np.random.normal(size=(shape[-1], 16)).astype("float32"))

        def call(self, inputs):
            return tf.cos(inputs @ self.drawn)

        def compute_output_shape(self, shape):
            return (shape[0], 16)

    def model():
        found = keras.Sequential([keras.layers.Input((4,)), Features(), keras.layers.Dense(1)])
        found.compile(keras.optimizers.Adam(0.02), "mse")
        return found

    def data():
        inputs = np.random.RandomState(1).standard_normal((320, 4)).astype("float32")
        examples = tf.data.Dataset.from_tensor_slices((inputs, inputs[:, :1]))
        return {"training": examples.take(256), "held_out": examples.skip(256)}
"""


def test_constants_that_a_layer_draws_are_those_of_the_training_when_it_is_evaluated_and_exported(folder: Path) -> None:
    arguments = ["--model=mine:model", "--data=mine:data", "--epochs=2", "--validate-every=1epoch"]
    job = ran(folder, arguments=arguments, files={"mine.py": DRAWN})
    validated = re.findall(r"^validation: .* val loss (\S+)", job["worker-0"].log, re.M)[-1]
    assert job.result["loss"] == pytest.approx(float(validated), rel=1e-3)
