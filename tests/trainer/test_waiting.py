"""Workers in step wait for the slowest of them; by what each says of its own part of a step, it is seen which one."""

import json
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainer.cluster import DEADLINE, Job, free_ports

pytestmark = pytest.mark.trainer

PAUSE = 0.5
"""Seconds of each step that worker 1 sleeps."""

MINE = f"""
    import json, os, time
    import keras
    import numpy as np
    import tensorflow as tf

    def pause():
        if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:
            time.sleep({PAUSE})

    def model():
        # The workers also wait for each other in the middle of the model.
        layers = [keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dense(1)]
        return keras.Sequential([keras.Input((4,)), *layers])

    def dataset(rows, examples):
        shapes = tf.TensorSpec((4,)), tf.TensorSpec((1,))
        made = tf.data.Dataset.from_generator(rows, output_signature=shapes)
        return made.apply(tf.data.experimental.assert_cardinality(examples))

    def rows():
        for number in range(640):
            yield np.full((4,), number % 7, "float32"), np.ones((1,), "float32")

    def slow_rows():
        for number, row in enumerate(rows()):
            if number % 16 == 0:
                pause()
            yield row

    def data():
        return {{"training": dataset(rows, 640), "held_out": dataset(rows, 640)}}

    def slow_data():
        return {{"training": dataset(slow_rows, 640), "held_out": dataset(rows, 640)}}

    def callbacks():
        return [keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: pause())]
"""

LOOP = f"""
    import time

    import keras
    import tensorflow as tf

    import dtj_trainer

    with dtj_trainer.session() as s:
        with s.strategy.scope():
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
            optimizer = keras.optimizers.SGD(0.01)
        s.checkpoint(model=model, optimizer=optimizer)

        def learn():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(model(tf.ones((8, 4))) ** 2)
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

        @tf.function
        def step():
            s.strategy.run(learn)

        for _ in s.steps(1_000_000):
            time.sleep({PAUSE} if s.task.index == 1 else 0)
            step()
"""

OWN = ("--model=mine:model", "--loss=mean_squared_error", "--epochs=100000", "--batch-size=16", "--no-shuffle",
       "--steps-per-call=1")  # fmt: skip
WAYS = {
    "its data": (*OWN, "--data=mine:slow_data"),
    "its data, packed": (*OWN, "--data=mine:slow_data", "--pack-gradients"),
    "its callback in fit": (*OWN, "--data=mine:data", "--loop=fit", "--callbacks=mine:callbacks"),
    "its own loop": ("--script=loop.py",),
}


@pytest.mark.parametrize("arguments", WAYS.values(), ids=WAYS.keys())
def test_of_two_workers_the_one_that_is_slow_says_so_and_the_one_that_waits_does_not(
    folder: Path, arguments: Sequence[str]
) -> None:
    with Job(folder, strategy="MultiWorkerMirrored", roles={"worker": 2}, arguments=arguments) as job:
        (folder / "mine.py").write_text(textwrap.dedent(MINE))
        (folder / "loop.py").write_text(textwrap.dedent(LOOP))
        ports = free_ports(2)
        for index, port in enumerate(ports):
            job.start(f"worker-{index}", environ={"DTJ_STATUS_PORT": str(port)})
        until = time.monotonic() + DEADLINE
        waiting = slow = None
        while not (waiting and slow and slow > 0.9 * PAUSE and waiting < slow / 3):
            assert not [replica for replica in job.replicas.values() if replica.process.poll() is not None]
            assert time.monotonic() < until, f"own seconds of a step: worker 0 {waiting}, worker 1 {slow}"
            time.sleep(0.1)
            waiting, slow = map(own_part, ports)


def own_part(port: int) -> float | None:
    """What a task says of its own part of a step; None before it knows."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
            said: float | None = json.load(answer).get("stepSeconds")
            return said
    except (urllib.error.URLError, ConnectionError):
        return None
