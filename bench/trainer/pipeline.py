"""How long the stages of a pipeline wait for each other, against GPipe's bubble of (S-1)/(M+S-1).

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/pipeline.py [--rounds 5] [--steps 5]

Two stages, each a process on a core of its own. The same steps are also taken by one process on one core, cut and with
as many micro-batches: that is the work. A step that takes T where the work is W waits for 1 - W/2T of its time; the
ideal one takes W/2 * (M+1)/M. Both take turns in one run. The layers are dealt out so that the stages have the same
work: the first computes its forward pass twice, the last does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from dtj_trainer.process import environment

MICRO_BATCHES = (1, 2, 4, 8)
STAGES = 2
LAYERS, FIRST_OF_THE_LAST = 7, "layer_3"
WIDTH, CLASSES, BATCH = 1024, 10, 512
LIMIT_SECONDS = 60.0


@contextmanager
def stage_on_core(core: int, cluster: Mapping[str, list[str]]) -> Iterator[None]:
    """The other worker: a TensorFlow server."""
    environ = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 1}})}
    with subprocess.Popen([sys.executable, __file__, "--serve", str(core)], env=environ) as server:
        try:
            yield
        finally:
            server.kill()


def serve(core: int) -> None:
    """The process of `stage_on_core`."""
    os.sched_setaffinity(0, {core})
    environment.prepare(os.environ)
    from dtj_launch.progress import ProgressStore
    from dtj_trainer.config import cluster
    from dtj_trainer.distribution import tf_server
    from dtj_trainer.process.sigterm import Termination

    tf_server.serve_cluster(cluster.from_environment(os.environ), ProgressStore(), Termination(leave=os._exit))


class Digitless:
    """A task and its data, made up: what is learned does not matter here."""

    metrics = ("loss",)

    def build_model(self, keras: ModuleType) -> Any:
        layers = keras.layers
        hidden = [layers.Dense(WIDTH, activation="relu", name=f"layer_{place}") for place in range(LAYERS)]
        return keras.Sequential([layers.Input((WIDTH,)), *hidden, layers.Dense(CLASSES, name="head")])

    def compute_metrics(self, outputs: Any, labels: Any) -> Mapping[str, Any]:
        import tensorflow as tf

        return {"loss": tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)}

    def batches(self) -> Any:
        import tensorflow as tf

        inputs = tf.random.stateless_normal((BATCH, WIDTH), seed=(0, 1))
        labels = tf.random.stateless_uniform((BATCH,), seed=(0, 2), maxval=CLASSES, dtype=tf.int64)
        return tf.data.Dataset.from_tensors((inputs, labels)).repeat()


def pipeline(micro_batches: int, devices: list[str]) -> Any:
    """A function that takes this many steps and returns the seconds of one."""
    import keras
    import tensorflow as tf

    from dtj_trainer.config.pipeline_layout import Layout
    from dtj_trainer.distribution.agreement import Vote
    from dtj_trainer.pipeline_parallel.graph_cut import cut
    from dtj_trainer.pipeline_parallel.stages import make_stages
    from dtj_trainer.pipeline_parallel.step import PipelineStep

    task: Any = Digitless()
    model = task.build_model(keras)
    layout = Layout(stages=STAGES, micro_batches=micro_batches, first_layers=(FIRST_OF_THE_LAST,))
    stages = make_stages(model, cut(model, layout), devices, lambda: keras.optimizers.SGD(0.01))
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    made = PipelineStep(layout=layout, model=task, stages=stages, step=step, batch=BATCH)
    iterator, vote = iter(task.batches()), lambda: Vote(stop=False, save=False, next_steps=0)
    made.run(iterator, 1, vote)

    def seconds(steps: int) -> float:
        began = time.perf_counter()
        made.run(iterator, steps, vote)
        return (time.perf_counter() - began) / steps

    return seconds


def measure(rounds: int, steps: int) -> Iterator[tuple[int, list[float], list[float]]]:
    """Of each number of micro-batches the seconds of a step: over both stages, and all on one core."""
    first, second = ("/job:worker/replica:0/task:0/device:CPU:0", "/job:worker/replica:0/task:1/device:CPU:0")
    for micro_batches in MICRO_BATCHES:
        piped, alone = pipeline(micro_batches, [first, second]), pipeline(micro_batches, [first, first])
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            times[0].append(piped(steps))
            times[1].append(alone(steps))
        yield micro_batches, *times


def connect(cluster: Mapping[str, list[str]]) -> None:
    """Waits for the other worker, and makes this process the first."""
    import tensorflow as tf

    from dtj_launch.rendezvous import wait_for_peers

    host, port = cluster["worker"][1].split(":")
    wait_for_peers({"worker 1": (host, int(port))}, timeout=LIMIT_SECONDS)
    tf.config.experimental_connect_to_cluster(tf.train.ClusterSpec(cluster), job_name="worker", task_index=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5, help="of each measurement")
    parser.add_argument("--serve", type=int, metavar="CORE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        serve(options.serve)
    import figures
    from loopback import free_ports

    here, there, *_ = sorted(os.sched_getaffinity(0))
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(STAGES)]}
    with stage_on_core(there, cluster):
        os.sched_setaffinity(0, {here})
        environment.prepare(os.environ)
        connect(cluster)
        figures.print_machine()
        figures.print_figure("each", f"{options.steps} steps of {BATCH} examples, {LAYERS} layers of {WIDTH}")
        for micro_batches, piped, alone in measure(options.rounds, options.steps):
            waits = [1 - work / (STAGES * step) for step, work in zip(piped, alone, strict=True)]
            bubble = (STAGES - 1) / (micro_batches + STAGES - 1)
            ideal = [work / STAGES / (1 - bubble) for work in alone]
            figures.print_figure(
                f"{micro_batches} micro-batches",
                f"{1000 * statistics.median(piped):.0f} ms a step, on one core {1000 * statistics.median(alone):.0f}; "
                f"waits {statistics.median(waits):.0%}, GPipe's bubble {bubble:.0%}",
            )
            figures.print_ratio("  to the ideal", piped, ideal, target=None)


if __name__ == "__main__":
    main()
