"""Ends a task of a synchronous strategy when no step is finished for too long, and names the worker that is late.

Workers in step wait for the slowest inside TensorFlow. Each counts the batches that its data gave: the one with fewer
is late, and it is the cause. They tell each other through the coordination service. Imports TensorFlow.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress

import tensorflow as tf

from dtj_trainer.checkpoints import AT_THE_END_SECONDS
from dtj_trainer.cluster import CHIEF, WORKER, Task
from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config import Config
from dtj_trainer.ending import end_with
from dtj_trainer.errors import PeerLost, TrainerError
from dtj_trainer.watchdog import Watchdog

_ANSWER_SECONDS = 5.0
_TALK_SECONDS = 60.0


class Stalled(TrainerError):
    """This task is the one that all wait for."""


class StallWatch(Watchdog):
    """Watches the steps of this task; a context manager around the training."""

    def __init__(self, config: Config, *, batches: Callable[[], int]) -> None:
        """Args:
        batches: how many batches the data gave so far.
        """
        self._config = config
        self._batches = batches
        self.in_call = False
        """Whether this task is in a step, and not in a callback or a checkpoint."""
        self._what = f"no step was finished for {config.stall_timeout:g} s (--stall-timeout)"
        alone = len(config.cluster.addresses) < 2
        error = Stalled(self._what) if alone else PeerLost(f"{self._what}: a task of this job hangs")
        # A tf.data service that gives nothing has a watch of its own, which says so.
        self._patience = config.stall_timeout + (_TALK_SECONDS if config.data.service else 0.0)
        super().__init__(self._patience, error, end_with=self._end)

    def begin(self) -> None:
        """The first step traces and compiles, on all workers."""
        self.feed(max(self._patience, self._config.start_timeout))

    def save(self) -> None:
        """A checkpoint is to be written, which has a limit of its own."""
        self.feed(self._patience + AT_THE_END_SECONDS)

    def _end(self, error: BaseException) -> None:
        cluster = self._config.cluster
        tasks = [task for task in cluster.addresses if task.role in (CHIEF, WORKER)]
        if len(tasks) < 2:
            end_with(Stalled(f"{self._what}: {_doing(self._own())}"))
        self.feed(_TALK_SECONDS)
        found: dict[Task, tuple[int, bool] | None] = {}
        with suppress(tf.errors.OpError):
            compat.leave_word(_key(cluster.task), json.dumps(self._own()))
        for task in tasks:
            found[task] = None
            with suppress(tf.errors.OpError):
                said = compat.read_word(_key(task), seconds=_ANSWER_SECONDS)
                batches, in_call = json.loads(said)
                found[task] = batches, in_call
        with suppress(tf.errors.OpError):
            # The leader keeps these words: it stays until all have read them.
            compat.wait_at_barrier("dtj-stall", seconds=_ANSWER_SECONDS)
        late = latest(found)
        if cluster.task in late:
            end_with(Stalled(f"{self._what}: {_doing(self._own())}"))
        names = ", ".join(f"{task} {_doing(found[task])}" for task in late)
        end_with(PeerLost(f"{self._what}: {names}") if late else error)

    def _own(self) -> tuple[int, bool]:
        return self._batches(), self.in_call


def latest(found: Mapping[Task, tuple[int, bool] | None]) -> list[Task]:
    """The tasks that the others wait for: those that do not answer, else those with the fewest batches, else those that
    have not begun the step; none where all are alike.

    Args:
        found: of each task the batches that its data gave, and whether it is in a step; None where it did not answer.
    """
    if silent := [task for task, state in found.items() if state is None]:
        return silent
    least = min(state for state in found.values() if state is not None)
    late = [task for task, state in found.items() if state == least]
    return [] if len(late) == len(found) else late


def _doing(state: tuple[int, bool] | None) -> str:
    if state is None:
        return "does not answer"
    batches, in_call = state
    if not in_call:
        return f"is outside of its steps, as in a callback, after {batches} batches"
    return f"waits in a step, after {batches} batches of its data"


def _key(task: Task) -> str:
    return f"dtj-stall/{task}"
