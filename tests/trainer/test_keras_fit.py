"""`--loop=fit`: Keras' Model.fit, stopped and resumed as our own loop, and refused where it is unknown."""

import re
import signal
from pathlib import Path

import pytest

from trainer.cluster import PATH, Job, run_interrupted_twice
from trainer.conftest import SHORT
from trainer.outcome import points, tensors

pytestmark = pytest.mark.trainer

TWO = {"worker": 2}
ENDS_AFTER_TWO_EPOCHS = """
import keras

class Ends(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs):
        print("epoch", epoch, "loss", logs["loss"], "accuracy", logs["accuracy"])
        self.model.stop_training = epoch == 1

def callbacks():
    return [Ends()]
"""
AVERAGES = """
import keras

def build():
    layers, glorot = keras.layers, keras.initializers.GlorotUniform
    model = keras.Sequential(
        [layers.Input((8, 8, 1)), layers.Flatten(), layers.Dense(10, kernel_initializer=glorot(1))]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model

class Tells(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        print("begins", self.params["epochs"], self.params["steps"])

    def on_epoch_end(self, epoch, logs=None):
        print("epoch", epoch)

    def on_train_end(self, logs=None):
        print("ends", sorted(logs), len(self.model.history.epoch))

def callbacks():
    return [Tells()]
"""
NEXT_KERAS = """
import keras

keras.__version__ = "3.16.0"
"""


def test_fit_that_is_stopped_and_killed_ends_with_the_bits_of_our_own_loop(folder: Path, together: Job) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", roles=TWO, arguments=[*SHORT, "--loop=fit"], exports=False) as job:
        run_interrupted_twice(job)
    assert tensors(job.checkpoints / "ckpt-90") == tensors(together.checkpoints / "ckpt-90")


def test_a_resumed_curve_is_the_uninterrupted_one(folder: Path, alone: Job) -> None:
    arguments = [*SHORT, "--loop=fit", "--steps-per-call=1"]
    with Job(folder / "stopped", strategy="OneDevice", roles={"worker": 1}, arguments=arguments, exports=False) as job:
        job.hold_at(40)
        worker = job.start()["worker-0"]
        job.wait_for_checkpoint(40)
        worker.kill(signal.SIGTERM)
        job.let_go()
        assert worker.wait() == 42
        assert job.start().wait() == {"worker-0": 0}
    arguments = [*SHORT, "--steps-per-call=1"]
    with Job(folder / "whole", strategy="OneDevice", roles={"worker": 1}, arguments=arguments, exports=False) as whole:
        assert whole.start().wait() == {"worker-0": 0}
    curves = [points(folder / name / "logs" / "train")["loss"] for name in ("stopped", "whole")]
    assert list(curves[1]) == list(range(1, 91))
    assert curves[0] == curves[1]


def test_a_users_callback_sees_the_same_epochs_on_every_worker_and_may_end_the_training(folder: Path) -> None:
    arguments = [*SHORT, "--loop=fit", "--callbacks=mine:callbacks"]
    with Job(folder, strategy="MultiWorkerMirrored", roles=TWO, arguments=arguments, exports=False) as job:
        (folder / "mine.py").write_text(ENDS_AFTER_TWO_EPOCHS)
        assert job.start().wait() == {"worker-0": 0, "worker-1": 0}
    seen = [re.findall(r"^epoch \d loss .*$", replica.log, re.M) for replica in job.replicas.values()]
    assert seen[0] == seen[1]
    assert [line.split(" loss ")[0] for line in seen[0]] == ["epoch 0", "epoch 1"]
    assert job.result["steps"] == 60
    assert job.newest_checkpoint == 60


def test_callbacks_see_one_training_and_averages_are_put_into_the_weights_at_its_end_alone(folder: Path) -> None:
    # 44 steps: two epochs of 15, and a last one of 14.
    common = ["--epochs=3", "--batch-size=100", "--model=mine:build", "--dataset=digits"]
    for loop in (["--loop=custom"], ["--loop=fit", "--callbacks=mine:callbacks"]):
        at = folder / loop[0][2:]
        with Job(at, strategy="OneDevice", roles={"worker": 1}, arguments=[*common, *loop]) as job:
            (at / "mine.py").write_text(AVERAGES)
            assert job.start().wait() == {"worker-0": 0}
    lines = re.findall(r"^(?:begins|epoch|ends).*$", job["worker-0"].log, re.M)
    assert lines == ["begins 3 15", "epoch 0", "epoch 1", "epoch 2", "ends ['accuracy', 'loss'] 3"]
    saved = [tensors(folder / loop / "checkpoints" / "ckpt-44") for loop in ("loop=custom", "loop=fit")]
    assert saved[0] == saved[1]


def test_a_keras_that_fit_is_not_known_to_work_with_is_one_line_that_says_what_to_do(folder: Path) -> None:
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=["--loop=fit"]) as job:
        (folder / "sitecustomize.py").write_text(NEXT_KERAS)
        worker = job.start(environ={"PYTHONPATH": f"{folder}:{PATH}"})["worker-0"]
        assert worker.wait() == 2
    assert re.fullmatch(
        r"--loop=fit: Keras 3.16.0 is installed, and fit is only known to work with Keras 3.15; "
        r"use --loop=custom, or install keras==3.15.\*",
        worker.last_words,
    )


STOPS_ON_ONE = """
import json
import os
import keras

class Stops(keras.callbacks.Callback):
    def HOOK(self, place, logs=None):
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            self.model.stop_training = place >= 1

def callbacks():
    return [Stops()]
"""


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_epoch_end"])
def test_a_callback_that_stops_on_one_worker_stops_all_at_the_same_step(folder: Path, hook: str) -> None:
    """The clocks of two workers differ, so that a time limit by them does."""
    arguments = [
        "--task=tabular-classification", "--dataset=wine", "--batch-size=16", "--epochs=8", "--loop=fit",
        "--steps-per-call=1", "--callbacks=stops:callbacks", "--stall-timeout=60",
    ]  # fmt: skip
    with Job(folder, strategy="MultiWorkerMirrored", roles=TWO, arguments=arguments, exports=False) as job:
        (folder / "stops.py").write_text(STOPS_ON_ONE.replace("HOOK", hook))
        assert job.start().wait() == {"worker-0": 0, "worker-1": 0}
    assert job.result["steps"] == {"on_train_batch_end": 2, "on_epoch_end": 18}[hook]
    assert "a callback has stopped the training on some of the workers: all stop" in job["worker-0"].log
