"""Nothing waits forever: data that give no batch end the job, and the worker that is late is named."""

from pathlib import Path

import pytest

from trainer.cluster import Job

pytestmark = pytest.mark.trainer

BLOCKS = """
import os
import time

import keras
import numpy as np
import tensorflow as tf

def model():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    return model

def wait(number):
    if number == 399 and os.environ["DTJ_INDEX"] == "{index}":
        time.sleep(3600)
    return number

def data():
    def example(number):
        number = tf.numpy_function(wait, [number], tf.int64)
        number.set_shape([])
        value = tf.cast(number, tf.float32)
        return tf.stack([value, value]), value[tf.newaxis]

    training = tf.data.Dataset.range(400).map(example)
    return {{"training": training, "held_out": training.take(8)}}
"""


@pytest.mark.parametrize("loop", ["custom", "fit"])
def test_data_that_block_on_one_worker_end_the_job_and_name_the_worker(folder: Path, loop: str) -> None:
    arguments = [
        "--model=mine:model", "--data=mine:data", "--batch-size=8", "--epochs=1", "--no-shuffle", "--stall-timeout=8",
        f"--loop={loop}",
    ]  # fmt: skip
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=60"]
        (folder / "mine.py").write_text(BLOCKS.format(index=1))
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    late = "no step was finished for 8 s (--stall-timeout): "
    assert job["worker-1"].last_words.startswith(f"{late}waits in a step, after ")
    assert job["worker-0"].last_words.startswith(f"{late}worker 1 waits in a step, after ")


def test_data_that_block_in_a_job_of_one_process_end_it(folder: Path) -> None:
    arguments = [
        "--model=mine:model", "--data=mine:data", "--batch-size=8", "--epochs=1", "--no-shuffle", "--stall-timeout=8",
    ]  # fmt: skip
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=8"]
        (folder / "mine.py").write_text(BLOCKS.format(index=0))
        assert job.start().wait() == {"worker-0": 1}
    assert job["worker-0"].last_words.startswith("no step was finished for 8 s (--stall-timeout): waits in a step")


def test_data_that_are_never_ready_on_one_worker_end_the_job(folder: Path) -> None:
    arguments = ["--model=mine:model", "--data=mine:data", "--batch-size=8", "--stall-timeout=8"]
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=30"]
        blocks = BLOCKS.format(index=1).replace("def data():", "def data():\n    wait(399)")
        (folder / "mine.py").write_text(blocks)
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    assert job["worker-1"].last_words == "the data are not ready after 30 s (--stall-timeout)"
    assert "worker 1 not reachable" in job["worker-0"].last_words


def test_who_is_late_is_who_does_not_answer_then_who_has_fewer_batches_then_who_has_not_begun() -> None:
    from dtj_trainer.config.cluster import WORKER, Task
    from dtj_trainer.distribution.stall_watch import latest

    one, two, three = (Task(WORKER, index) for index in range(3))
    assert latest({one: (4, True), two: None, three: (3, True)}) == [two]
    assert latest({one: (4, True), two: (4, True), three: (3, True)}) == [three]
    assert latest({one: (4, True), two: (4, False), three: (4, True)}) == [two]
    assert latest({one: (4, True), two: (4, True)}) == []


SCRIPT = """
import os
import time

import keras
import numpy as np
import tensorflow as tf

import dtj_trainer

def wait(number):
    if number == 399 and os.environ["DTJ_INDEX"] == "1":
        time.sleep(3600)
    return number

def data():
    def example(number):
        number = tf.numpy_function(wait, [number], tf.int64)
        number.set_shape([])
        value = tf.cast(number, tf.float32) / 400
        return tf.stack([value, value]), value[tf.newaxis]

    # Its length is unknown: the workers ask each other at each batch whether there is one.
    return tf.data.Dataset.range(400).filter(lambda number: number >= 0).map(example).batch(8)

def build():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    return model
"""
IN_SESSION = """
with dtj_trainer.session() as s:
    with s.strategy.scope():
        model = build()
    s.checkpoint(model=model)
    batches = iter(s.strategy.experimental_distribute_dataset(data()))

    def learn(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((model(x, training=True) - y) ** 2) / 8
        model.optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    @tf.function
    def train_step(batch):
        return s.strategy.reduce("SUM", s.strategy.run(learn, args=batch), axis=None)

    for _ in s.steps(100):
        s.report(loss=train_step(next(batches)))
"""
IN_FIT = """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = build()
model.fit(data(), epochs=2, verbose=0)
"""
LATE = {
    "session": (IN_SESSION, "waits for its data, or is in the script's own code, in step 50"),
    "fit": (IN_FIT, "waits for its data, or is in the script's own code, in a step of fit, evaluate or predict"),
}


@pytest.mark.parametrize("kind", LATE)
def test_data_that_block_on_one_worker_of_a_script_end_the_job_and_name_the_worker(folder: Path, kind: str) -> None:
    script, doing = LATE[kind]
    arguments = ["--script=mine.py", "--stall-timeout=8"]
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments, imported=True) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=60"]
        (folder / "mine.py").write_text(SCRIPT + script)
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    stalled = "no step was finished for 8 s (--stall-timeout): "
    assert job["worker-1"].last_words == f"{stalled}{doing}"
    assert job["worker-0"].last_words == f"{stalled}worker 1 {doing}"


SLOW = """
import time
import dtj_trainer

time.sleep(8)
with dtj_trainer.session() as s:
    s.checkpoint()
    for step in s.steps(1):
        for _ in range(16):
            time.sleep(0.5)
            s.report()
    s.report()
    time.sleep(8)
print("the script is over")
"""


def test_a_script_that_shows_progress_or_is_outside_of_its_steps_is_not_ended(folder: Path) -> None:
    arguments = ["--script=mine.py", "--stall-timeout=6", "--start-timeout=6"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments, imported=True) as job:
        (folder / "mine.py").write_text(SLOW)
        assert job.start().wait() == {"worker-0": 0}
    assert "the script is over" in job["worker-0"].log


def test_a_session_that_hangs_in_a_step_is_ended(folder: Path) -> None:
    arguments = ["--script=mine.py", "--stall-timeout=2", "--start-timeout=2"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments, imported=True) as job:
        (folder / "mine.py").write_text(SLOW.replace("            s.report()\n", "            time.sleep(3600)\n"))
        assert job.start().wait() == {"worker-0": 1}
    doing = "waits for its data, or is in the script's own code, in step 1"
    assert job["worker-0"].last_words == f"no step was finished for 2 s (--stall-timeout): {doing}"
