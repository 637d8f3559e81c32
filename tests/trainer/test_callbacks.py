"""The callback in the `fit` of either Keras, in an image that has the launcher and nothing else of ours."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopback import free_ports
from trainer.cluster import DEADLINE, SOURCE, Job, inherited, ran

SCRIPT = Path(__file__).resolve().parent / "scripts" / "shown.py"


def fitted(folder: Path, library: str, port: str, *paths: str) -> subprocess.CompletedProcess[str]:
    """A script that has but the launcher's package, after its two fits."""
    shutil.copy(SCRIPT, folder)
    shutil.copytree(SOURCE / "dtj_launch", folder / "dtj_launch")
    environ = {**inherited(), "DTJ_STATUS_PORT": port, "TF_CPP_MIN_LOG_LEVEL": "3"}
    del environ["PYTHONPATH"]
    return subprocess.run(
        [sys.executable, folder / SCRIPT.name, library, *paths],
        env=environ, cwd=folder, capture_output=True, text=True, timeout=DEADLINE,
    )  # fmt: skip


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_the_package_alone_shows_the_fit_of_either_keras(tmp_path: Path, library: str) -> None:
    (port,) = free_ports(1)
    ended = fitted(tmp_path, library, str(port), "/status", "/metrics", "/healthz")
    assert ended.returncode == 0, ended.stderr
    assert "warning" not in ended.stderr
    for shown in ended.stdout.split("fitted\n")[:2]:
        # The second begins in the middle, as after a restart.
        status, *exposition, _ = (line for line in shown.splitlines() if line)
        status_document = json.loads(status)
        assert (status_document["step"], status_document["totalSteps"], status_document["percent"]) == (18, 18, 100)
        assert status_document["epoch"] == 3
        assert status_document["seconds"]["starting"] > 0
        assert (status_document["firstStep"], status_document["repeatedSteps"]) == (0, 0)
        shown_metrics = {"loss", "mae", "f1_score_0", "f1_score_1"}
        assert shown_metrics | {f"val_{name}" for name in shown_metrics} == status_document["metrics"].keys()
        assert "dtj_training_step 18" in exposition
        (loss,) = (line for line in exposition if line.startswith('dtj_training_metric{name="loss"} '))
        assert float(loss.rpartition(" ")[2]) == pytest.approx(float(status_document["metrics"]["loss"]), rel=1e-3)
        assert 'dtj_training_phase{phase="Training"} 1' in exposition


def test_a_port_that_is_none_is_one_warning(tmp_path: Path) -> None:
    ended = fitted(tmp_path, "keras", "http")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("the progress is not shown: ValueError: ") == 1


def test_a_script_of_the_trainers_shows_on_the_trainers_port(folder: Path) -> None:
    (port,) = free_ports(1)
    text = (
        "import urllib.request\nfrom dtj_launch import progress\n"
        "progress.report(step=5, total=10, epoch=1, metrics={'loss': 0.5}, last_checkpoint=4)\n"
        f"print(urllib.request.urlopen('http://127.0.0.1:{port}/status').read().decode())\n"
    )
    printed = ran(folder, script=text, environ={"DTJ_STATUS_PORT": str(port)})["worker-0"].log
    assert "warning" not in printed
    status_document = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    assert status_document.pop("updatedAt")
    status_document.pop("seconds")
    assert status_document == {
        "phase": "Training", "step": 5, "totalSteps": 10, "epoch": 1, "percent": 50, "metrics": {"loss": "0.5"},
        "lastCheckpointStep": 4, "attempt": 0, "firstStep": 5, "repeatedSteps": 0,
    }  # fmt: skip


WORKERS_FIT = """
import os, urllib.request
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
import {library} as keras
from dtj_trainer.callbacks import DTJCallback

class Look(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        url = "http://127.0.0.1:" + os.environ["DTJ_STATUS_PORT"] + "/status"
        with urllib.request.urlopen(url, timeout=60) as answer:
            print("shown", answer.read().decode(), flush=True)

with strategy.scope():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(keras.optimizers.SGD(0.0), loss="mse", metrics=["mae"])
ones = np.ones((96, 4), "float32")
model.fit(ones, ones[:, :1], batch_size=16, verbose=0, callbacks=[DTJCallback(), Look()])
"""


@pytest.mark.parametrize("library", ["keras", "tf_keras"])
def test_in_the_middle_of_an_epoch_the_metrics_of_workers_are_means_and_not_their_sum(
    folder: Path, library: str
) -> None:
    ports, text = free_ports(2), WORKERS_FIT.format(library=library)
    with Job(folder, strategy="MultiWorkerMirrored", script=text, imported=True) as job:
        for index, port in enumerate(ports):
            job.start(f"worker-{index}", environ={"DTJ_STATUS_PORT": str(port)})
        assert job.wait() == {"worker-0": 0, "worker-1": 0}
    shown = [line for line in job["worker-0"].log.splitlines() if line.startswith("shown ")]
    assert shown
    for line in shown:
        metrics = json.loads(line.removeprefix("shown "))["metrics"]
        assert (float(metrics["loss"]), float(metrics["mae"])) == (1.0, 1.0)
