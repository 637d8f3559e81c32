"""What checkpoints in memory cost: blocks of steps with copies, next to blocks without.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/in_memory.py [--pairs 12] [--every N]

One training by one worker of MultiWorkerMirrored, in a process of its own for each model. Blocks of 30 steps, or of as
many as lie between two copies, take turns in it, so that both kinds see the same moment. All that comes with a copy is
in its block: shorter calls, the look for weights that are not finite, what the loop waits for, and the thread that
writes to /dev/shm next to the steps, on the same cores. CPU time is that of the whole process.

A copy costs by the bytes of weights and optimizer, and a step by what it computes. So one model has long steps for its
weights, as convolutions have, and one has many weights for its steps.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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

_TRACING, _CHOOSING = 2, 4
"""Blocks at the start that are not measured, and those in which the trainer chooses how often it copies."""
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

    @property
    def block(self) -> int:
        """Steps."""
        return block_of(self.steps)

    def copies(self, step: int) -> bool:
        return step // self.block % 2 == 1

    def steps_until_due(self, step: int) -> int:
        left = self.block - step % self.block
        return min(left, super().steps_until_due(step)) if self.copies(step) else left

    def was_due(self, before: int, step: int) -> bool:
        return super().was_due(before, step) if self.copies(step - 1) or step >= self.total_steps else False


def block_of(every: int | None) -> int:
    """Steps of a block, with a copy after so many."""
    return max(30, every or 0)


class Blocks(ProgressStore):
    """When each block was over: seconds, and CPU seconds."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self._block = block
        self.ends: dict[int, tuple[float, float]] = {}

    def update(self, **changes: Any) -> Progress:
        if (step := changes.get("step")) and step % self._block == 0:
            self.ends.setdefault(step, (perf_counter(), process_time()))
        return super().update(**changes)


class Chosen(logging.Handler):
    """The number of steps between two copies that the trainer says that it has chosen."""

    steps = 0

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r"after every (\d+) steps", record.getMessage()):
            self.steps = int(found[1])


def measure(name: str, pairs: int, every: int | None) -> None:
    """Trains, and prints of each block what a step took, with the bytes of a copy; or the steps that were chosen."""
    made, batch = MODELS[name]
    data = digits()
    block = block_of(every)
    epochs = block * (2 * (pairs + 2) if every else _CHOOSING) * batch // len(data.training) + 1
    config = parse((f"--epochs={epochs}", f"--batch-size={batch}", "--strategy=MultiWorkerMirrored"), os.environ)
    strategy = make_strategy(config)
    task = image_classification(Arrays(data), keras)

    def build() -> Any:
        model = keras.Sequential([keras.Input(task.data.input_spec.shape[1:]), *made()])
        model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    chosen, blocks = Chosen(), Blocks(block)
    if every:
        # In the middle, so that what a copy costs the steps after it is in its block.
        odd = partial(InOddBlocks, shift=every // 2)
        vars(checkpointing)["EverySteps"] = lambda steps, last: (odd if steps else EverySteps)(steps, last)
    else:
        logging.getLogger(checkpointing.__name__).addHandler(chosen)
        logging.getLogger(checkpointing.__name__).setLevel(logging.INFO)
    context = TaskContext(config=config, progress_store=blocks, termination=Termination(leave=os._exit))
    train(Run(context=context, model=ModelFactory(name, build, task.data, loss=None), data=task.data), strategy)
    assert config.checkpoint.memory is not None
    copy = max(sum(p.stat().st_size for p in config.checkpoint.memory.directory.glob("ckpt-*.data-*")) // 2, 1)
    ends = [blocks.ends[step] for step in sorted(blocks.ends)]
    took = [[(b - a) / block for a, b in zip(*both, strict=True)] for both in pairwise(ends)]
    print(json.dumps({"chosen": chosen.steps, "bytes": copy, "blocks": took[_TRACING : 2 * pairs + _TRACING]}))


def child(name: str, pairs: int, every: int | None) -> Any:
    """What `measure` prints in a process of its own."""
    cluster = {"worker": [f"127.0.0.1:{free_ports(1)[0]}"]}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        environ = {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}),
            "DTJ_JOB_NAME": "bench",
            "DTJ_CHECKPOINT_MEMORY_DIR": str(Path(memory) / "copies"),
            "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS": str(every or ""),
        }
        command = [sys.executable, __file__, "--pairs", str(pairs), "--measure", name]
        command += ["--every", str(every)] if every else []
        done = subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = figures.parser(__doc__, pairs=(12, "blocks with copies, each next to one without"))
    parser.add_argument("--every", type=int, help="steps between two copies (default: as the trainer chooses)")
    parser.add_argument("--measure", choices=MODELS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.pairs, options.every)
        return
    figures.print_machine()
    for name in MODELS:
        every = options.every or child(name, options.pairs, None)["chosen"]
        found = child(name, options.pairs, every)
        blocks = found["blocks"]
        # The first two of all trace; after those, the ones with copies come first.
        for of, clock in (("", 0), ("CPU, ", 1)):
            kept, bare = ([block[clock] for block in blocks[side::2]] for side in (0, 1))
            low, middle, high = statistics.quantiles((a / b for a, b in zip(kept, bare, strict=True)), n=4)
            figures.print_figure(
                f"{of}{name}, every {every} steps",
                f"{middle:.3f} of a step without (quartiles {low:.3f} and {high:.3f} of {len(bare)} pairs; of the "
                f"medians {statistics.median(kept) / statistics.median(bare):.3f}: "
                f"{1e3 * statistics.median(bare):.1f} ms a step), {found['bytes'] / 1e6:.1f} MB a copy",
            )


if __name__ == "__main__":
    main()
