"""Nothing waits forever: data that give no batch end the job, and the worker that is late is named."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer import endings
from trainer.cluster import Job

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

def stall():
    open("stalls", "w").close()
    time.sleep(3600)

def wait(number):
    if number == 399 and os.environ["DTJ_INDEX"] == "{index}":
        stall()
    return number

def example_by(look):
    def example(number):
        number = tf.numpy_function(look, [number], tf.int64)
        number.set_shape([])
        value = tf.cast(number, tf.float32) / 400
        return tf.stack([value, value]), value[tf.newaxis]
    return example

def data():
    training = tf.data.Dataset.range(400).map(example_by(wait))
    return {{"training": training, "held_out": training.take(8)}}
"""


SMALL = ("--model=mine:model", "--data=mine:data", "--batch-size=8", "--epochs=1", "--stall-timeout=8")
IN_ORDER = (*SMALL, "--no-shuffle", "--start-timeout=60")
SCRIPT = ("--script=mine.py", "--stall-timeout=8", "--start-timeout=60")


def stalled(folder: Path, text: str, *arguments: str, strategy: str = "OneDevice", **options: Any) -> Job:
    """A job of this program, in which 8 s without a step are too long."""
    return Job(folder, strategy=strategy, arguments=arguments, files={"mine.py": text}, imported=True, **options)


def test_data_that_block_on_one_worker_end_the_job_and_name_the_worker(folder: Path) -> None:
    text = BLOCKS.format(index=1)
    with stalled(folder, text, *IN_ORDER, strategy="MultiWorkerMirrored", patient=True) as job:
        endings.check(job.start(), "data_that_block")


def test_held_out_data_that_block_on_one_worker_end_the_job_and_name_the_worker(folder: Path) -> None:
    """Both are in the same validation, after the same number of steps."""
    data = """
from pathlib import Path

def once(number):
    if os.environ["DTJ_INDEX"] == "1" and list(Path("checkpoints").glob("*.index")):
        stall()
    return number

def held_out():
    return {"training": data()["training"], "held_out": tf.data.Dataset.range(32).map(example_by(once))}
"""
    arguments = [
        *IN_ORDER, "--data=mine:held_out", "--epochs=2", "--validate-every=10", "--checkpoint-every-steps=5",
        "--start-timeout=30",
    ]  # fmt: skip
    with stalled(folder, BLOCKS.format(index="none") + data, *arguments, strategy="MultiWorkerMirrored") as job:
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    late = "no step was finished for 8 s (--stall-timeout): "
    assert job["worker-1"].last_words.startswith(f"{late}is outside of its steps, as in a callback or a validation, ")
    assert job["worker-0"].last_words.startswith(f"{late}worker 1 is outside of its steps, ")


def test_held_out_data_that_block_the_evaluator_end_it(folder: Path) -> None:
    blocks = BLOCKS.format(index=0).replace("number == 399", "os.path.exists('blocks')")
    blocks = blocks.replace("DTJ_INDEX", "DTJ_ROLE").replace('== "0"', '== "evaluator"')
    roles = {"worker": 1, "evaluator": 1}
    with stalled(folder, blocks, *SMALL, "--start-timeout=8", roles=roles, exports=False) as job:
        job.start("evaluator-0")["evaluator-0"].wait_for("evaluator: watching")
        (folder / "blocks").touch()
        assert job.start("worker-0").wait() == {"evaluator-0": 1, "worker-0": 0}
    assert job["evaluator-0"].last_words.startswith("no batch of the held-out examples was evaluated for 8 s (--stall-")


def test_data_that_block_in_a_job_of_one_process_end_it(folder: Path) -> None:
    with stalled(folder, BLOCKS.format(index=0), *IN_ORDER, "--start-timeout=8", patient=True) as job:
        assert job.start().wait() == {"worker-0": 1}
    assert job["worker-0"].last_words.startswith("no step was finished for 8 s (--stall-timeout): waits in a step")


STUCK = """
import keras
import tensorflow as tf

def stuck(value):
    queue = tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shapes=[[]])
    with tf.control_dependencies([tf.io.write_file("stalls", "")]):
        never = tf.raw_ops.QueueDequeueV2(handle=queue, component_types=[tf.float32])[0]
    return value + tf.ensure_shape(never, [])

class Blocks(keras.layers.Layer):
    def compute_output_shape(self, shape):
        return shape

    def call(self, inputs):
        return tf.cond(tf.reduce_max(tf.abs(inputs)) > 1000.0, lambda: stuck(inputs), lambda: inputs)

def dense(library):
    model = library.Sequential([library.Input((2,)), library.layers.Dense(3), library.layers.Dense(1)])
    model.compile(loss="mse")
    return model

def model():
    first = keras.layers.Dense(3, kernel_initializer="ones")
    model = keras.Sequential([keras.Input((2,)), first, Blocks(name="blocks"), keras.layers.Dense(1)])
    model.compile(loss="mse")
    return model

def tf_keras_model():
    import tf_keras
    return dense(tf_keras)

def keras_model():
    return dense(keras)

def examples(last):
    value = lambda number: last(number) if number == 399 else 0.0
    data = tf.data.Dataset.range(400).map(lambda number: (tf.ones(2) * value(number), tf.zeros(1)))
    return {"training": data, "held_out": data.take(8)}

def data():
    return examples(lambda number: 1e6)

def stuck_data():
    return examples(lambda number: stuck(0.0))
"""


@pytest.mark.parametrize(
    ("strategy", "options", "name"),
    [
        ("Pipeline", ("--stages=blocks",), "stage_that_hangs"),
        ("Pipeline", ("--model=mine:keras_model", "--data=mine:stuck_data"), "data_that_block_under_pipeline"),
        (
            "ParameterServer",
            ("--model=mine:tf_keras_model", "--data=mine:stuck_data"),
            "data_that_block_under_parameter_server",
        ),
    ],
)
def test_who_hangs_in_a_step_is_named_where_others_serve(
    folder: Path, strategy: str, options: tuple[str, ...], name: str
) -> None:
    with stalled(folder, STUCK, *IN_ORDER, *options, strategy=strategy, patient=True) as job:
        endings.check(job.start(), name)


MODELS = """
def wait_for_ever():
    # The trainer tries the function before, outside of the strategy. Pipeline makes its variables without one.
    times.append(1)
    if os.environ["DTJ_INDEX"] == "{index}" and os.environ["DTJ_ROLE"] != "ps" and len(times) == {time}:
        time.sleep(3600)

times = []

def before():
    wait_for_ever()
    return model()

def between():
    first = keras.layers.Dense(3)
    first.build((None, 2))
    wait_for_ever()
    found = keras.Sequential([keras.Input((2,)), first, keras.layers.Dense(1)])
    found.compile(loss="mse")
    return found
"""


@pytest.mark.parametrize(("function", "index"), [("before", 1), ("between", 0)])
def test_a_model_that_is_never_ready_on_one_worker_ends_the_job_and_names_the_worker(
    folder: Path, function: str, index: int
) -> None:
    text = BLOCKS.format(index="none") + MODELS.format(index=index, time=2)
    arguments = [*SMALL, f"--model=mine:{function}", "--start-timeout=20"]
    with stalled(folder, text, *arguments, strategy="MultiWorkerMirrored") as job:
        late, other = f"worker-{index}", f"worker-{1 - index}"
        assert job.start().wait() == {late: 1, other: 75}
    line = "the model is not ready after 40 s (--stall-timeout): "
    doing = f"is in {function}() of --model=mine:{function}"
    assert job[late].last_words == f"{line}{doing}"
    assert job[other].last_words == f"{line}worker {index} {doing}"


LIBRARY = {"ParameterServer": "tf_keras"}


@pytest.mark.parametrize(("strategy", "time"), [("OneDevice", 1), ("ParameterServer", 2), ("Pipeline", 2)])
def test_a_model_that_is_never_ready_ends_the_task_that_builds_it(folder: Path, strategy: str, time: int) -> None:
    """It is built twice: to try it, and to train it."""
    text = BLOCKS.format(index="none") + MODELS.format(index=0, time=time)
    text = text.replace("import keras", f"import {LIBRARY.get(strategy, 'keras')} as keras")
    with stalled(folder, text, *SMALL, "--model=mine:before", "--start-timeout=20", strategy=strategy) as job:
        assert job.start()[job.leader].wait() == 1
    doing = "is in before() of --model=mine:before"
    assert job[job.leader].last_words == f"the model is not ready after {20 * time} s (--stall-timeout): {doing}"


@pytest.mark.parametrize("strategy", ["MultiWorkerMirrored", "ParameterServer", "Pipeline"])
def test_data_that_are_never_ready_on_one_task_end_the_job(folder: Path, strategy: str) -> None:
    workers = strategy == "MultiWorkerMirrored"
    text = BLOCKS.format(index=int(workers)).replace("def data():", "def data():\n    wait(399)")
    text = text.replace("import keras", f"import {LIBRARY.get(strategy, 'keras')} as keras")
    with stalled(folder, text, *SMALL, "--start-timeout=20", strategy=strategy) as job:
        late = "worker-1" if workers else job.leader
        assert job.start()[late].wait() == 1
        if workers:
            assert job["worker-0"].wait() == 75
            assert "worker 1 not reachable" in job["worker-0"].last_words
    doing = "is in data() of --data=mine:data"
    assert job[late].last_words == f"the data are not ready after 20 s without progress (--stall-timeout): {doing}"


def test_who_is_late_is_who_does_not_answer_then_who_has_fewer_batches_then_who_has_not_begun() -> None:
    from dtj_trainer.config.cluster import WORKER, Task
    from dtj_trainer.distribution.stall_watch import State, latest

    def state(count: int, *, waits: bool) -> State:
        return State(count=count, waits=waits, doing=f"is at {count}")

    one, two, three = (Task(WORKER, index) for index in range(3))
    fourth, third = state(4, waits=True), state(3, waits=True)
    assert latest({one: fourth, two: None, three: third}) == {two: "does not answer"}
    assert latest({one: fourth, two: state(4, waits=False), three: third}) == {three: "is at 3"}
    assert latest({one: fourth, two: state(4, waits=False), three: fourth}) == {two: "is at 4"}
    assert latest({one: fourth, two: fourth}) == {}
    assert latest({one: state(4, waits=False), two: state(4, waits=False)}) == {}


def test_an_evaluator_does_not_wait_for_the_workers() -> None:
    from dtj_trainer.config.cluster import EVALUATOR, Task
    from dtj_trainer.config.parsing import parse
    from dtj_trainer.distribution.stall_watch import State, late_tasks

    task = {"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}}
    config = parse(["--script=train.py", "--strategy=MultiWorkerMirrored"], {"TF_CONFIG": json.dumps(task)})
    state = State(count=0, waits=True, doing="is in a step")
    assert late_tasks(config, state, kind="", answer_seconds=1) == {Task(EVALUATOR, 0): "is in a step"}


OF_SCRIPT = """
import dtj_trainer

def batches_of_data():
    # Its length is unknown: the workers ask each other at each batch whether there is one.
    return tf.data.Dataset.range(400).filter(lambda number: number >= 0).map(example_by(wait)).batch(8)

def build():
    made = model()
    made.compile("sgd", loss="mse")
    return made
"""
IN_SESSION = """
with dtj_trainer.session() as s:
    with s.strategy.scope():
        found = build()
    s.checkpoint(model=found)
    batches = iter(s.strategy.experimental_distribute_dataset(batches_of_data()))

    def learn(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((found(x, training=True) - y) ** 2) / 8
        found.optimizer.apply_gradients(zip(tape.gradient(loss, found.trainable_variables), found.trainable_variables))
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
    found = build()
found.fit(batches_of_data(), epochs=2, verbose=0)
"""
LATE = {
    "session": (IN_SESSION, "waits for its data, or is in the script's own code, in step 50"),
    "fit": (IN_FIT, "waits for its data, or is in the script's own code, in a step of fit, evaluate or predict"),
}


@pytest.mark.parametrize("kind", LATE)
def test_data_that_block_on_one_worker_of_a_script_end_the_job_and_name_the_worker(folder: Path, kind: str) -> None:
    script, doing = LATE[kind]
    text = BLOCKS.format(index=1) + OF_SCRIPT + script
    with stalled(folder, text, *SCRIPT, strategy="MultiWorkerMirrored", patient=True) as job:
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    line = "no step was finished for 8 s (--stall-timeout): "
    assert job["worker-1"].last_words == f"{line}{doing}"
    assert job["worker-0"].last_words == f"{line}worker 1 {doing}"


@pytest.mark.parametrize(
    ("arguments", "first", "limits"),
    [
        (["--stall-timeout=8", "--start-timeout=60"], 60, [8, 8, 8]),
        (["--stall-timeout=90", "--start-timeout=60"], 90, [90, 90, 90]),
        ([], math.inf, [1800, 4000, 4000]),
    ],
)
def test_without_the_option_a_step_of_a_script_may_take_ten_times_the_longest_one_before_and_the_first_any_time(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], first: float, limits: list[float]
) -> None:
    from dtj_trainer.config.parsing import parse
    from dtj_trainer.distribution import stall_watch
    from dtj_trainer.process.watchdog import Watchdog

    fed: list[float] = []

    def feed(watch: Watchdog, seconds: float | None = None) -> None:
        fed.append(watch.seconds if seconds is None else seconds)

    monkeypatch.setattr(Watchdog, "feed", feed)
    clock = iter([0.0, 30.0, 430.0, 431.0])
    monkeypatch.setattr(stall_watch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    watch = stall_watch.loop_watch(
        parse(arguments, {}), lambda: stall_watch.sums_begun(None, "a step"), kind="-session"
    )
    watch.feed()
    watch.begin()
    for _ in limits:
        watch.done()
    watch.rest()
    watch.feed()
    assert fed == [first, *limits]


SLOW = """
import time
import dtj_trainer

time.sleep(20)
with dtj_trainer.session() as s:
    s.checkpoint()
    for step in s.steps(1):
        for _ in range(40):
            time.sleep(0.5)
            s.report()
    s.report()
    time.sleep(20)
print("the script is over")
"""


SLOWLY = (*SCRIPT, "--stall-timeout=15", "--start-timeout=15")


def test_a_script_that_shows_progress_or_is_outside_of_its_steps_is_not_ended(folder: Path) -> None:
    with stalled(folder, SLOW, *SLOWLY) as job:
        assert job.start().wait() == {"worker-0": 0}
    assert "the script is over" in job["worker-0"].log


def test_a_session_that_hangs_in_a_step_is_ended(folder: Path) -> None:
    hangs = SLOW.replace("            s.report()\n", "            time.sleep(3600)\n")
    with stalled(folder, hangs.replace("time.sleep(20)\nwith", "with"), *SLOWLY) as job:
        assert job.start().wait() == {"worker-0": 1}
    doing = "waits for its data, or is in the script's own code, in step 1"
    assert job["worker-0"].last_words == f"no step was finished for 15 s (--stall-timeout): {doing}"
