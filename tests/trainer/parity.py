"""Which models train as plain Keras `fit` on one device would at the same global batch; the cases are a table.

A case names a function of `parity_models.py` that returns a compiled model, and one that returns its data. The
reference is Keras' own `fit`; the trainer runs it in every cell (a strategy and a loop), and the figure is the largest
absolute difference of any weight. All cases of a strategy share one set of processes:

    python parity.py local OUT CASE[:CELL,CELL]...      reference, OneDevice, Mirrored and Pipeline, in this process
    python parity.py workers OUT CASE[:CELL,CELL]...    one worker of TF_CONFIG under MultiWorkerMirrored

Each cell leaves CASE/CELL.npz with its weights, or CASE/CELL.json with the line of a refusal or a traceback.
To add a case, add a line to CASES, and a function to `parity_models.py` that has its name.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

BATCH = 24
EPOCHS = 3
SEED = 0
STOPPED_AFTER = 5
"""Steps after which a run of the cell `resumed` is stopped, and goes on from its checkpoint."""

ONE, MIRRORED, PIPELINE = "OneDevice", "Mirrored", "Pipeline"
TWO_WORKERS, THREE_WORKERS = "MultiWorkerMirrored-2", "MultiWorkerMirrored-3"
LOCAL = (f"{ONE}-custom", f"{ONE}-fit", f"{ONE}-resumed", f"{MIRRORED}-custom", f"{MIRRORED}-fit")
WORKERS = (f"{TWO_WORKERS}-custom",)
FITTING_WORKERS = (f"{TWO_WORKERS}-fit",)
THREE = (f"{THREE_WORKERS}-custom",)
PIPED = (f"{PIPELINE}-custom",)
FITTED = (f"{ONE}-fit", f"{ONE}-resumed_fit", f"{MIRRORED}-fit", f"{TWO_WORKERS}-fit")
SESSIONS = (f"{ONE}-session", f"{MIRRORED}-session", f"{TWO_WORKERS}-session")
ALL = (*LOCAL, *WORKERS)
CHEAP = (f"{ONE}-custom", f"{ONE}-resumed", f"{MIRRORED}-custom", *PIPED)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the table.

    Attributes:
        name: of the function in `parity_models.py` that returns the compiled model.
        data: of the function there that returns the data.
        arguments: of the trainer, next to those of all cases.
        reference: of the function that returns the model for plain Keras, where it is another one.
        fit: of the function that returns more arguments for Keras' `fit`, such as `callbacks`.
        cells: where it is run.
        tolerance: largest absolute difference of any weight.
        refused: cell, or the beginning of its name -> pattern that the line of the refusal begins with.
    """

    name: str
    data: str = "points"
    arguments: tuple[str, ...] = ()
    reference: str | None = None
    fit: str | None = None
    batch: int = BATCH
    cells: tuple[str, ...] = ALL
    tolerance: float = 1e-6
    refused: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, cell: str) -> str | None:
        """The pattern of the line that this cell is refused with; None where it has to be equal."""
        return next((line for start, line in self.refused.items() if cell.startswith(start)), None)


CLASS_WEIGHTS = ("--class-weights=0:1,1:2.5,2:0.25",)
NO_PIPELINE = {PIPELINE: "--model=.*: strategy Pipeline takes the mean of one loss"}
CASES: tuple[Case, ...] = (
    Case(name="adam", cells=(*ALL, *FITTING_WORKERS, *THREE, *PIPED, *SESSIONS)),
    Case(name="adam_uneven", batch=25, reference="adam"),
    Case(name="momentum"),
    Case(name="penalties", cells=(*ALL, *FITTING_WORKERS, *PIPED, *SESSIONS)),
    Case(name="schedule", cells=(*ALL, *FITTING_WORKERS, *SESSIONS)),
    Case(name="tf_keras_adam", cells=(*ALL, *FITTING_WORKERS, *SESSIONS)),
    Case(name="positions", data="tokens", cells=(*ALL, *PIPED), tolerance=5e-6),
    Case(name="masked", data="tokens", cells=(*ALL, *FITTING_WORKERS, *THREE, *PIPED), refused=NO_PIPELINE),
    Case(name="masked_by_weight", data="tokens", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="masked_sum", data="tokens", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="ignore_class", data="ignored", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="summed", cells=(*ALL, *PIPED), refused=NO_PIPELINE),
    Case(name="loss_weights", cells=(*ALL, *FITTING_WORKERS, *PIPED), refused=NO_PIPELINE),
    Case(name="sample_weights", data="weighted", cells=(*ALL, *FITTING_WORKERS, *PIPED), refused=NO_PIPELINE),
    Case(name="mean_by_weight", data="weighted"),
    Case(
        name="class_weights",
        fit="class_weighted",
        arguments=CLASS_WEIGHTS,
        cells=(*ALL, *FITTING_WORKERS, *PIPED),
        refused=NO_PIPELINE,
    ),
    Case(name="class_weights_one_hot", data="one_hot_points", fit="class_weighted", arguments=CLASS_WEIGHTS),
    Case(name="weights_not_reduced", refused={"": "--model=.*: its loss .* is compiled with reduction=None"}),
    Case(name="multi_label", data="multi_label_points", cells=(*ALL, *PIPED)),
    Case(name="own_loss", cells=(*ALL, *PIPED)),
    Case(name="bfloat16_outputs", tolerance=2e-3),
    Case(name="float64_outputs"),
    Case(
        name="mixed_weights",
        refused=dict.fromkeys((MIRRORED, "MultiWorkerMirrored"), "--model=.*: weights of float32 and float64"),
    ),
    Case(name="subclassed", cells=(*ALL, *FITTING_WORKERS)),
    Case(name="without_input"),
    Case(name="tf_keras_without_input"),
    Case(name="metrics", cells=(*ALL, *FITTING_WORKERS)),
    Case(name="tf_keras_metrics", cells=(*ALL, *FITTING_WORKERS)),
    Case(name="area_under_curve", data="yes_or_no", cells=(*ALL, *FITTING_WORKERS)),
    Case(name="ragged", data="ragged_tokens", cells=(*ALL, *FITTING_WORKERS, *THREE, *PIPED)),
    Case(name="ragged_uneven", data="ragged_tokens", reference="ragged", batch=25),
    Case(name="tf_keras_ragged", data="ragged_tokens", cells=(*ALL, *FITTING_WORKERS)),
    Case(name="several", data="pairs", cells=(*ALL, *FITTING_WORKERS, *PIPED), refused=NO_PIPELINE),
    Case(
        name="compute_loss",
        refused=dict.fromkeys(("Mirrored", "MultiWorkerMirrored"), r"--model=.*: OwnLoss.compute_loss is not known"),
    ),
    Case(name="train_step", cells=(f"{ONE}-fit", f"{MIRRORED}-fit", f"{TWO_WORKERS}-fit")),
    Case(name="uncompiled_loss", cells=(f"{ONE}-fit",)),
    Case(
        name="own_mean",
        cells=(f"{ONE}-custom", f"{ONE}-fit", f"{MIRRORED}-fit", f"{TWO_WORKERS}-fit"),
        refused={
            f"{ONE}-custom": "--model=.*: OwnMean has a train_step of its own",
            **dict.fromkeys((MIRRORED, "MultiWorkerMirrored"), "OwnMean.train_step takes gradients of something else"),
        },
    ),
    Case(
        name="own_term",
        cells=(f"{ONE}-fit", f"{MIRRORED}-fit", f"{TWO_WORKERS}-fit"),
        refused=dict.fromkeys((MIRRORED, "MultiWorkerMirrored"), "OwnTerm.train_step takes gradients of something"),
    ),
    Case(name="tf_keras_masked", data="tokens"),
    Case(name="tf_keras_weights", data="weighted"),
    Case(name="normalised_penalties", cells=(*ALL, *FITTING_WORKERS)),
    Case(name="normalised_raw", data="raw_points", tolerance=2e-3),
    Case(name="normalised_masked", data="tokens"),
    Case(name="tf_keras_normalised_raw", data="raw_points", tolerance=2e-3),
    Case(
        name="own_state", refused=dict.fromkeys((MIRRORED, "MultiWorkerMirrored"), "--model=.*/mean depends on the ex")
    ),
    Case(name="counting"),
    Case(name="unseeded"),
    Case(name="stateful", data="series", refused={"": "--model=.*: the model takes batches of 24 and no others"}),
    Case(name="mixed_float16", cells=(*ALL, *FITTING_WORKERS, *PIPED), tolerance=2e-3),
    Case(name="mixed_float16_schedule", tolerance=2e-3),
    Case(name="mixed_float16_overflow", cells=(*ALL, *PIPED), tolerance=2e-3),
    Case(name="mixed_bfloat16", cells=(*ALL, *PIPED), tolerance=2e-2),
    Case(name="loss_scale_by_hand", cells=(*ALL, *PIPED)),
    Case(name="loss_scale_that_grows"),
    Case(name="loss_scale_factor", cells=(*ALL, *PIPED)),
    Case(name="tf_keras_mixed_float16", tolerance=2e-3),
    Case(name="tf_keras_loss_scale_by_hand"),
    Case(name="clipnorm", cells=(*ALL, *FITTING_WORKERS, *THREE, *PIPED, *SESSIONS)),
    Case(name="clipvalue", cells=(*ALL, *PIPED)),
    Case(
        name="global_clipnorm",
        cells=(*ALL, *FITTING_WORKERS, *THREE, *PIPED, *SESSIONS),
        refused={PIPELINE: "strategy Pipeline: the model was compiled with global_clipnorm=0.1"},
    ),
    Case(name="tf_keras_global_clipnorm"),
    Case(name="rate_as_a_function", cells=(*ALL, *PIPED)),
    Case(name="rate_of_a_callback", fit="with_rates", arguments=("--callbacks=parity_models:rates",), cells=FITTED),
    Case(
        name="rate_on_a_plateau",
        fit="with_plateaus",
        arguments=("--callbacks=parity_models:plateaus",),
        cells=(f"{ONE}-fit", f"{MIRRORED}-fit", f"{TWO_WORKERS}-fit"),
    ),
    Case(
        name="tf_keras_rate_of_a_callback",
        fit="tf_keras_with_rates",
        arguments=("--callbacks=parity_models:tf_keras_rates",),
        cells=FITTED,
    ),
    Case(name="average", cells=(*ALL, *FITTING_WORKERS, *PIPED)),
    Case(name="average_that_overwrites", cells=(*ALL, *PIPED)),
    Case(name="tf_keras_average"),
    *(
        Case(name=f"keras_{name}", cells=CHEAP)
        for name in (
            "adadelta",
            "adafactor",
            "adagrad",
            "adamax",
            "ftrl",
            "lamb",
            "lion",
            "muon",
            "nadam",
            "rmsprop",
            "schedulefreeadamw",
        )
    ),
    Case(
        name="named",
        reference="weight_decay_everywhere",
        arguments=("--optimizer=adamw", "--learning-rate=0.05", "--optimizer-options=weight_decay=0.5,epsilon=1e-5"),
        cells=CHEAP,
    ),
    Case(
        name="several_optimizers",
        cells=(f"{ONE}-custom",),
        refused={"": "the model was compiled with a MultiOptimizer; compile it with one optimizer"},
    ),
    Case(
        name="made_outside",
        reference="momentum",
        cells=(f"{MIRRORED}-custom", f"{MIRRORED}-fit", *WORKERS),
        refused={"": "the model was compiled with a SGD that was made outside of the function that builds the model"},
    ),
    Case(
        name="legacy_optimizer",
        cells=(f"{ONE}-custom",),
        refused={"": "the model was compiled with tf_keras.src.optimizers.legacy.gradient_descent.SGD;"},
    ),
    Case(name="accumulation", cells=(*ALL, *FITTING_WORKERS, *THREE, *PIPED, *SESSIONS)),
    Case(
        name="accumulation_with_all",
        cells=(*ALL, *PIPED),
        refused={PIPELINE: "strategy Pipeline: the model was compiled with global_clipnorm=0.05"},
    ),
    Case(name="constraint", cells=(*ALL, *PIPED)),
    Case(name="weight_decay", cells=(*ALL, *PIPED)),
)
BY_NAME = {case.name: case for case in CASES}


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

        from dtj_trainer.process.errors import TrainerError

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
        model = getattr(parity_models, case.reference or case.name)()
        more = getattr(parity_models, case.fit)() if case.fit else {}
        data = getattr(parity_models, case.data)()["training"]
        if case.batch == BATCH:
            model.fit(data.batch(BATCH), epochs=EPOCHS, shuffle=False, verbose=0, **more)
        else:
            # It does not divide the examples: batches run on over the end of an epoch, as the trainer's do.
            steps = -(-EPOCHS * int(data.cardinality()) // case.batch)
            model.fit(data.repeat().batch(case.batch).take(steps), shuffle=False, verbose=0, **more)
        return [weight.numpy() for weight in model.weights]

    def trainer(
        self, case: Case, strategy: Any, *arguments: str, environ: Mapping[str, str], stop: int | None = None
    ) -> list[Any]:
        """The trainer's weights; what evaluation and export would be made of."""
        import importlib

        from dtj_launch.progress import ProgressStore
        from dtj_trainer import problem
        from dtj_trainer.config.parsing import parse
        from dtj_trainer.process.task_context import TaskContext
        from dtj_trainer.training.reporting import Run
        from dtj_trainer.user_code import entry_points

        argv = [
            f"--model=parity_models:{case.name}", f"--data=parity_models:{case.data}", "--no-shuffle",
            f"--epochs={EPOCHS}", f"--batch-size={case.batch}", "--steps-per-call=4", "--progress-every=1000",
            *case.arguments, *arguments,
        ]  # fmt: skip
        config = parse(argv, {"DTJ_JOB_NAME": "parity", **environ})
        entry_points.check(config.user_code)
        store = ProgressStore()
        task, data = problem.prepare(config)
        context = TaskContext(config=config, progress_store=store, termination=Stop(store, stop))  # type: ignore[arg-type]
        run = Run(context=context, task=task, data=data)
        module = "dtj_trainer.pipeline_parallel.leader" if config.pipeline else "dtj_trainer.training.synchronous"
        with _finishing(importlib.import_module(module)) as found:
            if config.pipeline:
                _pipe(run)
            else:
                importlib.import_module(module).train(run, strategy)
        return found

    def local(self, cases: list[Case]) -> None:
        """All that needs one process."""
        import tensorflow as tf

        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        # One for all cases: the collectives of a second one would have the numbers of those of the first.
        strategies = {
            ONE: tf.distribute.OneDeviceStrategy("CPU:0"),
            MIRRORED: tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
        }
        for case in cases:
            self.cell(case, "reference", lambda case=case: self.reference(case))
            for cell in case.cells:
                kind, _, loop = cell.rpartition("-")
                if kind == PIPELINE:
                    environ = _cluster({"worker": ["127.0.0.1:1", "127.0.0.1:2"]})
                    arguments = ("--strategy=Pipeline", "--micro-batches=2")
                    self.cell(
                        case, cell,
                        lambda case=case, a=arguments, e=environ: self.trainer(case, None, *a, environ=e),
                    )  # fmt: skip
                elif kind in strategies:
                    run = self._resumed if loop.startswith("resumed") else self._straight
                    strategy = strategies[kind]
                    self.cell(case, cell, lambda case=case, s=strategy, k=kind, r=run, loop=loop: r(case, s, k, loop))

    def session(self, case: Case, strategy: Any, *arguments: str, environ: Mapping[str, str]) -> list[Any]:
        """The weights after a loop of the user's own in a session, as docs/bring-your-own.md shows it."""
        import keras
        import parity_models
        import tensorflow as tf

        from dtj_launch.progress import ProgressStore
        from dtj_trainer.config.parsing import parse
        from dtj_trainer.process.task_context import TaskContext
        from dtj_trainer.training.session import Session

        store = ProgressStore()
        config = parse([f"--script={__file__}", "--progress-every=1000", *arguments], environ)
        s = Session(TaskContext(config=config, progress_store=store, termination=Stop(store, None)), strategy)  # type: ignore[arg-type]
        if case.name.startswith("tf_keras"):
            import tf_keras

            tf_keras.utils.set_random_seed(SEED)
        keras.utils.set_random_seed(SEED)
        with s.strategy.scope():
            model = getattr(parity_models, case.name)()
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

        for _ in s.steps(EPOCHS * parity_models.EXAMPLES // case.batch):
            s.report(loss=train_step(next(batches)))
        return [weight.numpy() for weight in model.weights]

    def _straight(self, case: Case, strategy: Any, kind: str, loop: str) -> list[Any]:
        if loop == "session":
            return self.session(case, strategy, f"--strategy={kind}", environ={})
        return self.trainer(case, strategy, f"--strategy={kind}", f"--loop={loop}", environ={})

    def _resumed(self, case: Case, strategy: Any, kind: str, loop: str) -> list[Any]:
        from dtj_trainer.process.errors import Preempted

        folder, loop = self._out / case.name / loop, loop.removeprefix("resumed").removeprefix("_") or "custom"
        arguments = (f"--strategy={kind}", f"--checkpoint-dir={folder}", "--steps-per-call=1", f"--loop={loop}")
        try:
            self.trainer(case, strategy, *arguments, environ={}, stop=STOPPED_AFTER)
        except Preempted:
            return self.trainer(case, strategy, *arguments, environ={})
        raise RuntimeError("it was not stopped")

    def workers(self, cases: list[Case]) -> None:
        """What needs one process a worker; each runs this."""
        import tensorflow as tf

        cluster = json.loads(os.environ["TF_CONFIG"])
        kind = f"MultiWorkerMirrored-{len(cluster['cluster']['worker'])}"
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        leads = cluster["task"]["index"] == 0
        if not leads:
            self._out = self._out / f"worker-{cluster['task']['index']}"
        for case in cases:
            for cell in case.cells:
                if cell.startswith(kind):
                    loop = cell.rpartition("-")[2]
                    arguments: tuple[str, ...] = ("--strategy=MultiWorkerMirrored",)
                    arguments += () if loop == "session" else (f"--loop={loop}",)
                    run = self.session if loop == "session" else self.trainer
                    environ = {"TF_CONFIG": os.environ["TF_CONFIG"]}
                    self.cell(
                        case, cell,
                        lambda case=case, r=run, a=arguments, e=environ: r(case, strategy, *a, environ=e),
                    )  # fmt: skip


def chosen(text: str) -> Case:
    """`CASE` or `CASE:CELL,CELL`: the case with these cells alone."""
    name, _, cells = text.partition(":")
    return replace(BY_NAME[name], cells=tuple(cells.split(","))) if cells else BY_NAME[name]


def _cluster(cluster: Mapping[str, list[str]]) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}})}


@contextmanager
def _finishing(module: Any) -> Iterator[list[Any]]:
    """What would be evaluated and exported is kept instead; tasks do not part, since the next case follows."""
    found: list[Any] = []
    before = {name: getattr(module, name) for name in ("finish", "part", "agree_on_data") if hasattr(module, name)}
    module.finish = lambda *_, weights, **__: found.extend(weights)
    module.part = lambda *_, **__: None
    # It leaves words at the coordination service that no second job of a process can leave.
    module.agree_on_data = lambda *_, **__: None
    try:
        yield found
    finally:
        for name, function in before.items():
            setattr(module, name, function)


def _pipe(run: Any) -> None:
    """A pipeline of two stages over the logical devices of this process, in place of workers."""
    from contextlib import nullcontext

    from dtj_trainer.pipeline_parallel import leader

    before = leader._devices, leader._device, leader._heartbeat
    leader._devices = lambda layout: [[f"/CPU:{index}" for index in range(layout.stages)]] * layout.replicas
    leader._device = lambda task: "/CPU:0"
    leader._heartbeat = lambda run: nullcontext()  # type: ignore[assignment,return-value]
    try:
        leader.train(run)
    finally:
        leader._devices, leader._device, leader._heartbeat = before


if __name__ == "__main__":
    where, out, *entry_points = sys.argv[1:]
    harness = Harness(Path(out))
    getattr(harness, where)([chosen(name) for name in entry_points])
    sys.stdout.flush()
    # The end of a strategy over several processes waits for the others, and may take long.
    os._exit(0)
