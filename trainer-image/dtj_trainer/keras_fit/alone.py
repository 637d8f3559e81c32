"""Notices a script whose workers each train a model of their own. Imports TensorFlow only after the script has.

With MirroredStrategy, without a strategy, or with a model that is made outside the scope of the strategy, each worker
trains on all of the data, and all results but one are thrown away.
"""

import functools
import logging
from typing import Any, ClassVar, Self

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.cluster import CHIEF, WORKER
from dtj_trainer.config.parsing import Config
from dtj_trainer.errors import UsageError
from dtj_trainer.process.ending import place_of_call
from dtj_trainer.process.imports import when_imported

log = logging.getLogger(__name__)


def watch(config: Config, script: str, progress_store: ProgressStore) -> "Together | None":
    """Watches a script whose workers should train one model; None for one worker and for other strategies."""
    cluster = config.cluster
    workers = cluster.count(CHIEF) + cluster.count(WORKER)
    if config.strategy != "MultiWorkerMirrored" or workers < 2 or cluster.task.role not in (CHIEF, WORKER):
        return None
    return Together(workers, script, progress_store)


class Together:
    """Whether the workers ever sum anything, and where the script trains without that."""

    current: ClassVar[Self | None] = None
    """The one of this process, where there is one."""

    def __init__(self, workers: int, script: str, progress_store: ProgressStore) -> None:
        """Watches from now on; warns, once, in the log and on `progress_store`."""
        self._workers = workers
        self._script = script
        self._progress_store = progress_store
        self._summed = False
        self._place: str | None = None
        """Where gradients were first taken for this worker alone."""
        type(self).current = self
        when_imported("tensorflow", self._note)

    def check_fit(self, strategy: Any) -> None:
        """Refuses to train a model that no other worker trains, unless the workers have trained one before.

        Raises:
            UsageError: the strategy of the model is none of several workers.
        """
        import tensorflow as tf

        if not self._summed and not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            raise self._apart(place_of_call(), "the model that is trained")

    def check_end(self) -> None:
        """Refuses a script that has come to its end, and has trained without the other workers.

        Raises:
            UsageError: no sum over the workers was taken.
        """
        if self._place is not None and not self._summed:
            raise self._apart(self._place, "what is trained")

    def _apart(self, place: str, what: str) -> UsageError:
        return UsageError(
            f"{place}{self._workers} workers train {self._workers} models: {what} does not belong to a "
            "tf.distribute.MultiWorkerMirroredStrategy, so the workers never sum their gradients; make the model and "
            "its optimizer in strategy.scope(), and take the steps of an own loop in strategy.run(), or set one worker"
        )

    def _note(self) -> None:
        import tensorflow as tf

        from dtj_trainer.compat import tensorflow

        def summed() -> None:
            self._summed = True

        tensorflow.note_sums(summed)
        original = tf.GradientTape.gradient

        @tf.autograph.experimental.do_not_convert
        @functools.wraps(original)
        def gradient(*args: Any, **kwargs: Any) -> Any:
            if self._place is None and not self._summed:
                context = tf.distribute.get_replica_context()
                together = context and isinstance(context.strategy, tf.distribute.MultiWorkerMirroredStrategy)
                self._place = None if together else place_of_call()
                if not together and tensorflow.computes_alone():
                    self._warn()
            return original(*args, **kwargs)

        tf.GradientTape.gradient = gradient

    def _warn(self) -> None:
        warning = (
            f"{self._script} trains alone: the job has {self._workers} workers and strategy MultiWorkerMirrored, but "
            "the script takes gradients without a tf.distribute.MultiWorkerMirroredStrategy, so each worker trains a "
            "model of its own on all the data. Make the strategy before any other TensorFlow operation, or set one "
            "worker and strategy OneDevice or Mirrored"
        )
        log.warning(warning)
        self._progress_store.update(warning=warning)
