"""What checkpoints in memory cost: blocks of steps with a copy after every 10 of them, next to blocks without.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/in_memory.py [--pairs 12] [--every 10]

One training by one worker of MultiWorkerMirrored, in a process of its own for each model. Blocks of 30 steps take turns
in it, so that both kinds see the same moment. All that comes with a copy is in its blocks: shorter calls, the look for
weights that are not finite, what the loop waits for, and the thread that writes to /dev/shm next to the steps, on the
same cores. CPU time is that of the whole process.

A copy costs by the bytes of weights and optimizer, and a step by what it computes. So one model has long steps for its
weights, as convolutions have, and one has many weights for its steps.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras

import figures
from dtj_launch.progress import Progress, ProgressStore
from dtj_trainer.checkpoint import checkpointing
from dtj_trainer.config.parsing import parse
from dtj_trainer.data.full_batches import Arrays
from dtj_trainer.datasets import digits
from dtj_trainer.distribution.strategies import make_strategy
from dtj_trainer.periodic import EverySteps
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.tasks.shipped import image_classification
from dtj_trainer.training.model import ModelFactory
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.synchronous import train
from loopback import free_ports

BLOCK = 30
layers = keras.layers


def convolutions() -> Any:
    hidden = [layers.Conv2D(64, 3, padding="same", activation="relu") for _ in range(2)]
    return [*hidden, layers.Flatten(), layers.Dense(10)]


def dense() -> Any:
    return [layers.Flatten(), *(layers.Dense(512, "relu") for _ in range(3)), layers.Dense(10)]


MODELS: Mapping[str, tuple[Callable[[], Any], int]] = {"convolutions": (convolutions, 128), "dense": (dense, 256)}
"""Name -> its layers, and the batch."""


@dataclass(frozen=True)
class InOddBlocks(EverySteps):
    """Due as often as usual in every second block, and never in the others, which end at the same steps."""

    def steps_until_due(self, step: int) -> int:
        return min(BLOCK - step % BLOCK, super().steps_until_due(step) if _copies(step) else BLOCK)

    def was_due(self, before: int, step: int) -> bool:
        return super().was_due(before, step) if _copies(step - 1) or step >= self.total_steps else False


def _copies(step: int) -> bool:
    return step // BLOCK % 2 == 1


class Blocks(ProgressStore):
    """When each block was over: seconds, and CPU seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[int, tuple[float, float]] = {}

    def update(self, **changes: Any) -> Progress:
        if (step := changes.get("step")) and step % BLOCK == 0:
            self.ends.setdefault(step, (perf_counter(), process_time()))
        return super().update(**changes)


def measure(name: str, pairs: int) -> None:
    """Trains, and prints of each block what a step took, with the bytes of a copy."""
    made, batch = MODELS[name]
    data = digits()
    epochs = 2 * BLOCK * (pairs + 2) * batch // len(data.training) + 1
    config = parse((f"--epochs={epochs}", f"--batch-size={batch}", "--strategy=MultiWorkerMirrored"), os.environ)
    strategy = make_strategy(config)
    task = image_classification(Arrays(data), keras)

    def build() -> Any:
        model = keras.Sequential([keras.Input(task.data.input_spec.shape[1:]), *made()])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    due = {True: InOddBlocks, False: EverySteps}
    vars(checkpointing)["EverySteps"] = lambda steps, last: due[steps is not None](steps, last)
    blocks = Blocks()
    context = TaskContext(config=config, progress_store=blocks, termination=Termination(leave=os._exit))
    train(Run(context=context, model=ModelFactory(name, build, task.data, loss=None), data=task.data), strategy)
    assert config.checkpoint.memory is not None
    copy = max(sum(p.stat().st_size for p in config.checkpoint.memory.directory.glob("ckpt-*.data-*")) // 2, 1)
    ends = [blocks.ends[step] for step in sorted(blocks.ends)]
    took = [[(b - a) / BLOCK for a, b in zip(*both, strict=True)] for both in pairwise(ends)]
    print(json.dumps({"bytes": copy, "blocks": took[2 : 2 * pairs + 2]}))


def child(name: str, pairs: int, every: int) -> tuple[int, list[list[float]]]:
    """What `measure` prints in a process of its own."""
    cluster = {"worker": [f"127.0.0.1:{free_ports(1)[0]}"]}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        environ = {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}),
            "DTJ_JOB_NAME": "bench",
            "DTJ_CHECKPOINT_MEMORY_DIR": str(Path(memory) / "copies"),
            "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS": str(every),
        }
        command = [sys.executable, __file__, "--pairs", str(pairs), "--measure", name]
        done = subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["bytes"], found["blocks"]


def main() -> None:
    parser = figures.parser(
        __doc__, pairs=(12, "blocks with copies, each next to one without"), every=(10, "steps between two copies")
    )
    parser.add_argument("--measure", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.pairs)
        return
    figures.print_machine()
    for name in MODELS:
        size, blocks = child(name, options.pairs, options.every)
        # The first two of all trace; after those, the ones with copies come first.
        for of, clock in (("", 0), ("CPU, ", 1)):
            kept, bare = ([block[clock] for block in blocks[side::2]] for side in (0, 1))
            low, middle, high = statistics.quantiles((a / b for a, b in zip(kept, bare, strict=True)), n=4)
            figures.print_figure(
                f"{of}{name}",
                f"{middle:.3f} of a step without (quartiles {low:.3f} and {high:.3f} of {len(bare)} pairs; of the "
                f"medians {statistics.median(kept) / statistics.median(bare):.3f}: "
                f"{1e3 * statistics.median(bare):.1f} ms a step), {size / 1e6:.1f} MB a copy",
            )


if __name__ == "__main__":
    main()
