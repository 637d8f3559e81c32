"""When a loop saves, that it saves sound weights only, and the lines that it resumes and ends with.

The controller and a session use it, so that these decisions are the same in every loop; all tasks of a collective save
and restore together. Imports TensorFlow.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

import tensorflow as tf

from dtj_launch.ledger import Doing, Ledger
from dtj_trainer.checkpoint import attempts, interval
from dtj_trainer.checkpoint.background_writer import SAVE_SECONDS
from dtj_trainer.checkpoint.compared_replicas import ComparedReplicas
from dtj_trainer.checkpoint.finite_weights import NotFiniteState
from dtj_trainer.checkpoint.in_memory import Copies
from dtj_trainer.checkpoint.interval import Cost, CostOfCopies, CostOfSaves
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.nonfinite import last_words, on_which, workers_of
from dtj_trainer.config.parsing import Config
from dtj_trainer.distribution.agreement import KEY_VALUE_SECONDS, Vote, of_each_replica
from dtj_trainer.errors import (
    LeaderCannotSave,
    NotFinite,
    NotSaved,
    PeerLost,
    Preempted,
    ReplicasDiffer,
    TrainerError,
    WorkersDiffer,
)
from dtj_trainer.periodic import Every, EverySteps
from dtj_trainer.process.environment import cpu_limit

log = logging.getLogger(__name__)

_SEEN_SECONDS = 60.0
"""What NFS may take, by its defaults, to show a new file to another machine."""
_NOT_RESTORED = -1


class Checkpointing:
    """The checkpoints of one loop."""

    def __init__(
        self,
        config: Config,
        store: Store | None,
        strategy: Any,
        *,
        total_steps: int | None,
        find_not_finite: Callable[[], NotFiniteState | None],
        saving: Callable[[float], AbstractContextManager[None]],
        ledger: Ledger,
        replicas: ComparedReplicas | None = None,
        all_tasks_save: bool = True,
    ) -> None:
        """Args:
        store: None: the loop has not yet named what a checkpoint holds.
        strategy: of a collective, over which its tasks agree that a checkpoint is saved.
        total_steps: None if the last step is not known.
        saving: what a checkpoint is written in: a watch that lets it take so many seconds.
        ledger: what the loop waits for checkpoints is noted there.
        replicas: are compared before each checkpoint, and once at the start; None where there are none.
        all_tasks_save: whether the tasks save together; else one does it for all.
        """
        self._config = config
        self._store = store
        self._strategy = strategy
        self._find_not_finite = find_not_finite
        self._saving = saving
        self._ledger = ledger
        self._replicas = replicas
        self._all_tasks_save = all_tasks_save
        self._by_time = Every(config.checkpoint.every_seconds)
        memory, last = config.checkpoint.memory, total_steps or sys.maxsize
        self._by_number = EverySteps(config.checkpoint.every_steps, last)
        in_memory = [EverySteps(memory.every_steps or interval.FIRST_STEPS, last)] if memory else []
        compared = [EverySteps(config.compare_steps, last)] if replicas and config.compare_steps else []
        self.schedules = (self._by_number, *compared, *in_memory)
        """When a checkpoint is due by the number of the step: one of the job, and last one in memory. Between them,
        when replicas are compared besides."""
        self._cost = CostOfCopies(processors=cpu_limit()) if memory else None
        chooses = config.checkpoint.chooses_seconds and config.checkpoint.directory and config.cluster.leads
        self._cost_of_saves = CostOfSaves() if chooses else None
        self._told_seconds: float | None = None
        self.total_steps = total_steps
        """For the lines alone: a session may learn it late."""
        self._saved: int | None = None
        self._not_saved: int | None = None
        self._finite: int | None = None

    def vote(self, *, stop: bool, next_steps: int) -> Vote:
        """What this task wants at the end of the next call.

        Args:
            stop: whether this task has to stop.
            next_steps: of the call after it.
        """
        leads = self._config.cluster.leads
        return Vote(stop=stop, save=leads and self._by_time.due(), next_steps=next_steps if leads else 0)

    def require_sound(self, step: int) -> None:
        """Makes sure that weights and optimizer are finite after this step, at which the loop stands, and the same bits
        on all replicas.

        Raises:
            NotFinite: they are not finite.
            ReplicasDiffer: they are not the same.
        """
        if self._finite != step:
            if self._cost_of_saves:
                self._cost_of_saves.begins()
            with self._looking():
                found = self._find_not_finite()
            if found:
                is_exact = step == 1 or self._finite == step - 1
                raise self.not_finite(found.what, step, workers=found.workers, is_exact=is_exact)
            with self._looking():
                differing = self._replicas.differing(step) if self._replicas else None
            if differing:
                self._settle()
                raise differing
            self._finite = step

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """What a look at all weights takes is time of checkpoints, and part of what a copy costs."""
        with self._ledger.state(Doing.CHECKPOINTING), ExitStack() as costs:
            for cost in (self._cost, self._cost_of_saves):
                if cost:
                    costs.enter_context(cost.taking())
            yield

    def moved(self) -> None:
        """The weights may have changed without a step."""
        self._saved = self._finite = None

    def is_saved(self, step: int) -> bool:
        """Whether `save` has saved this step."""
        return self._saved == step

    def are_due(self, before: int, step: int) -> bool:
        """Whether a checkpoint, or a comparison, is due, by the number, after one of the steps after `before`, up to
        `step`."""
        begins = self._replicas is not None and self._replicas.begins
        return begins or any(schedule.was_due(before, step) for schedule in self.schedules)

    def save(self, step: int) -> None:
        """Saves the step that the loop stands at, unless it is saved, and returns when it is; on all tasks, or on none.

        Raises:
            NotFinite, ReplicasDiffer: see `require_sound`.
            NotSaved: the directory does not take it.
        """
        if self._store is None or self._saved == step:
            return
        self.require_sound(step)
        with self._ledger.state(Doing.CHECKPOINTING), self._saving(SAVE_SECONDS):
            save_together(self._config, self._strategy, self._store, step)
        self._saved = step

    def save_if_possible(self, step: int) -> bool:
        """As `save`, but says in one line where the directory does not take it.

        Returns:
            Whether the step is saved: the same on all tasks, of which each has to call it.

        Raises:
            NotFinite, ReplicasDiffer: see `require_sound`.
        """
        try:
            self.save(step)
        except (NotSaved, LeaderCannotSave) as error:
            self._not_saved = step
            if self._config.cluster.leads:
                log.warning(f"{error}; the training goes on and tries again")
            return False
        return True

    def save_async(self, before: int, step: int, *, asked: bool) -> None:
        """Saves what is due at the step that the loop stands at, while the training goes on.

        Args:
            before: the step at which it was looked at last.
            asked: whether the leader wants a checkpoint of the job now, whatever the number of the step.

        Raises:
            NotFinite, ReplicasDiffer: see `require_sound`.
        """
        if self._store is None:
            return
        self.require_sound(step)
        if self._not_saved == step:
            # Some tasks have its values, and to read them again can take all.
            return
        with self._ledger.state(Doing.CHECKPOINTING), self._saving(SAVE_SECONDS):
            if self._store.memory and self._saved != step and self.schedules[-1].was_due(before, step):
                self._copy(self._store.memory, step)
            if asked or self._by_number.was_due(before, step):
                with self._cost_of_saves.taking() if self._cost_of_saves else nullcontext():
                    self._store.save_async(step)
                self._choose_seconds()

    def _choose_seconds(self) -> None:
        """Lets as much time pass until the next checkpoint as those so far are worth, on the leader, if it may."""
        cost = self._cost_of_saves.saved() if self._cost_of_saves else None
        if cost is None:
            return
        # The operator says what it knew when this pod was made, and the launcher restarts programs in their pods.
        again, losses = self._config.losses_in_place, self._config.checkpoint.seconds_between_losses
        losses = min(losses, self._ledger.seconds / again) if again else losses
        seconds = self._by_time.seconds = interval.seconds_between_saves(cost, losses)
        told = self._told_seconds
        if told is None or not told / 2 <= seconds <= 2 * told:
            self._told_seconds = seconds
            log.info(interval.describe_saves(seconds, cost, losses))

    def _copy(self, memory: Store, step: int) -> None:
        if self._cost is None:
            memory.save_async(step)
            return
        with self._cost.taking():
            memory.save_async(step)
        if cost := self._cost.copied(step, writing=memory.writing_seconds):
            self._cost = None
            self._choose_interval(cost)

    def _choose_interval(self, cost: Cost) -> None:
        """Takes as many steps between two copies as they are worth, unless it is given how many; on all tasks."""
        given, leads = self.schedules[-1].steps, self._config.cluster.leads
        assert self._config.checkpoint.memory is not None
        assert given is not None
        if self._config.checkpoint.memory.every_steps is None:
            steps = max(of_each_replica(self._strategy, cost.least_steps))
            self.schedules = (*self.schedules[:-1], replace(self.schedules[-1], steps=steps))
            if leads:
                log.info(cost.describe(steps))
        elif leads and cost.share(given) > interval.SHARE:
            log.info(
                f"{cost.describe(given)}; with checkpoint.inMemory.everySteps {cost.least_steps}, or without it, at "
                f"most {100 * interval.SHARE:g} %"
            )

    def ended(self) -> None:
        """Waits for the copy that is being written, and notes whether the run failed; to be called as it ends."""
        self._settle_memory()
        error, memory = sys.exc_info()[1], self._config.checkpoint.memory
        if memory and self._store and isinstance(error, Exception) and not isinstance(error, Preempted):
            attempts.failed(memory.directory, self._store.newest_step or 0)

    def _settle_memory(self) -> None:
        if self._store and self._store.memory:
            self._store.memory.settle()

    def _settle(self) -> None:
        """Waits for all that is being written."""
        if self._store is not None:
            self._store.settle()
        self._settle_memory()

    def resumed(self, step: int) -> str | None:
        """The line for a run that begins with a checkpoint; None if it begins without one."""
        path = self._store.newest_path if self._store else None
        return f"resumed: step {step}{self._of_all()} from {path}" if path else None

    def preempted(self, step: int) -> Preempted:
        """How a loop ends that was asked to stop, and has saved this step."""
        saved = "all tasks saved" if self._all_tasks_save else "saved"
        return Preempted(f"preempted: {saved} step {step}{self._of_all()}; the job resumes there")

    def not_finite(
        self,
        what: str,
        step: int,
        replicas: Sequence[int] = (),
        *,
        workers: Sequence[str] = (),
        is_exact: bool = True,
    ) -> NotFinite | ReplicasDiffer:
        """How a loop ends that must not go on; waits for the checkpoint that is being written, which is finite.

        All tasks have to call it together. Where replicas differ, that is the cause, and not the model.

        Args:
            what: `the loss is`, `the weights are`.
            replicas: those known to have a value that is not finite.
            workers: the names of such workers, where workers are no replicas of one another.
            is_exact: whether it is this step, and not one before it.
        """
        self._settle()
        if self._replicas and (differing := self._replicas.differing(step)):
            return differing
        path = self._store.newest_path if self._store else None
        total = 1 if self._strategy is None else self._strategy.num_replicas_in_sync
        workers = workers or workers_of(self._config.cluster, replicas, total=total)
        where = f"{what} not finite {'at' if is_exact else 'by'} step {step}{on_which(workers)}"
        return NotFinite(last_words(where, path, self._config.on_nan))

    def _of_all(self) -> str:
        return f" of {self.total_steps}" if self.total_steps else ""


def save_together(config: Config, strategy: Any, store: Store, step: int) -> None:
    """Saves, and returns when the leader has saved. All tasks of a collective have to call it.

    Raises:
        NotSaved: this task is the leader, and cannot save.
        LeaderCannotSave: this task is not the leader, and that cannot save.
    """
    collective = config.strategy == "MultiWorkerMirrored" and store.enabled
    if store.memory:
        _save_in_memory(strategy, store.memory, step, alone=config.checkpoint.directory is None)
    # The leader may have left this step out while its storage was slow. To read the values can take all tasks.
    if collective and not of_each_replica(strategy, int(store.has_read(step)))[0]:
        store.read_again(step)
    failure = None
    try:
        store.save(step)
    except NotSaved as error:
        failure = error
    if collective:
        # The first replica is the leader's.
        saved = of_each_replica(strategy, int(failure is None))[0]
        if not saved and not failure:
            raise LeaderCannotSave(
                f"peer lost: {config.cluster.leader} cannot save step {step}; its last words say why"
            )
    if failure:
        raise failure


def _save_in_memory(strategy: Any, memory: Store, step: int, *, alone: bool) -> None:
    """Saves this task's own copy.

    Args:
        alone: whether there is no other checkpoint of this step.

    Raises:
        NotSaved: this task cannot save, and there is no other checkpoint.
    """
    # To read the values can take all tasks, and one of them may not have written this step.
    memory.settle()
    if not all(of_each_replica(strategy, int(memory.has_read(step)))):
        memory.read_again(step)
    try:
        memory.save(step)
    except NotSaved as error:
        if alone:
            raise
        log.warning(f"{error}; the checkpoint directory has it")


def restore_together(
    config: Config,
    strategy: Any,
    store: Store,
    *,
    waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Restores the newest checkpoint, on all tasks: the one that the leader chooses, or one in the memory of some task.

    The leader first waits for an earlier run that still saves, and a network volume may show its files to another
    machine later: each task by itself could choose another one.

    Args:
        waiting: entered while this task waits for the others.

    Raises:
        UsageError: there are sound checkpoints, but of another model; or another run uses the directory; or not all
            tasks have the checkpoint.
        PeerLost: the leader cannot restore one.
        NotSaved: what another task has does not fit into the memory of this one.
    """
    if config.strategy != "MultiWorkerMirrored":
        store.restore_newest()
        return
    if store.memory is None or config.checkpoint.memory is None:
        _restore_what_the_leader_chooses(config, strategy, store, waiting)
        return
    copies = Copies(config, strategy, store.memory, waiting=waiting)
    newest, bad, before = copies.find(), copies.given_up(), sys.maxsize
    in_directory: int | None = None

    def look() -> int:
        store.begin()
        return max((step for step in store.steps() if step < before), default=0)

    if bad and newest.step <= bad:
        before = bad
        in_directory = _of_the_leader(config, strategy, store, waiting, look)
        newest = copies.find(before=0 if in_directory else bad)
        if not newest.step and not in_directory:  # there is no other one
            newest, before = copies.find(), sys.maxsize
            in_directory = None
    if in_directory is None:
        in_directory = _of_the_leader(config, strategy, store, waiting, look)
    if before < sys.maxsize:
        copies.remove(newest.step + 1)
        if config.cluster.leads:
            log.warning(
                f"two runs in a row began with step {bad}, and failed without a newer checkpoint: this one begins with "
                f"step {max(newest.step, in_directory)}"
            )
    if in_directory >= newest.step:
        _restore_what_the_leader_chooses(config, strategy, store, waiting, before=before)
    else:
        store.begin()
    if newest.step > (store.last_step or 0):
        copies.restore(newest)
    elif config.cluster.leads and not store.last_step:
        elsewhere = ", nor is one in the checkpoint directory" if config.checkpoint.directory else ""
        log.info(f"no worker has a checkpoint in memory{elsewhere}: the training begins at step 0")
    attempts.begun(config.checkpoint.memory.directory, store.newest_step or 0)


def _restore_what_the_leader_chooses(
    config: Config,
    strategy: Any,
    store: Store,
    waiting: Callable[[], AbstractContextManager[None]],
    *,
    before: int = sys.maxsize,
) -> None:
    def restore() -> int:
        store.restore_newest(before=before)
        return store.last_step or 0

    chosen = _of_the_leader(config, strategy, store, waiting, restore)
    if not config.cluster.leads and chosen:
        store.restore_when_seen(chosen, seconds=min(_SEEN_SECONDS, config.start_timeout))
    elif not config.cluster.leads:
        store.restore_newest(before=before)
    with waiting():
        agree_on_start(config, strategy, store.last_step or 0)


def _of_the_leader(
    config: Config,
    strategy: Any,
    store: Store,
    waiting: Callable[[], AbstractContextManager[None]],
    choose: Callable[[], int],
) -> int:
    """The step that the leader chooses, as all tasks know it.

    Raises:
        TrainerError: this task is the leader, and cannot choose one.
        PeerLost: the leader cannot choose one.
    """
    chosen, failure = _NOT_RESTORED, None
    if config.cluster.leads:
        try:
            chosen = choose()
        except TrainerError as error:
            failure = error
    with waiting():
        # The first replica is the leader's.
        chosen = of_each_replica(strategy, chosen)[0]
    if chosen == _NOT_RESTORED:
        with suppress(tf.errors.OpError):
            compat.wait_at_barrier("dtj-restore", seconds=KEY_VALUE_SECONDS)
        if failure is None:
            store.restore_newest()  # ends as the leader does, if it is for the checkpoints
            failure = PeerLost(f"peer lost: {config.cluster.leader} cannot restore; its last words say why")
        raise failure
    return chosen


def agree_on_start(config: Config, strategy: Any, step: int) -> None:
    """Makes sure that all tasks restored the same step: a directory that is not shared would train two models.

    Raises:
        WorkersDiffer: they did not.
    """
    if config.strategy != "MultiWorkerMirrored":
        return
    steps = of_each_replica(strategy, step)
    if any(other != step for other in steps):
        raise WorkersDiffer(
            f"checkpoint directory {config.checkpoint.directory}: tasks found different steps in it "
            f"({', '.join(map(str, steps))}); it must be one volume that all tasks share"
        )
