"""Keras' adapted `fit` in a session, in executions of 20 steps, beside the trainer's own loop.

    PYTHONPATH=trainer-image:bench:tests .venv-trainer/bin/python bench/trainer/engines.py [--rounds 5] [--pairs 100]

Both train the same model on the same stream of batches: under Mirrored on two logical CPUs, and as two workers of
MultiWorkerMirrored with a thread each. Each engine has processes of its own, as a job has, and they take turns: after
each call of the own loop one execution of `fit` follows, and whoever has no turn waits in front of its next step. So
both see the same moment. The first turn of each traces; what it takes, once TensorFlow is imported, is told apart.
A figure is the speed of `fit` of that of the own loop: below 1, `fit` is slower. `dense` has steps that cost less than
what an engine adds to them, `digits` is the CNN that ships, and `convolutions` has steps of a usual length.

Next come the weights after some epochs with shares of different size, against plain `fit` on one device. Then runs
with dropout and Adam, which get SIGTERM at any moment and go on: whether they end with the bits of a run that was not
stopped, and how long it took from the signal to the end, with short steps and with long ones.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import dtj_trainer
import figures
from dtj_launch.progress import Progress, ProgressStore
from dtj_trainer.config.parsing import Config, parse
from dtj_trainer.data.full_batches import Arrays
from dtj_trainer.data.worker_shards import distributed
from dtj_trainer.datasets import digits
from dtj_trainer.distribution.strategies import make_strategy
from dtj_trainer.errors import TrainerError
from dtj_trainer.process.ending import end_with, leave
from dtj_trainer.process.sigterm import Termination
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.tasks.shipped import image_classification
from dtj_trainer.training.model import ModelFactory
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.stepping import Course
from dtj_trainer.training.synchronous import train
from loopback import free_ports
from trainer.outcome import tensors

OWN, FIT, PLAIN = "own loop", "fit", "plain"
WORKERS: Mapping[str, int] = {"Mirrored": 1, "MultiWorkerMirrored": 2}
WARM_UP = 6
"""Turns of each that are not measured: the first traces, and the own loop's calls grow."""
layers = keras.layers


def convolutions() -> Sequence[Any]:
    hidden = [layers.Conv2D(64, 3, padding="same", activation="relu") for _ in range(2)]
    return [*hidden, layers.Flatten(), layers.Dense(10)]


def dense(*between: Any) -> Sequence[Any]:
    return [layers.Flatten(), layers.Dense(32, "relu"), *between, layers.Dense(10)]


MODELS: Mapping[str, Callable[[], Sequence[Any]]] = {
    "dense": dense,
    "digits": lambda: image_classification(Arrays(digits()), keras).build().layers,
    "convolutions": convolutions,
    "dropout": lambda: dense(layers.Dropout(0.5)),
    "convolutions, dropout": lambda: [layers.Dropout(0.2), *convolutions()],
}
SPEED: Mapping[str, tuple[int, int]] = {"dense": (64, 1), "digits": (64, 2), "convolutions": (256, 4)}
"""Model -> its global batch, and by what the number of pairs is divided."""
STOPPED = (("dropout", 64, 100), ("convolutions, dropout", 1024, 40))
"""Models with their batches and epochs."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one process does."""

    engine: str
    model: str
    batch: int
    epochs: int
    strategy: str = "Mirrored"
    steps_per_call: int = 20
    turns: tuple[int, int] | None = None
    """Files: where its turns come from, and those of the other engine go to."""
    weights: str = ""
    """The file that they are written to at the end."""
    checkpoints: str = ""
    """Where they are kept; nowhere if empty."""


# -- one process -----------------------------------------------------------------------------------------------------


class Turns:
    """When this engine may work. Each of its calls is a turn."""

    def __init__(self, files: tuple[int, int] | None) -> None:
        self._files = files
        self.step = 0
        self.taken: list[tuple[int, float, float]] = []
        """Of each turn its steps, seconds and CPU seconds."""

    def begin(self) -> None:
        """Waits for the turn, which comes at once if the other engine has ended."""
        if self._files:
            os.read(self._files[0], 1)
        self._began = perf_counter(), process_time()

    def end(self, step: int) -> None:
        """Lets the other engine take its turn, now that this many steps are done, and waits for the next."""
        wall, cpu = self._began
        self.taken.append((step - self.step, perf_counter() - wall, process_time() - cpu))
        self.step = step
        if self._files:
            with suppress(BrokenPipeError):
                os.write(self._files[1], b".")
        else:
            print(step, flush=True)
        self.begin()


class Board(ProgressStore):
    """Ends a turn with each call of the own loop."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns

    def update(self, **changes: Any) -> Progress:
        shown = super().update(**changes)
        if (step := changes.get("step")) and step > self._turns.step:
            self._turns.end(step)
        return shown


def work(part: Part) -> None:
    """Trains, and prints the turns that it took."""
    arguments = [f"--epochs={part.epochs}", f"--batch-size={part.batch}", f"--steps-per-call={part.steps_per_call}"]
    # With a model of a user's own, its optimizer is the one that it was compiled with.
    arguments += ["--model=engines:built", "--data=engines:digits"]
    if part.engine == FIT:
        arguments = ["--script=engines.py"]
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    config = parse([*arguments, f"--strategy={part.strategy}", "--logical-cpus=2"], os.environ)
    turns = Turns(part.turns)
    print("ready", flush=True)
    turns.begin()
    try:
        model = {OWN: by_own_loop, FIT: by_fit, PLAIN: by_plain_fit}[part.engine](part, config, turns)
    except TrainerError as error:
        end_with(error)
    if part.weights and config.cluster.leads:
        np.savez(part.weights, *(weight.numpy() for weight in model.weights))
    print(json.dumps(turns.taken), flush=True)
    leave(0)


def built(part: Part, data: Arrays) -> Any:
    """The model."""
    model = keras.Sequential([keras.Input(data.input_spec.shape[1:]), *MODELS[part.model]()])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.001), loss, metrics=["accuracy"], steps_per_execution=part.steps_per_call)
    return model


def by_own_loop(part: Part, config: Config, turns: Turns) -> Any:
    context = TaskContext(config=config, progress_store=Board(turns), termination=Termination(leave=leave))
    strategy = make_strategy(config)
    # The strategy has put TensorFlow's handler in the place of any before.
    context.termination.listen_openly()
    data, made = Arrays(digits()), []

    def build() -> Any:
        made.append(built(part, data))
        return made[-1]

    factory = ModelFactory(part.model, build, data, loss=None)
    train(Run(context=context, model=factory, data=data), strategy)
    return made[-1]


def by_fit(part: Part, config: Config, turns: Turns) -> Any:
    context = TaskContext(config=config, progress_store=ProgressStore(), termination=Termination(leave=leave))
    TaskContext.current = context
    with dtj_trainer.session() as s:
        data = Arrays(digits())
        keras.utils.set_random_seed(0)
        with s.strategy.scope():
            model = built(part, data)
        turns.step = s.checkpoint(model=model, optimizer=model.optimizer)
        advance = s.advance

        def advance_and_end(steps: int) -> None:
            advance(steps)
            turns.end(s.step)

        # A callback of ours that sees batches would have `fit` ask all workers after each execution whether to stop.
        vars(s)["advance"] = advance_and_end
        left = steps_of(part, data) - s.step
        if part.turns:
            # As the own loop reads them: without an end, so that workers need not ask each other whether it has come.
            batches = distributed(data, s.strategy, batch=part.batch, seed=0, first_step=s.step)
        else:
            # Of data without an end, Keras takes whole executions, and so more steps than it is asked for.
            batches = data.batches(batch=part.batch, seed=0, first_step=s.step).take(left)
        model.fit(
            batches, steps_per_epoch=left, shuffle=False, verbose=0, callbacks=[s.callback(batch_size=part.batch)]
        )
    return model


def by_plain_fit(part: Part, config: Config, turns: Turns) -> Any:
    data = Arrays(digits())
    keras.utils.set_random_seed(config.seed)
    model = built(part, data)
    model.fit(data.batches(batch=part.batch, seed=0).take(steps_of(part, data)), shuffle=False, verbose=0)
    return model


def steps_of(part: Part, data: Arrays) -> int:
    """How many the own loop takes."""
    return Course(examples=data.examples, epochs=part.epochs, batch=part.batch).total_steps


# -- all of them -----------------------------------------------------------------------------------------------------


@contextmanager
def started(*parts: Part) -> Iterator[list[list[subprocess.Popen[str]]]]:
    """The processes of each part, by worker, ready to begin with the first part's turn."""
    workers = WORKERS.get(parts[0].strategy, 1)
    files = [[os.pipe() for _ in parts] for _ in range(workers)]
    jobs = [_processes(part, number, files) for number, part in enumerate(parts)]
    try:
        for each in (process for job in jobs for process in job):
            assert each.stdout
            assert each.stdout.readline() == "ready\n"
        for pipes in files:
            os.write(pipes[0][1], b".")
            for end in (end for pipe in pipes for end in pipe):
                os.close(end)
        yield jobs
    finally:
        for each in (process for job in jobs for process in job):
            each.kill()
            each.wait()


def _processes(part: Part, number: int, files: list[list[tuple[int, int]]]) -> list[subprocess.Popen[str]]:
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(len(files))]}
    made = []
    for index, pipes in enumerate(files):
        environ = {"DTJ_JOB_NAME": "bench", "DTJ_CHECKPOINT_DIR": part.checkpoints}
        environ |= {"DTJ_CHECKPOINT_EVERY_SECONDS": "100000"}
        if len(files) > 1:
            environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            # A worker has one of the two cores.
            environ |= {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
        # An engine that works alone waits for no turn.
        given = (pipes[number][0], pipes[1 - number][1]) if len(pipes) > 1 else None
        text = json.dumps(asdict(replace(part, turns=given)))
        command = [sys.executable, __file__, "--part", text]
        made.append(subprocess.Popen(
            command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, pass_fds=given or ()
        ))  # fmt: skip
    return made


def taken(process: subprocess.Popen[str]) -> list[tuple[int, float, float]]:
    """The turns of a process, once it has ended."""
    assert process.stdout
    lines = process.stdout.read().splitlines()
    if process.wait():
        raise SystemExit(f"a process has ended with {process.returncode}")
    return [(steps, wall, cpu) for steps, wall, cpu in json.loads(lines[-1])]


Ratios = tuple[list[float], list[float]]
"""Of each pair of turns, in wall-clock and in CPU time."""


def measure(strategy: str, model: str, batch: int, *, pairs: int, first: str) -> tuple[Ratios, dict[str, Any]]:
    """The speed of `fit` of that of the own loop, and of each engine what its first turn and a step took."""
    steps = (pairs + WARM_UP) * 20
    epochs = steps * batch // len(digits().training) + 1
    order = (OWN, FIT) if first == OWN else (FIT, OWN)
    parts = [Part(engine=each, model=model, batch=batch, epochs=epochs, strategy=strategy) for each in order]
    with started(*parts) as jobs:
        # The first worker of each; the others say the same.
        turns = dict(zip(order, (taken(job[0]) for job in jobs), strict=True))
    # When one has ended, the other one is no longer alone on the machine.
    both = list(zip(turns[OWN], turns[FIT], strict=False))[WARM_UP:-1]
    ratios = tuple([(o[clock] / o[0]) / (f[clock] / f[0]) for o, f in both] for clock in (1, 2))
    details = {
        engine: (found[0][0], found[0][1], statistics.median(wall / steps for steps, wall, _ in found[WARM_UP:-1]))
        for engine, found in turns.items()
    }
    return (ratios[0], ratios[1]), details


def print_speed(strategy: str, model: str, batch: int, *, rounds: int, pairs: int) -> None:
    """Of several rounds."""
    walls: list[list[float]] = []
    cpus: list[list[float]] = []
    last: dict[str, Any] = {}
    for number in range(rounds):
        (wall, cpu), last = measure(strategy, model, batch, pairs=pairs, first=(OWN, FIT)[number % 2])
        walls.append(wall)
        cpus.append(cpu)
        firsts = ", ".join(f"{e}: {steps} steps in {seconds:.2f} s" for e, (steps, seconds, _) in last.items())
        print(f"    first call: {firsts}; load {os.getloadavg()[0]:.1f}", flush=True)
    for of, found in (("", walls), ("CPU, ", cpus)):
        each = [statistics.median(ratios) for ratios in found]
        low, middle, high = statistics.quantiles([one for ratios in found for one in ratios], n=4)
        figures.print_figure(
            f"{of}{strategy}, {model}",
            f"{middle:.3f} (rounds {min(each):.3f} to {max(each):.3f}; quartiles {low:.3f} and {high:.3f} of "
            f"{sum(map(len, found))} pairs)" + ("" if of else "; a step of " + _paces(last)),
        )


def _paces(details: Mapping[str, Any]) -> str:
    return ", ".join(f"{engine} {1e3 * seconds:.2f} ms" for engine, (_, _, seconds) in sorted(details.items()))


def print_weights(strategy: str, model: str, batch: int, folder: Path) -> None:
    """The largest difference of any weight from plain Keras' on one device."""
    found = {}
    for engine in (PLAIN, OWN, FIT):
        file = folder / f"{strategy} {model} {engine}.npz"
        one = "OneDevice" if engine == PLAIN else strategy
        with started(Part(engine=engine, model=model, batch=batch, epochs=3, strategy=one, weights=str(file))) as jobs:
            for process in jobs[0]:
                taken(process)
        with np.load(file) as saved:
            found[engine] = [saved[name] for name in saved.files]
    differences = {
        engine: max(float(np.abs(a - b).max()) for a, b in zip(found[engine], found[PLAIN], strict=True))
        for engine in (OWN, FIT)
    }
    figures.print_figure(
        f"{strategy}, {model}", ", ".join(f"{engine} {value:.1e}" for engine, value in differences.items())
    )


def print_stops(strategy: str, model: str, batch: int, folder: Path, *, epochs: int, stops: int) -> None:
    """Whether runs that were stopped end with the bits of one that was not, and how long they trained on."""
    for engine in (OWN, FIT):
        place = folder / f"{strategy} {model} {engine}"
        part = Part(engine=engine, model=model, batch=batch, epochs=epochs, strategy=strategy)
        run_to_end(replace(part, checkpoints=str(place / "whole")))
        broken = replace(part, checkpoints=str(place / "broken"))
        # The first one stops between multiples of 20.
        waits = [stop(replace(broken, steps_per_call=20 if number else 7)) for number in range(stops)]
        run_to_end(broken)
        ends = [newest(place / name) for name in ("whole", "broken")]
        equal = without_count(ends[0]) == without_count(ends[1])
        seconds = [each[0] for each in waits]
        figures.print_figure(
            f"{strategy}, {model}",
            f"{engine}: {'the same bits' if equal else 'OTHER BITS'}, stopped at steps "
            f"{', '.join(str(step) for _, step in waits)}; steps at the end, as they are counted: whole, stopped: "
            f"{', '.join(path.name[5:] for path in ends)}; seconds until the end "
            f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})",
        )


def run_to_end(part: Part) -> None:
    with started(part) as jobs:
        for process in jobs[0]:
            taken(process)


def stop(part: Part) -> tuple[float, int]:
    """Asks the last process to stop at any moment; seconds until all have ended, and the step that they have saved."""
    with started(part) as jobs:
        leader, last = jobs[0][0], jobs[0][-1]
        assert leader.stdout
        for _ in range(3):
            leader.stdout.readline()
        time.sleep(random.uniform(0, 1))
        last.send_signal(signal.SIGTERM)
        began = perf_counter()
        codes = [process.wait() for process in jobs[0]]
        seconds = perf_counter() - began
        assert set(codes) == {42}, codes
    return seconds, int(newest(Path(part.checkpoints)).name[5:])


def newest(checkpoints: Path) -> Path:
    """The newest checkpoint, without a suffix."""
    return max((path.with_suffix("") for path in checkpoints.glob("ckpt-*.index")), key=lambda path: int(path.name[5:]))


def without_count(checkpoint: Path) -> dict[str, bytes]:
    """What a checkpoint holds of the model and its optimizer."""
    return {name: one for name, one in tensors(checkpoint).items() if not name.startswith(("step/", "total_steps/"))}


def main() -> None:
    parser = figures.parser(
        __doc__,
        rounds=(5, "how often each pair of jobs is measured"),
        pairs=(100, "turns of each engine in a round"),
        stops=(3, "how often a run is stopped"),
    )
    parser.add_argument("--strategies", nargs="+", choices=WORKERS, default=list(WORKERS))
    parser.add_argument("--part", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        work(Part(**json.loads(options.part)))
    figures.print_machine()
    if options.rounds:
        print("speed of fit of the own loop's")
    for strategy in options.strategies if options.rounds else ():
        for model, (batch, share) in SPEED.items():
            print_speed(strategy, model, batch, rounds=options.rounds, pairs=options.pairs // share)
    if not options.stops:
        return
    with tempfile.TemporaryDirectory() as folder:
        print("difference of the weights from plain fit on one device, shares of 33 and 32 examples")
        for strategy in options.strategies:
            for model in ("dense", "digits"):
                print_weights(strategy, model, 65, Path(folder))
        print("SIGTERM in the middle of an epoch")
        for strategy in options.strategies:
            for model, batch, epochs in STOPPED:
                print_stops(strategy, model, batch, Path(folder), epochs=epochs, stops=options.stops)


if __name__ == "__main__":
    main()
