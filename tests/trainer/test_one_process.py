"""One process: learning, what it leaves behind, and coming back after an end that was not the last step."""

import json
import re
import signal
import time
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loopback import free_ports
from trainer.cluster import DEADLINE, PATH, Job, image_entrypoint, ran, run_interrupted_twice
from trainer.conftest import SHORT
from trainer.outcome import curves, points, tensors


def test_it_learns_the_digits_and_leaves_model_logs_checkpoint_and_result(folder: Path) -> None:
    (port,) = free_ports(1)
    arguments = ["--progress-every=0.001", "--checkpoint-every-steps=60"]
    with Job(folder, arguments=arguments, plain=True) as job:
        started = datetime.now(UTC) - timedelta(seconds=1)
        job.hold_at(60)
        began = time.monotonic()
        job.start(environ={"DTJ_STATUS_PORT": str(port)})
        first, status = _status_while_training(port, job)
        seen = time.monotonic()
        job.let_go()
        assert job.wait() == {"worker-0": 0}

    spent = status["seconds"]
    assert {"starting"} <= spent.keys() <= {"starting", "training", "checkpointing"}
    # The process began between these two moments, and a tenth of a second is the unit.
    assert seen - first - 0.3 <= sum(spent.values()) <= seen - began + 0.3
    assert (status["firstStep"], status["repeatedSteps"]) == (0, 0)
    assert status["totalSteps"] == 113
    assert 0 < status["step"] <= 113
    assert status["percent"] == 100 * status["step"] // 113
    assert 1 <= status["epoch"] <= 5
    assert all(re.fullmatch(r"[\d.]+", text) for text in status["metrics"].values())
    assert status["metrics"].keys() == {"loss", "accuracy"}
    assert started <= datetime.fromisoformat(status["updatedAt"]) <= datetime.now(UTC)

    line = r"step 113/113 \(100%\)  epoch 5/5  loss \d\.\d{4}  accuracy \d\.\d{3}  [\d.]+k? examples/s  ETA 0s\n"
    assert re.search(line, job["worker-0"].log)
    assert "batch 64 global, 64 per replica" in job["worker-0"].log
    laps = ", ".join(
        f"{lap} [0-9.]+" for lap in ("python", "import", "gate", "strategy", "data", "build", "first steps")
    )
    assert re.search(f"start [0-9.]+ s: {laps}\n", job["worker-0"].log)
    result = job.result
    assert result["accuracy"] >= 0.95
    assert result["steps"] == 113
    assert result["examplesPerSecond"] > 0
    assert result["checkpointPath"] == str(job.checkpoints / "ckpt-113")
    assert result["exportPath"] == str(folder / "export" / "1")
    assert curves(folder / "logs" / "train")["held_out/accuracy"] == [113]
    assert curves(folder / "logs" / "train")["loss"][-1] == 113
    assert _served_accuracy(folder / "export" / "1") == pytest.approx(result["accuracy"])

    with job:
        assert job.start().wait() == {"worker-0": 0}
    assert "resumed: step 113 of 113" in job["worker-0"].log
    assert job.result["accuracy"] == result["accuracy"]
    assert job.result["exportPath"] == str(folder / "export" / "2")


def _status_while_training(port: int, job: Job) -> tuple[float, dict[str, Any]]:
    """When the first status came, and the first one that knows everything."""
    first = None
    while True:
        assert job["worker-0"].process.poll() is None, "ended before its status was seen"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=DEADLINE) as answer:
                status: dict[str, Any] = json.load(answer)
            first = first or time.monotonic()
        except OSError:
            status = {}
        if first and "examplesPerSecond" in status:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE) as answer:
                assert answer.status == 200
            return first, status
        time.sleep(0.01)


def _served_accuracy(model: Path) -> float:
    """What the exported model's signature reaches on the held-out digits."""
    import tensorflow as tf

    from dtj_trainer.datasets import digits

    validation = digits().validation
    loaded = tf.saved_model.load(str(model))
    answer = loaded.signatures["serving_default"](inputs=tf.constant(validation.inputs))
    assert answer.keys() == {"probabilities", "class"}
    assert tf.reduce_sum(answer["probabilities"], axis=1).numpy() == pytest.approx(1.0, abs=1e-5)
    return float((answer["class"].numpy() == validation.labels).mean())


@pytest.mark.parametrize("strategy", ["Mirrored", "CentralStorage"])
def test_two_replicas_of_a_pod_learn_what_one_device_learns(folder: Path, alone: Job, strategy: str) -> None:
    arguments = [*SHORT, "--logical-cpus=2"]
    job = ran(folder, strategy=strategy, arguments=arguments, program=image_entrypoint(), plain=True, exports=False)
    assert "batch 48 global, 24 per replica  replicas 2" in job["worker-0"].log
    assert job.result["loss"] == pytest.approx(alone.result["loss"], abs=1e-5)


def test_central_storage_refuses_an_optimizer_that_sets_variables_in_a_step(folder: Path) -> None:
    arguments = ["--task=tabular-regression", "--optimizer=nadam", "--logical-cpus=2"]
    job = ran(folder, code=2, strategy="CentralStorage", arguments=arguments)
    assert job["worker-0"].last_words.startswith("strategy CentralStorage: the optimizer, a constraint or a layer sets")


def test_a_run_that_was_asked_to_stop_and_then_killed_ends_with_the_same_bits(folder: Path, alone: Job) -> None:
    with Job(folder, arguments=SHORT, exports=False) as job:
        run_interrupted_twice(job)
    assert tensors(job.checkpoints / "ckpt-90") == tensors(alone.checkpoints / "ckpt-90")
    assert job.result["loss"] == alone.result["loss"]


def test_a_resumed_curve_is_the_uninterrupted_one(folder: Path) -> None:
    arguments, found = [*SHORT, "--steps-per-call=1"], []
    for name, stops in (("stopped", True), ("whole", False)):
        with Job(folder / name, arguments=arguments, exports=False) as job:
            if stops:
                worker = job.start()["worker-0"]
                job.wait_for_checkpoint(40)
                worker.kill(signal.SIGTERM)
                assert worker.wait() == 42
            assert job.start().wait() == {"worker-0": 0}
        found.append(points(folder / name / "logs" / "train")["loss"])
    assert list(found[1]) == list(range(1, 91))
    assert found[0] == found[1]


def test_an_error_in_the_training_itself_is_a_traceback_and_one(folder: Path) -> None:
    environ = {"PYTHONPATH": f"{folder}:{PATH}"}
    job = ran(folder, arguments=["--epochs=1"], files={"sitecustomize.py": BROKEN}, code=1, environ=environ)
    worker = job["worker-0"]
    assert "Traceback" in worker.log
    assert worker.last_words == "sitecustomize.py:5: ZeroDivisionError: a broken loss"


BROKEN = """
import dtj_trainer.periodic

def steps_until_due(*_):
    raise ZeroDivisionError("a broken loss")

dtj_trainer.periodic.EverySteps.steps_until_due = steps_until_due
"""
