"""The library: a loop of one's own that is checkpointed, resumed to the bit, stopped with the others, and seen.

    import dtj_trainer

    with dtj_trainer.session() as s:
        with s.strategy.scope():
            model, optimizer = ...
        s.checkpoint(model=model, optimizer=optimizer)      # restores the newest
        batches = iter(s.strategy.experimental_distribute_dataset(dataset.skip(s.step)))
        for _ in s.steps(1000):                             # saves when due, leaves with 42 when asked to stop
            s.report(loss=train_step(next(batches)))

Works in `--script` of the trainer, and under plain Python, where the session does what `--script` would have done:
start gate, status port, signals. All tasks have to go through the same sequence of calls. Imports TensorFlow.
"""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dtj_launch import progress
from dtj_launch.ledger import Doing
from dtj_launch.progress import DTJCallback
from dtj_trainer import keras_fit
from dtj_trainer.compat import LOSS
from dtj_trainer.config.cluster import CHIEF, EVALUATOR, Task
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.object_store import export_versions
from dtj_trainer.object_store.bucket import Bucket
from dtj_trainer.periodic import ComputeTimer, Every
from dtj_trainer.process import environment
from dtj_trainer.process.ending import end_with, leave_report
from dtj_trainer.process.output_directories import check_buckets, copied_logs
from dtj_trainer.process.task_context import TaskContext
from dtj_trainer.progress_line import progress_fields, progress_line
from dtj_trainer.training.stepping import steps_within

environment.prepare(os.environ)


# Before what follows: its import may install `keras_fit.override`, which imports some of that.
import keras  # noqa: E402, F401

from dtj_trainer import two_kerases  # noqa: E402
from dtj_trainer.checkpoint.checkpointing import Checkpointing, restore_together  # noqa: E402
from dtj_trainer.checkpoint.compared_replicas import ComparedReplicas  # noqa: E402
from dtj_trainer.checkpoint.finite_weights import FiniteWeights  # noqa: E402
from dtj_trainer.checkpoint.manager import Store  # noqa: E402
from dtj_trainer.checkpoint.state import HEADER, new_counter  # noqa: E402
from dtj_trainer.checkpoint.state import State as Saved  # noqa: E402
from dtj_trainer.distribution import collective_timing, strategies  # noqa: E402
from dtj_trainer.distribution.agreement import Vote, agree_on_vote, ending_together, exit_barrier  # noqa: E402
from dtj_trainer.distribution.stall_watch import State, loop_watch, sums_begun  # noqa: E402
from dtj_trainer.keras_fit.nan_losses import ReportedLosses  # noqa: E402
from dtj_trainer.user_code.session_start import made_strategy, remove_older_exports, task_context  # noqa: E402
from dtj_trainer.user_code.session_state import (  # noqa: E402
    adopt_parts,
    build_optimizers,
    check_keras,
    own_optimizers,
    require_built,
    set_by_layers,
    set_by_optimizers,
    sum_gradients_first,
    trained,
    variables_of,
    wait_for_fit,
)

log = logging.getLogger(__name__)

_CALLS_AT_MOST = 10_000
_LOOK_SECONDS = 0.5


@contextmanager
def begin() -> Iterator["Session"]:
    """A session from the start gate to the last barrier. What ends the job in between ends the process."""
    before = TaskContext.current
    try:
        context = TaskContext.current = before or task_context()
        if context.config.keras_override:
            keras_fit.install_when_imported(context.config)
        check_buckets(context.config)
        remove_older_exports(context.config)
        session = Session(context, made_strategy(context))
        with (
            copied_logs(context.config),
            strategies.peer_loss(context.config),
            ending_together(context.config, collective=session._collective),
        ):
            try:
                yield session
                session._end()
            finally:
                session._checkpoints.ended()
    except TrainerError as error:
        end_with(error)
    finally:
        TaskContext.current = before


class Session:
    """What a loop needs of its job. Made by `dtj_trainer.session`."""

    def __init__(self, context: TaskContext, strategy: Any) -> None:
        config = context.config
        self.strategy = strategy
        """The tf.distribute strategy that DTJ_STRATEGY or TF_CONFIG ask for."""
        self.task: Task = config.cluster.task
        """This task's role and index."""
        self.is_leader = config.cluster.leads
        """Whether this is the task that writes, exports and logs progress; exactly one is."""
        self.export_dir: Path | None = config.export_dir
        self.log_dir: Path | None = config.log_dir
        self.step = 0
        """Steps done, by all runs so far: batches that the data must skip."""
        self._context = context
        self._store: Store | None = None
        self._counters: tuple[Any, Any] | None = None
        self._unnamed: dict[str, Any] = {}
        """The parts that wait for `fit` to build them."""
        self._collective = config.strategy == "MultiWorkerMirrored" and self.task.role != EVALUATOR
        self._ledger = context.progress_store.ledger
        self._losses = ReportedLosses(strategy)
        self._weights = FiniteWeights(())
        self._replicas: ComparedReplicas | None = None
        self._waiting = collective_timing.of(strategy, counts=True) if self._collective else None
        self._watch = loop_watch(config, self._state, kind="-session")
        self._own_part = ComputeTimer()
        self._checkpoints = self._checkpointing(None)
        self._calls, self._calls_until, self._agreed_at = 0, 1, time.monotonic()
        self._agreed_step, self._by_ones = 0, True
        self._details: dict[str, Any] = {}
        self._look = Every(_LOOK_SECONDS)
        self._line_due = Every(config.progress_seconds)

    def checkpoint(self, **parts: Any) -> int:
        """Says what a checkpoint holds, and restores the newest sound one; returns its step, 0 for a new start.

        Args:
            parts: models, optimizers, tf.Modules, tf.Variables, and lists and dicts of them, by name. Of Keras'
                models and optimizers the weights and all state, the learning rate, the optimizer that a model is
                compiled with and the state of dropout's random numbers included (but not of tf_keras, which only
                ParameterServer takes). Models have to be built, or be compiled, and be built by `fit`; an optimizer
                is built here where there is one model.

        Raises:
            UsageError: a part has no variables, or is of the other Keras; or the checkpoint is of other ones.
        """
        if self._store is not None:
            raise UsageError("session: checkpoint() was called twice; name all parts in one call")
        if reserved := {"step", "total_steps", HEADER} & parts.keys():
            raise UsageError(f"session: checkpoint({reserved.pop()}=...): this name is taken; choose another")
        check_keras(parts, self._context.config.strategy)
        coordinates = self._context.config.strategy == "ParameterServer"
        with self.strategy.scope():
            self._counters = new_counter(), new_counter()
            if not coordinates and wait_for_fit(parts):
                self._unnamed = parts
            else:
                require_built(parts)
        step, total = self._counters
        # Of what waits, the number of the step is restored first: it says which data are left.
        saved = Saved(step=step, total_steps=total) if self._unnamed else self._name(parts)
        self._store = Store.of(
            saved,
            self._context.config.checkpoint,
            writes=self.is_leader,
            io_device=Task(CHIEF, 0).cpu if coordinates else None,
        )
        if self.task.role == EVALUATOR:
            self._store.restore_newest()
        else:
            restore_together(self._context.config, self.strategy, self._store)
        self.step = self._agreed_step = int(step.numpy())
        self._ledger.resumed(self.step)
        if not self._unnamed:
            self._begin(saved)
        self._context.progress_store.update(step=self.step, last_checkpoint_step=self._store.last_step)
        return self.step

    def _name(self, parts: dict[str, Any]) -> Saved:
        """What a checkpoint of these parts holds; all models have weights."""
        assert self._counters is not None  # `checkpoint` has been called
        with self.strategy.scope():
            adopt_parts(self.strategy, parts)
            build_optimizers(parts)
            own = own_optimizers(parts)
            parts = parts | own
            if self.strategy.num_replicas_in_sync > 1 and self._context.config.strategy != "ParameterServer":
                sum_gradients_first(parts)
            weights = [each for name, part in parts.items() for each in trained(name, part)]
            variables = {name: variables_of(name, part, weights) for name, part in parts.items()}
        self._weights = FiniteWeights(
            two_kerases.variables(one for one, _ in weights),
            set_by_layers(parts),
            set_by_optimizers(parts),
            often=self._context.config.looks_often,
        )
        self._replicas = ComparedReplicas(
            self._context.config, self.strategy,
            [(f"{name}/{each}", one) for name, pairs in variables.items() for each, one in pairs],
        )  # fmt: skip
        step, total = self._counters
        return Saved(
            {name: [each for each, _ in pairs] for name, pairs in variables.items()},
            own,
            step=step,
            total_steps=total,
            **{name: [one for _, one in pairs] for name, pairs in variables.items()},
        )

    def _begin(self, saved: Saved) -> None:
        """Saves from now on: what a checkpoint holds is restored."""
        assert self._store is not None  # `checkpoint` has been called
        self._checkpoints = self._checkpointing(self._store)
        if self.is_leader and (line := self._checkpoints.resumed(self.step)):
            log.info(line)
            for name in saved.missing:
                log.warning(f"this checkpoint holds no state of {name}, which begins anew: it is of an older trainer")
        total = int(self._counters[1].numpy()) if self._counters else 0
        # After its last step, a script may evaluate for long, and has nothing to save.
        self._answer_requests(not 0 < total <= self.step)

    def _answer_requests(self, answers: bool) -> None:
        """Whether steps follow, by which a request to stop is answered; else the process leaves at once."""
        self._context.termination.saves = answers and self._store is not None and self._store.enabled

    def _restore_built(self) -> None:
        """Restores what waited for `fit` to build it.

        Raises:
            UsageError: a model has no weights even now; or the checkpoint is of other ones.
        """
        if self._unnamed and self._store is not None:
            require_built(self._unnamed)
            saved, self._unnamed = self._name(self._unnamed), {}
            self._store.take(saved)
            self._begin(saved)

    def steps(self, total: int) -> Iterator[int]:
        """Yields the number of each step that is left, from 0; its body takes that step. Ends with a checkpoint.

        Raises:
            Preempted: asked to stop; all tasks have saved the same step. The session makes it exit code 42.
            NotFinite: a loss that was reported, or a weight that is to be saved, is NaN or infinite.
            NotSaved: the last checkpoint could not be written.
        """
        require_built(self._unnamed)
        self._checkpoints.total_steps = total
        self._context.progress_store.update(total_steps=total)
        self._watch.begin()
        self._ledger.goes_on()
        self._answer_requests(True)
        try:
            while self.step < total:
                yield self.step
                self.advance()
                self._watch.done()
            self._save_last()
            self._ledger.enter(Doing.OTHER)
        finally:
            self._watch.rest()
        self._answer_requests(False)

    def advance(self, steps: int = 1) -> None:
        """Says that this many steps more are done; for loops that do not fit into `steps`, such as one call of many.

        Saves what is due, and agrees with the other tasks about twice a second. All tasks must call it as often.

        Raises:
            Preempted: asked to stop; all tasks have saved this step.
            NotFinite: a loss that was reported, or a weight that is to be saved, is NaN or infinite.
        """
        require_built(self._unnamed, waits=True)
        self._answer_requests(True)
        before, self.step = self.step, self.step + steps
        self._ledger.took(before, self.step)
        self._losses.taken(self.step)
        self._by_ones &= steps == 1
        self._show()
        asked, save = False, self._store is not None and self._checkpoints.are_due(before, self.step)
        self._calls += 1
        # Before a checkpoint all tasks agree that there is nothing in it that is not finite.
        if save or self._calls >= self._calls_until:
            agreed = self._agree()
            if agreed.stop and self._store is not None:
                self._checkpoints.save(self.step)
                raise self._checkpoints.preempted(self.step)
            asked = agreed.save
        if save or asked:
            self._checkpoints.save_async(before, self.step, asked=asked)

    def report(self, *, epoch: int | None = None, batch_size: int | None = None, **metrics: Any) -> None:
        """Says what the step under way measured, to be shown with it; costs nothing but when it is shown.

        That is about twice a second on the status port and, by the leader, less often in its log.

        Args:
            epoch: counted from 1.
            batch_size: examples in one step, over all replicas.
            metrics: whatever float() takes, or arrays; for one that is shown, the device is waited for. One of the name
                `loss` has to be finite: else the training ends, about half a second later and before it is saved.
        """
        self._watch.feed()
        self._report(metrics, epoch=epoch, batch_size=batch_size)

    def _report(
        self, metrics: Mapping[str, Any], *, epoch: int | None, batch_size: int | None, not_finite: Any = None
    ) -> None:
        if LOSS in metrics:
            self._losses.add(metrics[LOSS], not_finite)
        self._details = {"epoch": epoch, "batch_size": batch_size, "metrics": metrics}

    def check(self, step: Callable[[Any], Any], batch: Any) -> None:
        """Compares the gradients of a step of one's own on all replicas with those on one that has the whole batch.

        Nothing is updated, and all variables are as before. A line says that they are the same.

        Args:
            step: what `strategy.run` is given; its argument is a replica's part of a batch.
            batch: of a distributed dataset, or tensors of this task, which are divided among its replicas.

        Raises:
            UsageError: they differ, or nothing shows it, and `--unchecked` does not name the step.
        """
        if "dtj_trainer.keras_fit.override" not in sys.modules:
            raise UsageError(
                "session: check() needs the adapted Keras, which notes what optimizers are given; import keras before, "
                f"leave DTJ_KERAS_OVERRIDE on, and install keras=={keras_fit.TESTED_VERSIONS[-1]}.*"
            )
        from dtj_trainer.keras_fit import own_loop

        self._watch.feed()
        own_loop.check(self.strategy, step, batch, unchecked=self._context.config.unchecked)
        self._watch.feed()

    def callback(self, *, batch_size: int | None = None) -> DTJCallback:
        """For `fit` of either Keras: counts its batches as steps, saves, stops and shows as `steps` and `report` do."""
        return _FitCallback(self, batch_size=batch_size)

    def _show(self) -> None:
        total = self._checkpoints.total_steps
        if not self._look.due() and self.step != total:
            return
        last_checkpoint = self._store.last_step if self._store else None
        progress.report(
            step=self.step,
            total=total,
            last_checkpoint=last_checkpoint,
            step_seconds=self._own_part.mark(self.step, waited=float(self._waiting.seconds)) if self._waiting else None,
            **self._details,
        )
        if self.is_leader and (self._line_due.due() or self.step == total):
            shown = self._context.progress_store.progress
            log.info(progress_line(shown), extra=progress_fields(shown))

    def _state(self) -> State:
        """How far this task is, for the others to see while it hangs."""
        return sums_begun(self._waiting, f"step {self.step + 1}")

    def _checkpointing(self, store: Store | None) -> Checkpointing:
        evaluates = self.task.role == EVALUATOR
        return Checkpointing(
            self._context.config, store, self.strategy,
            total_steps=None,
            find_not_finite=lambda: None if evaluates else self._weights.find_not_finite(),
            saving=self._saving,
            ledger=self._ledger,
            replicas=None if evaluates else self._replicas,
        )  # fmt: skip

    @contextmanager
    def _saving(self, seconds: float) -> Iterator[None]:
        """While a checkpoint is written: it says where the loop stands, and may take its time."""
        assert self._counters is not None  # there is a store
        step, total = self._counters
        step.assign(self.step)
        total.assign(self._checkpoints.total_steps or 0)
        with self._watch.saving(seconds):
            yield

    def _agree(self) -> Vote:
        """What all tasks do now, and after how many calls they ask again."""
        now = time.monotonic()
        # The first calls trace and compile, so their pace says little: not too far ahead at once.
        wanted = min(4 * self._calls, steps_within(_CALLS_AT_MOST, self._calls / max(1e-6, now - self._agreed_at)))
        vote = self._checkpoints.vote(stop=self._context.termination.requested, next_steps=wanted)
        found = self._losses.first_not_finite()
        mine = 0 if found is None else found.step - self._agreed_step
        agreed, of_each = replace(vote, next_steps=wanted), [mine]
        if self._collective:
            agreed, of_each = agree_on_vote(self.strategy, vote, mine)
        if any(of_each):
            first = min(number for number in of_each if number)
            replicas = [replica for replica, number in enumerate(of_each) if number == first]
            if found is not None and found.replicas:
                replicas = list(found.replicas)
            elif len(replicas) == len(of_each):
                replicas = []  # a loss of all of them
            step = self._agreed_step + first
            raise self._checkpoints.not_finite("the loss is", step, replicas, is_exact=self._by_ones)
        self._agreed_at, self._calls, self._calls_until = now, 0, max(1, agreed.next_steps)
        self._agreed_step, self._by_ones = self.step, True
        return agreed

    def _save_last(self) -> None:
        """Saves the step that the loop ends with, if all tasks agree that it is finite."""
        self._losses.taken(self.step)
        if not self._checkpoints.is_saved(self.step):
            self._agree()
        self._checkpoints.save(self.step)

    def _end(self) -> None:
        """What is left to do when the loop is over, and all tasks have come here."""
        if self.step:  # What has been done with a model that waits was done without the weights of the checkpoint.
            require_built(self._unnamed, waits=True)
        self._save_last()
        self._ledger.enter(Doing.OTHER)
        self._answer_requests(False)
        self._upload_exports()
        self._context.progress_store.update(phase=progress.Phase.DONE, eta_seconds=None)
        leave_report(self._context.progress_store.document())
        if self._collective:
            exit_barrier(self._context.config)

    def _upload_exports(self) -> None:
        config = self._context.config
        if self.is_leader and config.export_location and self.export_dir:
            bucket = Bucket(config.export_location, option="--export-dir", retry_seconds=config.store.retry_seconds)
            export_versions.upload_all(bucket, self.export_dir)


class _FitCallback(DTJCallback):
    """The batches of `fit` are the session's steps."""

    looks_at_losses = True
    """By this, the adapted `fit` of Keras leaves it to the session."""

    def __init__(self, session: Session, *, batch_size: int | None) -> None:
        super().__init__(batch_size=batch_size)
        self._session = session
        self._model: Any = None

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self._model = model

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._session._restore_built()
        self._session._watch.begin()
        self._session._answer_requests(True)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._session._watch.feed()

    def _implements_test_batch_hooks(self) -> bool:
        return True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if (steps := self._params.get("steps")) and (epochs := self._params.get("epochs")):
            self._session._checkpoints.total_steps = self._session.step + steps * (epochs - epoch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # With several steps in one execution, `fit` calls this once for all of them.
        steps = batch + 1 - self._in_epoch
        self._in_epoch = batch + 1
        self._report(self._of_batch(logs))
        self._session.advance(steps)
        self._session._watch.done()

    def on_train_end(self, logs: Any = None) -> None:
        self._session._save_last()
        self._session._answer_requests(False)
        super().on_train_end(logs)
        self._session._watch.rest()

    def _report(self, logs: Any) -> None:
        override = sys.modules.get("dtj_trainer.keras_fit.override")
        not_finite = override.keras_callbacks.losses.replicas_of(self._model) if override else None
        self._session._report(logs or {}, epoch=self._epoch, batch_size=self._batch_size, not_finite=not_finite)
