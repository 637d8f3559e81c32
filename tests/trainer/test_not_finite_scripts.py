"""A loss that is NaN in a script of the user's: the job fails with the step and the worker, and saves nothing of it."""

import textwrap
from pathlib import Path

import numpy as np
import pytest

from trainer import cluster
from trainer.cluster import Job
from trainer.not_finite import BAD_STEP, HUGE, MINE, OVERFLOWS, saved

STRATEGIES = ("OneDevice", "MultiWorkerMirrored")
COMMON = """
import os, sys
import keras
import tensorflow as tf
import dtj_trainer
import mine

def data():
    return mine.data()["training"].batch(8)

def build():
    keras.utils.set_random_seed(0)
    model = mine.model()
    model.compile(keras.optimizers.Adam(0.001), loss="mse")
    return model
"""
LOOP = """
with dtj_trainer.session() as s:
    with s.strategy.scope():
        model = build()
    s.checkpoint(model=model, optimizer=model.optimizer)
    batches = iter(s.strategy.experimental_distribute_dataset(data().skip(s.step)))

    def learn(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 8
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(batch):
        return s.strategy.run(learn, args=batch)

    for _ in s.steps(60):
        loss = train_step(next(batches))
        if {reports}:
            s.report(loss={loss})
"""
OF_EACH = "loss"
OF_ALL = 's.strategy.reduce("SUM", loss, axis=None)'
FIT_IN_SESSION = """
with dtj_trainer.session() as s:
    with s.strategy.scope():
        model = build()
    s.checkpoint(model=model, optimizer=model.optimizer)
    model.fit(data().skip(s.step), steps_per_epoch=60, verbose=0, callbacks=[s.callback()])
"""
FIT = """
several = len(sys.argv) > 1
strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.get_strategy()
with strategy.scope():
    model = build()
saves = keras.callbacks.ModelCheckpoint("best-{epoch}.keras")
model.fit(data().take(60).repeat(), epochs=3, steps_per_epoch=20, verbose=0, callbacks=[saves])
print("the fit is over")
"""

LATE = """
import json, os, socket, time
from pathlib import Path

config = json.loads(os.environ["TF_CONFIG"])
me, late = config["task"]["index"], int(sys.argv[1])
try:
{fit}
finally:
    if me == late:
        while not Path("other-over").exists():
            time.sleep(0.02)
        host, port = config["cluster"]["worker"][1 - late].rsplit(":", 1)
        for _ in range(20):  # a process that does not wait is gone within a tenth of a second
            time.sleep(0.1)
            socket.create_connection((host, int(port)), 5).close()
        Path("other-waits").touch()
    else:
        Path("other-over").touch()
""".format(fit=textwrap.indent(FIT, "    "))


def ran(
    folder: Path, strategy: str, script: str, *arguments: str, common: str = COMMON, program: str = MINE, code: int = 1
) -> Job:
    """A job of the script that has ended so. Where it has a process alone, that starts as in a pod."""
    given = ["--checkpoint-every-steps=10", "--checkpoint-keep=2", *arguments]
    several, files = strategy == "MultiWorkerMirrored", {"mine.py": program}
    return cluster.ran(
        folder, code=code, strategy=strategy, script=common + script, arguments=given, files=files, imported=several
    )


def assert_stopped(job: Job, where: str) -> None:
    """All workers ended with this line, and the checkpoints are finite."""
    import tensorflow as tf

    for replica in job.replicas.values():
        assert replica.last_words.startswith(f"{where}; the last finite checkpoint is {job.checkpoints}/ckpt-30; ")
        assert "Traceback" not in replica.log
    assert saved(job) == [20, 30]
    reader = tf.train.load_checkpoint(str(job.checkpoints / "ckpt-30"))
    weights = [reader.get_tensor(name) for name in reader.get_variable_to_shape_map() if name.startswith("model/")]
    assert len(weights) == 3
    assert all(np.isfinite(each).all() for each in weights)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_loss_that_a_session_reports_ends_every_worker_with_1_and_the_step(folder: Path, strategy: str) -> None:
    job = ran(folder, strategy, LOOP.format(reports=True, loss=OF_ALL))
    assert_stopped(job, f"the loss is not finite at step {BAD_STEP}")


def test_a_loss_of_its_own_names_the_worker_that_reports_it(folder: Path) -> None:
    job = ran(folder, "MultiWorkerMirrored", LOOP.format(reports=True, loss=OF_EACH))
    assert_stopped(job, f"the loss is not finite at step {BAD_STEP} on worker 1")


def test_a_loss_of_the_last_step_of_a_session_that_is_not_finite_ends_it_with_1_unsaved(folder: Path) -> None:
    last = LOOP.format(reports=True, loss="loss if s.step < 2 else float('nan')").replace("s.steps(60)", "s.steps(3)")
    job = ran(folder, "OneDevice", last)
    assert job["worker-0"].last_words.startswith("the loss is not finite at step 3; ")
    assert not saved(job)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fit_in_a_session_ends_every_worker_with_1_and_names_the_worker(folder: Path, strategy: str) -> None:
    on = " on worker 1" if strategy == "MultiWorkerMirrored" else ""
    assert_stopped(ran(folder, strategy, FIT_IN_SESSION), f"the loss is not finite at step {BAD_STEP}{on}")


def test_a_session_that_reports_no_loss_saves_no_weights_that_are_not_finite(folder: Path) -> None:
    job = ran(folder, "MultiWorkerMirrored", LOOP.format(reports=False, loss=OF_ALL))
    assert_stopped(job, "the weights are not finite by step 40")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_fit_in_a_plain_script_ends_every_worker_with_1_and_keeps_the_files_of_its_callbacks(
    folder: Path, strategy: str
) -> None:
    import keras

    several = strategy == "MultiWorkerMirrored"
    job = ran(folder, strategy, FIT, *(["--", "several"] if several else []))
    where = f"the loss is not finite at step {BAD_STEP - 20} of epoch 2{' on worker 1' if several else ''}; lower "
    for replica in job.replicas.values():
        assert replica.last_words.startswith(where)
        assert "Traceback" not in replica.log
        assert "the fit is over" not in replica.log
    (best,) = folder.glob("best-*.keras")
    assert all(np.isfinite(weight).all() for weight in keras.models.load_model(best).get_weights())


@pytest.mark.parametrize("late", [0, 1])
def test_a_worker_of_a_plain_fit_stays_until_the_other_has_ended_its_fit_as_well(folder: Path, late: int) -> None:
    job = ran(folder, "MultiWorkerMirrored", LATE, "--", str(late))
    assert (folder / "other-waits").exists(), job[f"worker-{late}"].log


def test_without_the_override_a_fit_is_left_to_its_script(folder: Path) -> None:
    job = ran(folder, "OneDevice", FIT, "--keras-override=off", code=0)
    assert "the fit is over" in job["worker-0"].log


@pytest.mark.parametrize("script", [LOOP.format(reports=True, loss=OF_ALL), FIT], ids=["session", "fit"])
@pytest.mark.parametrize(
    ("program", "model", "optimizer", "line"),
    [
        # The infinite variance of a batch divides.
        (HUGE, "normalized", "Adam", "the weights are not finite "),
        (OVERFLOWS, "spoils", "RMSprop", "the weights are finite, but the optimizer's state is not finite "),
    ],
    ids=["statistics of a normalization", "state of an optimizer"],
)
def test_what_is_not_finite_where_the_loss_is_is_never_saved(
    folder: Path, program: str, model: str, optimizer: str, line: str, script: str
) -> None:
    common = COMMON.replace("mine.model", f"mine.{model}").replace("Adam", optimizer)
    job = ran(folder, "OneDevice", script, common=common, program=program)
    assert job["worker-0"].last_words.startswith(line)
    if script == FIT:
        assert [each.name for each in folder.glob("best-*.keras")] == ["best-1.keras"]
    else:
        assert job.newest_checkpoint == 30
