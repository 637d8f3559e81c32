"""What a run remembers besides weights and optimizer, and where it goes on: steps, examples, what is held out.

The step alone does not tell where in the data a run is: with another batch, such as that of another number of replicas,
it is another place. Imports TensorFlow.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import tensorflow as tf

from dtj_trainer.checkpoint.checkpointing import restore_together
from dtj_trainer.checkpoint.manager import Store
from dtj_trainer.checkpoint.state import State
from dtj_trainer.distribution.agreement import agree_on_held_out
from dtj_trainer.training.reporting import Run
from dtj_trainer.training.stepping import Course

log = logging.getLogger(__name__)


class SeenExamples:
    """Parts of a checkpoint: see `State`."""

    def __init__(self, run: Run, course: Course, *, step: Any, total_steps: Any) -> None:
        """Args:
        course: as it is without a checkpoint.
        step: int64 tf.Variable; counts the steps done.
        total_steps: int64 tf.Variable; holds the number of the last step.
        """
        self.course = course
        """Which examples the steps take; after `restore`, from the restored step on."""
        self._run = run
        self._step = step
        self._total_steps = total_steps
        with tf.device("CPU:0"):
            self._examples, self._batch = (tf.Variable(0, dtype=tf.int64, trainable=False) for _ in range(2))

    def state(self, names: Mapping[str, Sequence[str]], **parts: Sequence[Any]) -> State:
        """What a checkpoint holds.

        Args:
            names: see `State`.
            parts: `weights` and `optimizer`.
        """
        state = State(
            names, step=self._step, total_steps=self._total_steps,
            held_out=[self._run.validation_data.variable], examples=[self._examples], batch=[self._batch], **parts,
        )  # fmt: skip
        state.refresh = self._refresh
        return state

    def _refresh(self) -> None:
        """Puts what is seen by now into the variables; before each checkpoint."""
        self._run.validation_data.refresh()
        self._examples.assign(self.course.seen(int(self._step.numpy())))
        self._batch.assign(self.course.batch)

    def restore(
        self,
        store: Store,
        strategy: Any = None,
        *,
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Course:
        """Restores the newest checkpoint, if there is one; returns the course from the example on that comes next.

        Args:
            strategy: of a collective, whose tasks restore together.
            waiting: entered while this task waits for the others.

        Raises:
            UsageError: see `restore_together`.
            PeerLost: see `restore_together`.
            DataChanged: the held-out examples are not those of the checkpoint.
        """
        config, held_out = self._run.config, self._run.validation_data
        restore_together(config, strategy, store, waiting=waiting)
        if store.newest_path:
            self.course = self._resumed()
        self._total_steps.assign(self.course.total_steps)
        with waiting():
            agree_on_held_out(
                config, strategy,
                differs=held_out.differs_from_checkpoint(writes=store.writes),
                error=lambda where: held_out.not_those_of_checkpoint(store.newest_path, where),
            )  # fmt: skip
        return self.course

    def _resumed(self) -> Course:
        step, seen, before = (int(each.numpy()) for each in (self._step, self._examples, self._batch))
        asked, batch = self._run.config.batch_size, self.course.batch
        option = f"--{'per-replica-' if asked.per_replica else ''}batch-size={asked.examples}"
        course = self.course.resumed(step, seen=seen)
        if self._run.config.cluster.leads and before != batch:
            log.info(
                f"the global batch was {before} and is {batch} ({option}), which changes the curve: the run goes on "
                f"after the {seen} examples that it has seen, and has {course.total_steps} steps in all"
            )
        return course
