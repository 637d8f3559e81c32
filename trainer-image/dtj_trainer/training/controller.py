"""The outer loop of every strategy: from the first step to the last, in calls that each end in an agreement.

An inner loop takes the steps. What happens between its calls is here, once: checkpoints, validations and other
actions, progress, the end at a signal, and what `--on-nan` asks for. Imports TensorFlow.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dtj_launch.ledger import Doing
from dtj_launch.progress import Phase
from dtj_trainer.checkpoint.checkpointing import Checkpointing
from dtj_trainer.checkpoint.compared_replicas import ComparedReplicas
from dtj_trainer.checkpoint.finite_weights import NotFiniteState
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.config.nonfinite import SKIP, workers_of
from dtj_trainer.distribution.agreement import Vote
from dtj_trainer.distribution.stall_watch import Watch
from dtj_trainer.training.actions import Action, Pause
from dtj_trainer.training.metric_values import Measured
from dtj_trainer.training.reporting import Reporter, Run, Summaries
from dtj_trainer.training.skipped_steps import SkippedSteps
from dtj_trainer.training.stepping import Course, steps_within

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """One call: means over all its examples and what was agreed, the same on all tasks."""

    metrics: Measured
    """Empty if the call measured no example."""
    steps: int
    """Steps that were taken: as many as asked for, unless the workers take them at their own pace."""
    stop: bool
    save: bool
    next_steps: int | None
    """Steps of the next call; None: the controller decides by its own pace."""
    not_finite_step: int | None = None
    """Of the steps of this call, counted from 1, the first whose loss is not finite on some replica."""
    not_finite_is_exact: bool = True
    """Whether it is that step, and not one before it."""
    not_finite_replicas: Sequence[int] = ()
    """The replicas with such a loss in that step."""
    not_finite_workers: Sequence[str] = ()
    """The workers that had such a loss, where workers are no replicas of one another."""
    skipped: int = 0
    """Steps whose update was not applied; the means leave them out."""
    waited: float | None = None
    """Seconds in all so far that this task waited for others, which is its own; None if there are no others."""


class InnerLoop(Protocol):
    """Takes the steps of one model. The controller decides how many, and what happens between the calls."""

    @property
    def first_steps(self) -> int:
        """Steps of the first call, at most."""
        ...

    def run(self, iterator: Any, steps: int, vote: Callable[[], Vote]) -> StepResult:
        """Takes steps, and agrees with the other tasks on what comes next.

        If the result has `stop` or `save`, or this number of steps is reached, no step is under way any more. Workers
        that take steps at their own pace may then have taken a few more.

        Args:
            iterator: the batches.
            steps: at most; all tasks ask for the same number.
            vote: what this task wants now. A collective asks for it before its call, which carries the agreement; a
                coordinator, which decides alone, asks as late as it can.
        """
        ...

    def find_not_finite(self) -> NotFiniteState | None:
        """What of the weights and of the optimizer's state is not finite and must be; it is the same on all tasks."""
        ...


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
        watch: Watch,
        actions: Sequence[Action] = (),
        replicas: ComparedReplicas | None = None,
        all_tasks_save: bool = True,
    ) -> None:
        """Args:
        store: of the checkpoints, restored.
        strategy: of a collective; None if one process decides alone.
        counter: int64 tf.Variable; the steps done, as the checkpoints hold it.
        course: which examples the steps take, and the last step.
        watch: of the steps; entered in `train`.
        replicas, all_tasks_save: see `Checkpointing`.
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
            ledger=run.progress_store.ledger,
            replicas=replicas,
            all_tasks_save=all_tasks_save,
        )  # fmt: skip
        self.summaries = Summaries(config.log_dir / "train" if config.log_dir and config.cluster.leads else None)
        self.reporter = Reporter(run, self.summaries, course=course, step=self.first_step)
        self._next_steps = inner.first_steps
        self._wanted = 1
        self._skipped = SkippedSteps()

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
            ReplicasDiffer: replicas do not hold the same bits.
        """
        run = self._run
        run.progress_store.update(phase=Phase.TRAINING, last_checkpoint_step=self._store.last_step)
        run.progress_store.ledger.resumed(self.step)
        run.termination.saves = self._store.enabled
        try:
            with self._watch:
                self._catch_up()
                batches = iter(stream(self.step))
                while self.step < self.total_steps:
                    steps, began = self._steps_of_call(), time.monotonic()
                    with self._watch.waiting():
                        result = self._inner.run(batches, steps, self._vote)
                    self._conclude(result, seconds=time.monotonic() - began)
                self.save()
                run.progress_store.ledger.enter(Doing.OTHER)
                run.termination.saves = False
                finalize()
        finally:
            self.summaries.flush()
            self._checkpoints.ended()

    def save(self) -> None:
        """Saves the step that the loop stands at, unless it is saved; on all tasks, or on none."""
        self._checkpoints.save(self.step)

    def _steps_of_call(self) -> int:
        """How many steps the next call takes: it ends where something is due."""
        schedules = (*self._checkpoints.schedules, *(action.schedule for action in self._actions))
        limits = (schedule.steps_until_due(self.step) for schedule in schedules)
        return min(self._next_steps, self.total_steps - self.step, *limits)

    def _conclude(self, result: StepResult, *, seconds: float) -> None:
        """Does all that follows a call, which took so long.

        Raises:
            NotFinite, Preempted: as in `train`.
        """
        self._watch.feed()
        self._run.progress_store.ledger.took(self.step, self.step + result.steps)
        self.step += result.steps
        self._wanted = steps_within(self._run.config.steps_per_call, result.steps / seconds)
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
        saves = result.save or self._checkpoints.are_due(before, self.step)
        due = [each for each in self._actions if each.schedule.was_due(before, self.step)]
        if result.stop:
            due = [each for each in due if each.changes_training]
        if result.stop or saves or due:
            self._checkpoints.require_sound(self.step)
        if measured := _measured_in(result):
            for action in self._actions:
                action.observe(measured)
        stops = result.stop
        for action in due:
            stops |= not self._perform(action)
        if stops or self.step >= self.total_steps:
            self.save()
        elif saves:
            self._checkpoints.save_async(before, self.step, asked=result.save)
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
        with self._run.progress_store.ledger.state(action.doing):
            save = partial(self._checkpoints.save_if_possible, self.step)
            done = action.run(Pause(step=self.step, alive=self._watch.begin, save=save))
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
        return shown | ({"skipped_steps": self._skipped.count} if self._skipped.count else {})

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
        self._skipped.count += result.skipped
        if self._skipped.are_too_many:
            raise self._checkpoints.not_finite(
                "the loss or a gradient is", step, replicas, workers=result.not_finite_workers
            )
        if cluster.leads:
            workers = result.not_finite_workers or workers_of(
                cluster, replicas, total=self._strategy.num_replicas_in_sync
            )
            log.warning(self._skipped.describe(step, result.skipped, workers))


def _measured_in(result: StepResult) -> Measured:
    """The metrics of a call; nothing if the update of each of its steps was skipped."""
    return _NOTHING if result.skipped and result.skipped == result.steps else result.metrics
