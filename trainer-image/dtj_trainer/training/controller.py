"""The outer loop of every strategy: from the first step to the last, in calls that each end in an agreement.

An inner loop takes the steps. What happens between its calls is here, once: checkpoints, validations and other
actions, progress, the end at a signal, and what `--on-nan` asks for. Imports TensorFlow.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dtj_launch.progress import Phase
from dtj_trainer.checkpoint.checkpointing import Checkpointing
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.config.nonfinite import LIMIT, SKIP, on_which, workers_of
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.distribution.stall_watch import StallWatch
from dtj_trainer.training.actions import Action, Pause
from dtj_trainer.training.inner_loop import InnerLoop, StepResult
from dtj_trainer.training.metric_values import Measured
from dtj_trainer.training.reporting import Reporter, Run, Summaries
from dtj_trainer.training.stepping import Course, steps_within

log = logging.getLogger(__name__)


_NOTHING = Measured([], lambda _: {})


class Controller:
    """Takes an inner loop from the step that was restored to the last one."""

    def __init__(
        self,
        run: Run,
        inner: InnerLoop,
        store: Store,
        *,
        strategy: Any,
        counter: Any,
        course: Course,
        watch: StallWatch,
        actions: Sequence[Action] = (),
        all_tasks_save: bool = True,
    ) -> None:
        """Args:
        store: of the checkpoints, restored.
        strategy: of a collective; None if one process decides alone.
        counter: int64 tf.Variable; the steps done, as the checkpoints hold it.
        course: which examples the steps take, and the last step.
        watch: of the steps; entered in `train`.
        all_tasks_save: see `Checkpointing`.
        """
        config = run.config
        self._run = run
        self._inner = inner
        self._store = store
        self._strategy = strategy
        self._watch = watch
        self._actions = actions
        self._course = course
        self.total_steps = course.total_steps
        self.step = self.first_step = int(counter.numpy())
        self._checkpoints = Checkpointing(
            config, store, strategy,
            total_steps=self.total_steps,
            find_not_finite=inner.find_not_finite,
            saving=watch.saving,
            all_tasks_save=all_tasks_save,
        )  # fmt: skip
        self.summaries = Summaries(config.log_dir / "train" if config.log_dir and config.cluster.leads else None)
        self.reporter = Reporter(run, self.summaries, course=course, step=self.first_step)
        self._next_steps = inner.first_steps
        self._wanted = 1
        self._skipped = 0

    def introduce(self) -> None:
        """Reports which step the training begins with; to be called by the leader."""
        if line := self._checkpoints.resumed(self.first_step):
            log.info(line)
        elif not self._store.enabled:
            log.info("no checkpoint directory: a restart begins at step 0")
        config = self._run.config
        every = config.validation.every
        if every and every.epochs and (line := self._course.describe_whole_epochs()):
            log.info(line)

    def train(self, stream: Callable[[int], Any], *, finalize: Callable[[], object]) -> None:
        """Trains to the last step, and does what is due on the way.

        Args:
            stream: first step -> the batches from there on, distributed.
            finalize: what the last step leaves to do with the weights, on all tasks.

        Raises:
            NotFinite: the loss or the weights are not finite, too often or if that ends the training.
            Preempted: asked to stop; the step is saved.
        """
        run = self._run
        run.progress_store.update(phase=Phase.TRAINING, last_checkpoint_step=self._store.last_step)
        run.termination.saves = self._store.enabled
        try:
            with self._watch:
                self._watch.begin()
                self._catch_up()
                batches = iter(stream(self.step))
                while self.step < self.total_steps:
                    self._call(batches)
                self.save()
                run.termination.saves = False
                finalize()
        finally:
            self.summaries.flush()

    def save(self) -> None:
        """Saves the step that the loop stands at, unless it is saved; on all tasks, or on none."""
        self._checkpoints.save(self.step)

    def _call(self, iterator: Any) -> None:
        schedules = (self._checkpoints.by_number, *(action.schedule for action in self._actions))
        limits = (schedule.steps_until_due(self.step) for schedule in schedules)
        steps = min(self._next_steps, self.total_steps - self.step, *limits)
        began = time.monotonic()
        self._watch.in_call = True
        result = self._inner.run(iterator, steps, self._vote)
        self._watch.in_call = False
        self._watch.feed()
        self.step += result.steps
        self._wanted = steps_within(self._run.config.steps_per_call, result.steps / (time.monotonic() - began))
        self._next_steps = self._wanted if result.next_steps is None else result.next_steps
        self._check_loss(result)
        stops = self._act(result)
        if result.metrics:
            self._report(result)
        if stops:
            raise self._checkpoints.preempted(self.step)

    def _vote(self) -> Vote:
        return self._checkpoints.vote(stop=self._run.termination.requested, next_steps=self._wanted)

    def _act(self, result: StepResult) -> bool:
        """Does what is due after a call; returns whether the training stops here."""
        # Workers that take their steps at their own pace may be past the one after which something was due.
        before = self.step - result.steps
        saves = result.save or self._checkpoints.by_number.was_due(before, self.step)
        due = [each for each in self._actions if each.schedule.was_due(before, self.step)]
        if result.stop:
            due = [each for each in due if each.changes_training]
        if result.stop or saves or due:
            self._checkpoints.require_finite(self.step)
        if measured := _measured_in(result):
            for action in self._actions:
                action.observe(measured)
        stops = result.stop
        for action in due:
            stops |= not self._perform(action)
        if stops or self.step >= self.total_steps:
            self.save()
        elif saves:
            self._checkpoints.save_async(self.step)
        return stops

    def _catch_up(self) -> None:
        """Does what the run before this one could not do any more at the step that this one begins with.

        Raises:
            Preempted: asked to stop.
        """
        for action in self._actions:
            if action.is_overdue and not self._perform(action):
                self.save()
                raise self._checkpoints.preempted(self.step)

    def _perform(self, action: Action) -> bool:
        """Runs an action on all tasks; False if one of them was asked to stop meanwhile."""
        began = time.monotonic()
        # The first one traces.
        self._watch.begin()
        done = action.run(Pause(step=self.step, alive=self._watch.begin, save=self.save))
        if action.changes_training:
            self._checkpoints.moved()
        self._watch.feed()
        self.reporter.pause(time.monotonic() - began)
        return done

    def _report(self, result: StepResult) -> None:
        validated: dict[str, float] = {}
        for action in self._actions:
            validated |= action.values
        self.reporter.report(
            self.step, self._shown(result),
            validated=validated,
            last_checkpoint_step=self._store.last_step, waited=result.waited,
        )  # fmt: skip

    def _shown(self, result: StepResult) -> Mapping[str, float]:
        """The metrics of a call, and how many updates were skipped so far."""
        measured = _measured_in(result)
        shown = {name: value for name, value in measured.items() if math.isfinite(value) or not result.skipped}
        return shown | ({"skipped_steps": self._skipped} if self._skipped else {})

    def _check_loss(self, result: StepResult) -> None:
        """Makes sure that a call was finite, or that it may go on all the same.

        Raises:
            NotFinite: it was not.
        """
        if result.not_finite_step is None:
            return
        cluster = self._run.config.cluster
        step, replicas = self.step - result.steps + result.not_finite_step, result.not_finite_replicas
        if self._run.config.on_nan != SKIP:
            raise self._checkpoints.not_finite(
                "the loss is", step, replicas,
                workers=result.not_finite_workers, is_exact=result.not_finite_is_exact,
            )  # fmt: skip
        self._skipped += result.skipped
        if self._skipped > LIMIT:
            raise self._checkpoints.not_finite(
                "the loss or a gradient is", step, replicas, workers=result.not_finite_workers
            )
        if cluster.leads:
            workers = result.not_finite_workers or workers_of(
                cluster, replicas, total=self._strategy.num_replicas_in_sync
            )
            later = result.skipped - 1
            more = f", and so {'is that' if later == 1 else 'are those'} of {later} of the next steps" if later else ""
            log.warning(
                f"the loss or a gradient is not finite at step {step}{on_which(workers)}: its update is "
                f"skipped{more} ({self._skipped} of at most {LIMIT})"
            )


def _measured_in(result: StepResult) -> Measured:
    """The metrics of a call; nothing if the update of each of its steps was skipped."""
    return _NOTHING if result.skipped and result.skipped == result.steps else result.metrics
