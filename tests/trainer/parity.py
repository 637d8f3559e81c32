"""Which models train as plain Keras `fit` on one device would at the same global batch; the cases are a table.

A case names a model of `parity_models.py` and its data. The reference is Keras' own `fit`; the trainer runs it in every
cell (a strategy and a loop), and the figure is the largest absolute difference of any weight. All cases of a strategy
share one set of processes:

    python parity.py local OUT CASE[:CELL,CELL]...      reference, OneDevice, Mirrored and Pipeline, in this process
    python parity.py workers OUT CASE[:CELL,CELL]...    one worker of TF_CONFIG under MultiWorkerMirrored
    python parity.py servers OUT CASE[:CELL,CELL]...    one task of TF_CONFIG under ParameterServer

Each cell leaves CASE/CELL.npz with its weights, or CASE/CELL.json with the line of a refusal or a traceback.
The table is in `parity_cases.py`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from parity_cases import BATCH, BY_NAME, EPOCHS, MIRRORED, ONE, ONE_SERVER, PIPELINE, SEED, Case

STOPPED_AFTER = 5
"""Steps after which a run of the cell `resumed` is stopped, and goes on from its checkpoint."""


class Stop:
    """As `signals.Termination`: asked to stop once this many steps are done."""

    saves = False

    def __init__(self, progress_store: Any, after: int | None) -> None:
        self._store = progress_store
        self._after = after

    @property
    def requested(self) -> bool:
        """Whether it is time."""
        step = self._store.progress.step
        return self._after is not None and step is not None and step >= self._after


class Harness:
    """Runs the cells of one process."""

    def __init__(self, out: Path) -> None:
        self._out = out
        sys.path.insert(0, str(Path(__file__).parent))
        os.environ["KERAS_BACKEND"] = "tensorflow"

    def cell(self, case: Case, cell: str, run: Callable[[], list[Any]]) -> None:
        """Runs one cell, and writes what comes of it."""
        import keras
        import numpy as np

        from dtj_trainer.errors import TrainerError

        folder = self._out / case.name
        folder.mkdir(parents=True, exist_ok=True)
        keras.utils.clear_session()
        print(f"{case.name}: {cell}", flush=True)
        try:
            np.savez(folder / f"{cell}.npz", *run())
        except TrainerError as error:
            (folder / f"{cell}.json").write_text(json.dumps({"refused": str(error), "code": int(error.exit_code)}))
        except Exception:  # noqa: BLE001 - whatever it is, the next cell follows
            (folder / f"{cell}.json").write_text(json.dumps({"error": traceback.format_exc()}))
        finally:
            keras.mixed_precision.set_global_policy("float32")
            if "tf_keras" in sys.modules:
                sys.modules["tf_keras"].mixed_precision.set_global_policy("float32")

    def reference(self, case: Case) -> list[Any]:
        """Plain Keras."""
        import keras
        import parity_models

        if case.name.startswith("tf_keras"):
            import tf_keras

            tf_keras.utils.set_random_seed(SEED)
        keras.utils.set_random_seed(SEED)
        model = getattr(parity_models, case.reference or case.model)()
        data = getattr(parity_models, case.data)()["training"]
        if case.batch == BATCH:
            model.fit(data.batch(BATCH), epochs=EPOCHS, shuffle=False, verbose=0)
        else:
            # It does not divide the examples: batches run on over the end of an epoch, as the trainer's do.
            steps = -(-EPOCHS * int(data.cardinality()) // case.batch)
            model.fit(data.repeat().batch(case.batch).take(steps), shuffle=False, verbose=0)
        return [weight.numpy() for weight in model.weights]

    def trainer(
        self, case: Case, strategy: Any, *arguments: str, environ: Mapping[str, str], stop: int | None = None
    ) -> list[Any]:
        """The trainer's weights; what evaluation and export would be made of."""
        import importlib

        from dtj_launch.progress import ProgressStore
        from dtj_trainer.config import entry_points
        from dtj_trainer.config.parsing import parse
        from dtj_trainer.process.task_context import TaskContext
        from dtj_trainer.training.model import prepare
        from dtj_trainer.training.reporting import Run

        argv = [
            f"--model=parity_models:{case.model}", f"--data=parity_models:{case.data}", "--no-shuffle",
            f"--epochs={EPOCHS}", f"--batch-size={case.batch}", "--steps-per-call=4", "--progress-every=1000",
            *case.arguments, *arguments,
        ]  # fmt: skip
        config = parse(argv, {"DTJ_JOB_NAME": "parity", **environ})
        entry_points.check(config.user_code)
        store = ProgressStore()
        model, data = prepare(config)
        context = TaskContext(config=config, progress_store=store, termination=Stop(store, stop))  # type: ignore[arg-type]
        run = Run(context=context, model=model, data=data)
        others = {"Pipeline": "pipeline_parallel.leader", "ParameterServer": "training.parameter_server"}
        module = importlib.import_module(f"dtj_trainer.{others.get(config.strategy, 'training.synchronous')}")
        with _finishing(module) as found:
            if config.pipeline:
                _pipe(run)
            else:
                module.train(run, strategy)
        return found

    def cells(self, cases: list[Case], strategies: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        """Runs the cells of these strategies, by their names."""
        for case in cases:
            if ONE in strategies:
                self.cell(case, "reference", partial(self.reference, case))
            for cell in case.cells:
                kind, _, loop = cell.rpartition("-")
                if kind in strategies:
                    run = {"session": self.session, "resumed": self._resumed}.get(loop, self.trainer)
                    arguments = f"--strategy={kind.partition('-')[0]}", *(("--micro-batches=2",) * (kind == PIPELINE))
                    given = PIPED if kind == PIPELINE else environ
                    self.cell(case, cell, partial(run, case, strategies[kind], *arguments, environ=given))

    def local(self, cases: list[Case]) -> None:
        """All that needs one process."""
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        # One for all cases: the collectives of a second one would have the numbers of those of the first.
        one, mirrored = tf.distribute.OneDeviceStrategy("CPU:0"), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
        self.cells(cases, {ONE: one, MIRRORED: mirrored, PIPELINE: None}, {})

    def workers(self, cases: list[Case]) -> None:
        """What needs one process a worker; each runs this."""
        import tensorflow as tf

        cluster = json.loads(os.environ["TF_CONFIG"])
        kind = f"MultiWorkerMirrored-{len(cluster['cluster']['worker'])}"
        if index := cluster["task"]["index"]:
            self._out = self._out / f"worker-{index}"
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        self.cells(cases, {kind: strategy}, {"TF_CONFIG": os.environ["TF_CONFIG"]})

    def servers(self, cases: list[Case]) -> None:
        """What needs a coordinator, with one worker and one parameter server; each runs this."""
        import tensorflow as tf

        from dtj_trainer.training.parameter_server import make_parameter_server_strategy

        cluster = json.loads(os.environ["TF_CONFIG"])
        task = cluster["task"]
        if task["type"] != "chief":
            tf.distribute.Server(cluster["cluster"], job_name=task["type"], task_index=task["index"]).join()
        strategy = make_parameter_server_strategy()
        self.cells(cases, {ONE_SERVER: strategy}, {"TF_CONFIG": os.environ["TF_CONFIG"]})

    def session(self, case: Case, strategy: Any, *arguments: str, environ: Mapping[str, str]) -> list[Any]:
        """The weights after a loop of the user's own in a session, as docs/bring-your-own.md shows it."""
        import keras
        import parity_models
        import tensorflow as tf
        from parity_data import EXAMPLES

        from dtj_launch.progress import ProgressStore
        from dtj_trainer.config.parsing import parse
        from dtj_trainer.process.task_context import TaskContext
        from dtj_trainer.user_code.session import Session

        store = ProgressStore()
        config = parse([f"--script={__file__}", "--progress-every=1000", *arguments], environ)
        s = Session(TaskContext(config=config, progress_store=store, termination=Stop(store, None)), strategy)  # type: ignore[arg-type]
        if case.name.startswith("tf_keras"):
            import tf_keras

            tf_keras.utils.set_random_seed(SEED)
        keras.utils.set_random_seed(SEED)
        with s.strategy.scope():
            model = getattr(parity_models, case.model)()
            optimizer = model.optimizer
        s.checkpoint(model=model, optimizer=optimizer)
        data = getattr(parity_models, case.data)()["training"].repeat(EPOCHS).batch(case.batch)
        batches = iter(s.strategy.experimental_distribute_dataset(data.skip(s.step)))

        def learn(inputs: Any, labels: Any) -> Any:
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, outputs)
                loss = tf.reduce_sum(losses) / case.batch
                if model.losses:
                    loss += tf.add_n(model.losses) / s.strategy.num_replicas_in_sync
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        @tf.function
        def train_step(batch: Any) -> Any:
            return s.strategy.reduce("SUM", s.strategy.run(learn, args=batch), axis=None)

        for _ in s.steps(EPOCHS * EXAMPLES // case.batch):
            s.report(loss=train_step(next(batches)))
        return [weight.numpy() for weight in model.weights]

    def _resumed(self, case: Case, strategy: Any, *arguments: str, environ: Mapping[str, str]) -> list[Any]:
        from dtj_trainer.errors import Preempted

        arguments = (*arguments, f"--checkpoint-dir={self._out / case.name / 'resumed'}", "--steps-per-call=1")
        try:
            self.trainer(case, strategy, *arguments, environ=environ, stop=STOPPED_AFTER)
        except Preempted:
            return self.trainer(case, strategy, *arguments, environ=environ)
        raise RuntimeError("it was not stopped")


def chosen(text: str) -> Case:
    """`CASE` or `CASE:CELL,CELL`: the case with these cells alone."""
    name, _, cells = text.partition(":")
    return replace(BY_NAME[name], cells=tuple(cells.split(","))) if cells else BY_NAME[name]


PIPED = {
    "TF_CONFIG": json.dumps(
        {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, "task": {"type": "worker", "index": 0}}
    )
}
"""The environment of a pipeline of two stages."""


@contextmanager
def _finishing(module: Any) -> Iterator[list[Any]]:
    """What would be evaluated and exported is kept instead."""
    found: list[Any] = []
    instead: dict[str, Callable[..., Any]] = {
        "finish": lambda *_, weights, **__: found.extend(weights),
        # These leave words at the coordination service that no second job of a process can leave.
        "agree_on_data": lambda *_, **__: None,
    }
    with patch.multiple(module, **{name: one for name, one in instead.items() if hasattr(module, name)}):
        yield found


def _pipe(run: Any) -> None:
    """A pipeline of two stages over the logical devices of this process, in place of workers."""
    from dtj_trainer.pipeline_parallel import leader

    here = {"_device": lambda task: f"/CPU:{task.index}", "_heartbeat": lambda run: nullcontext()}
    with patch.multiple(leader, **here):
        leader.train(run)


if __name__ == "__main__":
    where, out, *entry_points = sys.argv[1:]
    harness = Harness(Path(out))
    getattr(harness, where)([chosen(name) for name in entry_points])
    sys.stdout.flush()
    # The end of a strategy over several processes waits for the others, and may take long.
    os._exit(0)
