"""Workers in step wait for the slowest of them; by what each says of its own part of a step, it is seen which one."""

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from loopback import free_ports
from trainer.cluster import DEADLINE, Job

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

    def slow_data():
        return {{"training": dataset(slow_rows, 640), "held_out": dataset(rows, 640)}}
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
    "its own loop": ("--script=loop.py",),
}


@pytest.mark.parametrize("arguments", WAYS.values(), ids=WAYS.keys())
def test_of_two_workers_the_one_that_is_slow_says_so_and_the_one_that_waits_does_not(
    folder: Path, arguments: Sequence[str]
) -> None:
    files = {"mine.py": MINE, "loop.py": LOOP}
    with Job(folder, strategy="MultiWorkerMirrored", arguments=arguments, files=files, imported=True) as job:
        ports = free_ports(2)
        for index, port in enumerate(ports):
            job.start(f"worker-{index}", environ={"DTJ_STATUS_PORT": str(port)})
        until = time.monotonic() + DEADLINE
        quick = slow = None
        while not (quick and slow and slow > 0.9 * PAUSE and quick < slow / 3):
            assert not [replica for replica in job.replicas.values() if replica.process.poll() is not None]
            assert time.monotonic() < until, f"own seconds of a step: worker 0 {quick}, worker 1 {slow}"
            time.sleep(0.1)
            quick, slow = map(own_part, ports)


class TwoReplicasHere:
    """A strategy of four replicas, two of them in this process, in which a test says when what is there."""

    num_replicas_in_sync = 4

    def __init__(self) -> None:
        self.extended = self
        self.worker_devices = ("/job:localhost/replica:0/task:0/device:CPU:0",) * 2
        self.experimental_local_results = tuple
        self.clock: Iterator[float] = iter(())

    def now(self) -> Any:
        import tensorflow as tf

        return tf.constant(next(self.clock), tf.float64)

    def reduce_to(self, _op: object, value: Any, _destinations: object, _options: object = None) -> Any:
        return value

    def batch_reduce_to(self, _op: object, pairs: Any, _options: object = None) -> Any:
        return [value for value, _ in pairs]


def test_the_replica_that_waits_least_counts_and_no_moment_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    from dtj_trainer.distribution import collective_timing

    strategy = TwoReplicasHere()
    waits = collective_timing.of(strategy)
    assert waits is not None
    monkeypatch.setattr(tf, "timestamp", strategy.now)

    def pause(*, first: float, second: float, summed: float) -> float:
        """Seconds that waiting grows by: replicas have their parts then, and the sum is there then."""
        before = float(waits.seconds)
        strategy.clock = iter((first, second, summed))
        assert strategy.reduce_to("SUM", (1.0, 2.0), None) == (1.0, 2.0)
        return float(waits.seconds) - before

    assert pause(first=10.0, second=13.0, summed=14.0) == 1.0
    assert pause(first=11.0, second=12.0, summed=16.0) == 2.0, "both waited for their turn until 14"
    assert pause(first=30.0, second=30.0, summed=20.0) == 0.0, "the clock was set"
    strategy.clock = iter((40.0, 40.0, 45.0))
    assert strategy.batch_reduce_to("SUM", [((1.0, 2.0), None), ((3.0, 4.0), None)]) == [(1.0, 2.0), (3.0, 4.0)]
    assert float(waits.seconds) == 8.0


def test_where_all_replicas_are_in_one_process_nobody_waits_for_another() -> None:
    import tensorflow as tf

    from dtj_trainer.distribution import collective_timing

    assert collective_timing.of(tf.distribute.MirroredStrategy(["CPU:0"])) is None


def own_part(port: int) -> float | None:
    """What a task says of its own part of a step; None before it knows."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
            printed: float | None = json.load(answer).get("stepSeconds")
            return printed
    except OSError:
        return None
