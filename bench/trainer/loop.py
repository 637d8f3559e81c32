"""Our step loop against a bare hand-written one, and against Keras' fit: the same model, data, batch and cores.

    PYTHONPATH=trainer-image:bench .venv-trainer/bin/python bench/trainer/loop.py [--rounds 5] [--seconds 6]

All take turns in one process. Each measurement makes a model again and leaves the first call, which traces, out of its
time. Ours is all that `python -m dtj_trainer` does between its first step and its last: the agreement at the end of
each call, two metrics, progress lines, status. The bare loop is what one would write by hand for speed, with as many
steps a call, and measures nothing. `fit` is Keras' own, compiled with the same loss and accuracy, and left to choose
`jit_compile` by itself; at its defaults it takes one step an execution, and ours takes 20 at its own.

Next to the wall-clock time stands the CPU time of the process, which other work on the machine disturbs less.

Whole measurements of some seconds differ by 20 % and more on a machine with two cores. So the first figure comes from
one training of ours that makes way for a call of the bare loop after each call of its own: both see the same moment,
and what disturbs a few calls does not move the median of some hundred pairs.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import tensorflow as tf

import figures
from dtj_launch.progress import Progress, ProgressStore
from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.data.full_batches import Arrays
from dtj_trainer.datasets import digits
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.tasks.shipped import image_classification
from dtj_trainer.training.model import ModelFactory
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.synchronous import train

BATCH = 64
STEPS_PER_CALL = 20
FIRST_GUESS = 200
TASK = image_classification(Arrays(digits()), keras)
DATA = TASK.data
FACTORY = ModelFactory("--task=image-classification", TASK.build, DATA, loss=None)


@dataclass(frozen=True)
class Pace:
    """What a step took, in seconds: of the wall clock, and of CPU."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Moment:
    """Where the clocks stood."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> Moment:
        return cls(time.perf_counter(), time.process_time())

    def pace(self, steps: int) -> Pace:
        """Of this many steps since."""
        now = self.now()
        return Pace((now.wall - self.wall) / steps, (now.cpu - self.cpu) / steps)


class Track(ProgressStore):
    """A board that knows the pace from the first call, which traces, to the last."""

    def __init__(self) -> None:
        super().__init__()
        self._first: tuple[int, Moment] | None = None
        self.pace: Pace | None = None

    def update(self, **changes: Any) -> Progress:
        if step := changes.get("step"):
            if self._first is None:
                self._first = step, Moment.now()
            elif step > self._first[0]:
                self.pace = self._first[1].pace(step - self._first[0])
        return super().update(**changes)


class Alternation(ProgressStore):
    """A board that takes a bare call after each call of ours, and knows what both took for a step."""

    def __init__(self, bare_call: Callable[[], object]) -> None:
        super().__init__()
        self._bare_call = bare_call
        self._last: tuple[int, Moment] | None = None
        self.pairs: list[tuple[Pace, Pace]] = []

    def update(self, **changes: Any) -> Progress:
        step = changes.get("step")
        if step and self._last and step - self._last[0] == STEPS_PER_CALL:
            taken = self._last[1].pace(STEPS_PER_CALL)
            began = Moment.now()
            self._bare_call()
            self.pairs.append((taken, began.pace(STEPS_PER_CALL)))
        if step:
            self._last = step, Moment.now()
        return super().update(**changes)


def pairs(calls: int) -> list[tuple[Pace, Pace]]:
    """What a step took in ours, and in a bare call right after it."""
    iterator, take = bare_loop(STEPS_PER_CALL)
    take(iterator).numpy()
    alternation = Alternation(lambda: take(iterator).numpy())
    train_with(alternation, calls * STEPS_PER_CALL, steps_per_call=STEPS_PER_CALL)
    return alternation.pairs


def ours(steps: int, *, steps_per_call: int) -> Pace:
    """The trainer's own loop."""
    progress_store = Track()
    train_with(progress_store, steps, steps_per_call=steps_per_call)
    assert progress_store.pace is not None
    return progress_store.pace


def train_with(progress_store: ProgressStore, steps: int, *, steps_per_call: int) -> None:
    """A whole training of ours, of about this many steps."""
    config = configuration(steps, steps_per_call=steps_per_call)
    context = TaskContext(config=config, progress_store=progress_store, termination=Termination(leave=os._exit))
    run = Run(context=context, model=FACTORY, data=DATA)
    train(run, tf.distribute.OneDeviceStrategy("CPU:0"))


def configuration(steps: int, *, steps_per_call: int) -> Config:
    """A run of about this many steps that keeps nothing."""
    epochs = max(1, round(steps * BATCH / DATA.examples))
    arguments = [f"--epochs={epochs}", f"--batch-size={BATCH}", f"--steps-per-call={steps_per_call}"]
    config = parse(arguments, {"DTJ_JOB_NAME": "bench"})
    return replace(config, progress_seconds=2.0)


def bare_loop(steps_per_call: int) -> tuple[Any, Callable[[Any], Any]]:
    """The batches, and a function that takes so many steps on them and does nothing else."""
    model, optimizer = TASK.build(), keras.optimizers.Adam(0.003)
    optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def take(iterator: Any) -> Any:
        loss = tf.constant(0.0)
        for _ in tf.range(steps_per_call):
            inputs, labels = next(iterator)
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)
                loss = tf.reduce_mean(losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    return iter(DATA.batches(batch=BATCH, seed=0)), take


def bare(steps: int, *, steps_per_call: int) -> Pace:
    """A loop that does nothing else."""
    iterator, take = bare_loop(steps_per_call)
    take(iterator).numpy()
    calls = max(1, steps // steps_per_call)
    began = Moment.now()
    for _ in range(calls):
        take(iterator).numpy()
    return began.pace(calls * steps_per_call)


def fit(steps: int, *, steps_per_call: int) -> Pace:
    """Keras' own loop, with as many steps an execution."""
    model = TASK.build()
    model.compile(
        optimizer=keras.optimizers.Adam(0.003),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_call,
    )
    iterator = DATA.batches(batch=BATCH, seed=0)
    model.fit(iterator, epochs=1, steps_per_epoch=steps_per_call, verbose=0)
    steps = max(1, steps // steps_per_call) * steps_per_call
    began = Moment.now()
    model.fit(iterator, epochs=1, steps_per_epoch=steps, verbose=0)
    return began.pace(steps)


LOOPS: Mapping[str, Callable[[int], Pace]] = {
    "ours": lambda steps: ours(steps, steps_per_call=STEPS_PER_CALL),
    "bare": lambda steps: bare(steps, steps_per_call=STEPS_PER_CALL),
    "fit": lambda steps: fit(steps, steps_per_call=STEPS_PER_CALL),
    "ours, 1 step a call": lambda steps: ours(steps, steps_per_call=1),
    "bare, 1 step a call": lambda steps: bare(steps, steps_per_call=1),
    "fit, 1 step a call": lambda steps: fit(steps, steps_per_call=1),
}


def main() -> None:
    options = figures.parser(
        __doc__,
        rounds=(5, "how often each is measured"),
        seconds=(6.0, "of each measurement, about"),
        pairs=(300, "calls of ours, each next to a bare one"),
    ).parse_args()
    figures.print_machine()
    print_pairs(pairs(options.pairs))
    if not options.rounds:
        return
    steps = round(options.seconds / bare(FIRST_GUESS, steps_per_call=STEPS_PER_CALL).wall)
    paces: dict[str, list[Pace]] = {name: [] for name in LOOPS}
    for number in range(options.rounds):
        # Back and forth, so that a machine that grows busier is nobody's disadvantage.
        for name in sorted(LOOPS, reverse=bool(number % 2)):
            paces[name].append(LOOPS[name](steps))
    figures.print_figure("each", f"{steps} steps of {BATCH} digits, CNN of 151,306 weights")
    for name, seen in paces.items():
        figures.print_figure(name, ", ".join(f"{1 / pace.wall:.0f}" for pace in seen) + " steps/s")
    print_ratios({name: [pace.wall for pace in seen] for name, seen in paces.items()}, of="", targets=(1.02, 1.0))
    print_ratios({name: [pace.cpu for pace in seen] for name, seen in paces.items()}, of="CPU, ", targets=(None, None))


def print_pairs(seen: list[tuple[Pace, Pace]]) -> None:
    """The ratio of ours to bare over all pairs, with the quartiles between which half of the pairs lie."""
    for of, clock in (("", "wall"), ("CPU, ", "cpu")):
        took, baseline = ([float(getattr(pair[side], clock)) for pair in seen] for side in (0, 1))
        low, middle, high = statistics.quantiles((a / b for a, b in zip(took, baseline, strict=True)), n=4)
        medians = statistics.median(took), statistics.median(baseline)
        figures.print_figure(
            f"{of}pairs, ours to bare",
            f"{middle:.3f} (quartiles {low:.3f} and {high:.3f} of {len(seen)} pairs; of the medians "
            f"{medians[0] / medians[1]:.3f}: {1e6 * medians[0]:.0f} and {1e6 * medians[1]:.0f} us a step)",
        )


def print_ratios(took: Mapping[str, list[float]], *, of: str, targets: tuple[float | None, float | None]) -> None:
    """Of the times that a step took.

    Args:
        targets: against the bare loop, and against `fit`, with 20 steps a call.
    """
    figures.print_ratio(f"{of}ours to bare", took["ours"], took["bare"], target=targets[0])
    figures.print_ratio(f"{of}ours to fit", took["ours"], took["fit"], target=targets[1])
    figures.print_ratio(f"{of}1 step: to bare", took["ours, 1 step a call"], took["bare, 1 step a call"], target=None)
    figures.print_ratio(f"{of}1 step: to fit", took["ours, 1 step a call"], took["fit, 1 step a call"], target=None)
    figures.print_ratio(f"{of}20 steps to 1", took["ours"], took["ours, 1 step a call"], target=None)
    figures.print_ratio(f"{of}defaults: to fit", took["ours"], took["fit, 1 step a call"], target=None)


if __name__ == "__main__":
    main()
