"""How many flipped bits the comparison of replicas finds, whether it raises false alarms, and what it costs.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/flips.py [--flips 100] [--seed 1]

Two models, on two and on three logical CPUs. The trainer's own loop trains each for 100 steps a flip, compares every 5
steps and saves every 20: once undisturbed, and once with a bit flipped every 97 steps from a random one on. Replica,
variable, element and bit are random; a weight, a slot and a statistic of a normalization are as likely as each other.
After an alarm the training goes back to the newest checkpoint, and compares at its first step as a new run does. At the
end all copies of all variables have to hold the bits of the undisturbed training.

`found`: an alarm came within 5 steps and, of three replicas, named the right one. `rounded off`: all replicas hold the
same bits again without one. `not finite`: the loss was that before replicas were compared, which ended the training.

The cost: in one training of 0.13 M weights, blocks of 10 steps before a comparison take turns with blocks before none.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import tensorflow as tf

import figures
from dtj_launch.progress import ProgressStore
from dtj_trainer.config.parsing import parse
from dtj_trainer.distribution.stall_watch import building, step_watch
from dtj_trainer.distribution.strategies import make_strategy
from dtj_trainer.errors import NotFinite, ReplicasDiffer
from dtj_trainer.periodic import EverySteps
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.training import synchronous
from dtj_trainer.training.actions import Action, Pause
from dtj_trainer.training.controller import Controller
from dtj_trainer.training.model import prepare
from dtj_trainer.training.reporting import Run

COMPARE, SAVE, BETWEEN, STEPS, BLOCK, BATCH = 5, 20, 97, 100, 10, 48
layers = keras.layers
MODELS = {
    "dense": lambda: [layers.Rescaling(0.01), layers.Dense(32, "relu")],
    "recurrent": lambda: [layers.Embedding(200, 8), layers.LSTM(12)],
    "large": lambda: [layers.Rescaling(0.01), layers.Dense(350, "relu"), layers.Dense(350, "relu")],
}


def model() -> Any:
    last = layers.BatchNormalization(), layers.Dropout(0.2), layers.Dense(1)
    made = keras.Sequential([keras.Input((12,), dtype="int32"), *MODELS[os.environ["BENCH_MODEL"]](), *last])
    made.compile(keras.optimizers.Adam(0.003), loss="mse")
    return made


def data() -> Any:
    tokens = np.random.default_rng(0).integers(0, 200, (10 * BATCH, 12)).astype("int32")
    examples = tf.data.Dataset.from_tensor_slices((tokens, tokens.mean(axis=1, keepdims=True).astype("float32") / 100))
    return {"training": examples, "held_out": examples.take(BATCH)}


class Flips(Action):
    """Flips bits, and judges what comes of each."""

    def __init__(self, variables: Any, chance: random.Random, most: int) -> None:
        self._variables, self._chance, self._most = variables, chance, most
        # The first one comes after a checkpoint.
        self.schedule = EverySteps(BETWEEN, shift=-chance.randrange(SAVE, BETWEEN))
        self._at, self._replica, self._what, self.judged = 0, 0, "", Counter[str]()

    def run(self, pause: Pause) -> bool:
        if pause.step > self._at and self.judged.total() + bool(self._what) < self._most:
            self.judge()
            name, variable = self._chance.choice(self._variables)
            self._at, self._replica = pause.step, self._chance.randrange(len(variable.values))
            values = np.array(variable.values[self._replica].numpy())
            bit = self._chance.randrange(8 * values.nbytes)
            values.reshape(-1).view("uint8")[bit // 8] ^= 1 << bit % 8
            variable.values[self._replica].assign(values)
            self._what = f"bit {bit % (8 * values.itemsize)} of {name}"
        return True

    def judge(self, error: Exception | None = None, *, step: int = 0) -> None:
        """Judges the last flip by how the training ended, or, without an error, by what the replicas hold now."""
        if not self._what:
            return
        alike = all(len(set(copies)) == 1 for copies in held(self._variables))
        verdict = "not finite" if error else "rounded off" if alike else "MISSED"
        if isinstance(error, ReplicasDiffer):
            odd, all_of_them = vars(error)["_corrupt"]["replicas"], list(range(len(self._variables[0][1].values)))
            right = odd == ([self._replica] if len(all_of_them) > 2 else all_of_them) and step <= self._at + COMPARE
            verdict = "found" if right else "WRONGLY NAMED, OR LATE"
        if verdict != "found":
            print(f"  {verdict}: {self._what}, step {self._at}, replica {self._replica}")
        self.judged[verdict] += 1
        self._what = ""


class Blocks(Action):
    """Compares in every second block, and notes when each ends: seconds, and CPU seconds."""

    def __init__(self, replicas: Any) -> None:
        self._replicas, self.schedule = replicas, EverySteps(BLOCK)
        self.ends: list[tuple[float, float]] = []

    def run(self, pause: Pause) -> bool:
        self.ends.append((perf_counter(), process_time()))
        self._replicas._compares = len(self.ends) % 2 == 1
        return True


def held(variables: Any) -> list[list[bytes]]:
    """Of each variable what each replica holds."""
    return [[copy.numpy().tobytes() for copy in variable.values] for _, variable in variables]


def train(replicas: int, steps: int, make: Callable[[Any], Any], *, every: int = COMPARE) -> tuple[Any, Any]:
    """Trains with the action that `make` makes; that action, and what the replicas hold in the end."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [f"--epochs={steps // 10}", f"--batch-size={BATCH}", f"--checkpoint-dir={folder}"]
        arguments += [f"--checkpoint-every-steps={SAVE if every == COMPARE else steps}", "--strategy=Mirrored"]
        arguments += [f"--logical-cpus={replicas}", f"--compare-replicas-every={every}"]
        config = parse([*arguments, "--model=flips:model", "--data=flips:data"], {"DTJ_JOB_NAME": "bench"})
        context = TaskContext(config=config, progress_store=ProgressStore(), termination=Termination(leave=os._exit))
        strategy = make_strategy(config)
        factory, source = prepare(config)
        run = Run(context=context, model=factory, data=source)
        with building(config) as watch:
            training: Any = vars(synchronous)["_Training"](run, strategy, watch)
        action = make(training.replicas)
        while True:
            controller = Controller(
                run, training.inner, training.store, strategy=strategy, counter=training.step, course=training.course,
                watch=step_watch(config), actions=[action] if action else [], replicas=training.replicas,
            )  # fmt: skip
            try:
                controller.train(training.stream, finalize=training.finalize)
            except (ReplicasDiffer, NotFinite) as error:
                if action is None:
                    raise SystemExit(f"a false alarm: {error}") from None
                action.judge(error, step=controller.step)
                training.store.restore_newest()
                training.replicas.begins = True
            else:
                return action, held(training.replicas._variables)


def count(replicas: int, flips: int, chance: random.Random) -> None:
    """Trains undisturbed, and with flips."""
    _, undisturbed = train(replicas, flips * STEPS, lambda _: None)
    action, end = train(replicas, flips * STEPS, lambda compared: Flips(compared._variables, chance, flips))
    action.judge()
    judged = ", ".join(f"{number} {verdict}" for verdict, number in action.judged.items())
    same = "the same" if end == undisturbed else "OTHER"
    print(f"{judged}; at the end {same} bits; {flips * STEPS:,} undisturbed steps without an alarm")


def measure(pairs: int) -> None:
    """Prints what comparing costs."""
    # Of each kind, the first block is not measured.
    action, _ = train(2, (2 * pairs + 3) * BLOCK, Blocks, every=BLOCK)
    took = np.diff(action.ends, axis=0)[2 : 2 * pairs + 2]
    for of, seconds in zip(("wall", "CPU"), took.T, strict=True):
        low, middle, high = statistics.quantiles(seconds[::2] / seconds[1::2], n=4)
        step = f"{1e3 * statistics.median(seconds[1::2]) / BLOCK:.1f} ms a step"
        print(f"{of} {middle:.3f} of that without (quartiles {low:.3f} and {high:.3f} of {pairs} pairs; {step})")


def main() -> None:
    parser = figures.parser(__doc__, flips=(100, "in all"), seed=(1, "of the flips"), pairs=(200, "of blocks"))
    parser.add_argument("--replicas", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if options.replicas is None:
        figures.print_machine()
        print(f"seed {options.seed}", flush=True)
        # A process for each: sums of BatchNormalization know one model and one number of replicas.
        for name, replicas in (("dense", 2), ("dense", 3), ("recurrent", 2), ("recurrent", 3), ("large", 2)):
            print(f"{name}, {replicas} replicas, load {os.getloadavg()[0]:.1f}:", flush=True)
            command = [sys.executable, *sys.argv, f"--replicas={replicas}"]
            subprocess.run(command, env=os.environ | {"BENCH_MODEL": name}, check=True)
    elif os.environ["BENCH_MODEL"] == "large":
        measure(options.pairs)
    else:
        chance = random.Random(f"{options.seed} {os.environ['BENCH_MODEL']} {options.replicas}")
        count(options.replicas, options.flips // 4, chance)


if __name__ == "__main__":
    main()
