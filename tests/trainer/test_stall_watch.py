"""Nothing waits forever: data that give no batch end the job, and the worker that is late is named."""

from collections.abc import Mapping
from pathlib import Path

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

def data():
    def example(number):
        number = tf.numpy_function(wait, [number], tf.int64)
        number.set_shape([])
        value = tf.cast(number, tf.float32)
        return tf.stack([value, value]), value[tf.newaxis]

    training = tf.data.Dataset.range(400).map(example)
    return {{"training": training, "held_out": training.take(8)}}
"""


def test_data_that_block_on_one_worker_end_the_job_and_name_the_worker(folder: Path) -> None:
    arguments = [
        "--model=mine:model", "--data=mine:data", "--batch-size=8", "--epochs=1", "--no-shuffle", "--stall-timeout=8",
    ]  # fmt: skip
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments, patient=True) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=60"]
        (folder / "mine.py").write_text(BLOCKS.format(index=1))
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
    def example(number):
        number = tf.numpy_function(once, [number], tf.int64)
        number.set_shape([])
        value = tf.cast(number, tf.float32)
        return tf.stack([value, value]), value[tf.newaxis]

    return {"training": data()["training"], "held_out": tf.data.Dataset.range(32).map(example)}
"""
    arguments = [
        "--model=mine:model", "--data=mine:held_out", "--batch-size=8", "--epochs=2", "--no-shuffle",
        "--stall-timeout=8", "--validate-every=10", "--checkpoint-every-steps=5",
    ]  # fmt: skip
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=30"]
        (folder / "mine.py").write_text(BLOCKS.format(index="none") + data)
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    late = "no step was finished for 8 s (--stall-timeout): "
    assert job["worker-1"].last_words.startswith(f"{late}is outside of its steps, as in a callback or a validation, ")
    assert job["worker-0"].last_words.startswith(f"{late}worker 1 is outside of its steps, ")


def test_held_out_data_that_block_the_evaluator_end_it(folder: Path) -> None:
    blocks = BLOCKS.format(index=0).replace("number == 399", "os.path.exists('blocks')")
    blocks = blocks.replace("DTJ_INDEX", "DTJ_ROLE").replace('== "0"', '== "evaluator"')
    arguments = ["--model=mine:model", "--data=mine:data", "--batch-size=8", "--epochs=1", "--stall-timeout=8"]
    roles = {"worker": 1, "evaluator": 1}
    with Job(folder, strategy="OneDevice", roles=roles, arguments=arguments, exports=False) as job:
        (folder / "mine.py").write_text(blocks)
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=8"]
        job.start("evaluator-0")["evaluator-0"].wait_for("evaluator: watching")
        (folder / "blocks").touch()
        assert job.start("worker-0").wait() == {"evaluator-0": 1, "worker-0": 0}
    assert job["evaluator-0"].last_words.startswith("no batch of the held-out examples was evaluated for 8 s (--stall-")


def test_data_that_block_in_a_job_of_one_process_end_it(folder: Path) -> None:
    arguments = [
        "--model=mine:model", "--data=mine:data", "--batch-size=8", "--epochs=1", "--no-shuffle", "--stall-timeout=8",
    ]  # fmt: skip
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments, patient=True) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=8"]
        (folder / "mine.py").write_text(BLOCKS.format(index=0))
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


def run_until_stalled(folder: Path, *options: str, strategy: str, roles: Mapping[str, int], name: str) -> None:
    """Runs a job on `STUCK`, and checks that it ends as expected."""
    arguments = [*options, "--batch-size=8", "--epochs=1", "--no-shuffle", "--stall-timeout=8"]
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments, patient=True) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=60"]
        (folder / "mine.py").write_text(STUCK)
        endings.check(job.start(), name)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("--model=mine:model", "--data=mine:data", "--stages=blocks"), "stage_that_hangs"),
        (("--model=mine:keras_model", "--data=mine:stuck_data"), "data_that_block_under_pipeline"),
    ],
)
def test_a_pipeline_that_hangs_in_a_step_names_the_worker_that_the_others_wait_for(
    folder: Path, options: tuple[str, ...], name: str
) -> None:
    run_until_stalled(folder, *options, strategy="Pipeline", roles={"worker": 2}, name=name)


def test_a_parameter_server_worker_that_waits_for_its_data_is_named(folder: Path) -> None:
    run_until_stalled(
        folder, "--model=mine:tf_keras_model", "--data=mine:stuck_data",
        strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1},
        name="data_that_block_under_parameter_server",
    )  # fmt: skip


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
    arguments = [f"--model=mine:{function}", "--data=mine:data", "--batch-size=8", "--stall-timeout=8"]
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=20"]
        (folder / "mine.py").write_text(BLOCKS.format(index="none") + MODELS.format(index=index, time=2))
        late, other = f"worker-{index}", f"worker-{1 - index}"
        assert job.start().wait() == {late: 1, other: 75}
    line = "the model is not ready after 40 s (--stall-timeout): "
    doing = f"is in {function}() of --model=mine:{function}"
    assert job[late].last_words == f"{line}{doing}"
    assert job[other].last_words == f"{line}worker {index} {doing}"


@pytest.mark.parametrize(
    ("strategy", "roles", "library", "time"),
    [
        ("OneDevice", {"worker": 1}, "keras", 1),
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1}, "tf_keras", 2),
        ("Pipeline", {"worker": 2}, "keras", 2),
    ],
)
def test_a_model_that_is_never_ready_ends_the_task_that_builds_it(
    folder: Path, strategy: str, roles: dict[str, int], library: str, time: int
) -> None:
    """It is built twice: to try it, and to train it."""
    leader = "chief-0" if "chief" in roles else "worker-0"
    arguments = ["--model=mine:before", "--data=mine:data", "--batch-size=8", "--stall-timeout=8"]
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=20"]
        program = BLOCKS.format(index="none") + MODELS.format(index=0, time=time)
        (folder / "mine.py").write_text(program.replace("import keras", f"import {library} as keras"))
        assert job.start()[leader].wait() == 1
    doing = "is in before() of --model=mine:before"
    assert job[leader].last_words == f"the model is not ready after {20 * time} s (--stall-timeout): {doing}"


@pytest.mark.parametrize(
    ("strategy", "roles", "library"),
    [
        ("MultiWorkerMirrored", {"worker": 2}, "keras"),
        ("ParameterServer", {"chief": 1, "worker": 1, "ps": 1}, "tf_keras"),
        ("Pipeline", {"worker": 2}, "keras"),
    ],
)
def test_data_that_are_never_ready_on_one_task_end_the_job(
    folder: Path, strategy: str, roles: dict[str, int], library: str
) -> None:
    late = "worker-1" if strategy == "MultiWorkerMirrored" else "chief-0" if "chief" in roles else "worker-0"
    arguments = ["--model=mine:model", "--data=mine:data", "--batch-size=8", "--stall-timeout=8"]
    with Job(folder, strategy=strategy, roles=roles, arguments=arguments) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=20"]
        blocks = BLOCKS.format(index=late[-1]).replace("def data():", "def data():\n    wait(399)")
        (folder / "mine.py").write_text(blocks.replace("import keras", f"import {library} as keras"))
        assert job.start()[late].wait() == 1
        if strategy == "MultiWorkerMirrored":
            assert job["worker-0"].wait() == 75
            assert "worker 1 not reachable" in job["worker-0"].last_words
    doing = "is in data() of --data=mine:data"
    assert job[late].last_words == f"the data are not ready after 20 s (--stall-timeout): {doing}"


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
        open("stalls", "w").close()
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
    with Job(
        folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments, imported=True, patient=True
    ) as job:
        job.arguments = [a for a in job.arguments if "start-timeout" not in a] + ["--start-timeout=60"]
        (folder / "mine.py").write_text(SCRIPT + script)
        assert job.start().wait() == {"worker-0": 75, "worker-1": 1}
    stalled = "no step was finished for 8 s (--stall-timeout): "
    assert job["worker-1"].last_words == f"{stalled}{doing}"
    assert job["worker-0"].last_words == f"{stalled}worker 1 {doing}"


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


def test_a_script_that_shows_progress_or_is_outside_of_its_steps_is_not_ended(folder: Path) -> None:
    arguments = ["--script=mine.py", "--stall-timeout=15", "--start-timeout=15"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments, imported=True) as job:
        (folder / "mine.py").write_text(SLOW)
        assert job.start().wait() == {"worker-0": 0}
    assert "the script is over" in job["worker-0"].log


def test_a_session_that_hangs_in_a_step_is_ended(folder: Path) -> None:
    arguments = ["--script=mine.py", "--stall-timeout=15", "--start-timeout=15"]
    with Job(folder, strategy="OneDevice", roles={"worker": 1}, arguments=arguments, imported=True) as job:
        (folder / "mine.py").write_text(
            SLOW.replace("time.sleep(20)\nwith", "with").replace(
                "            s.report()\n", "            time.sleep(3600)\n"
            )
        )
        assert job.start().wait() == {"worker-0": 1}
    doing = "waits for its data, or is in the script's own code, in step 1"
    assert job["worker-0"].last_words == f"no step was finished for 15 s (--stall-timeout): {doing}"
