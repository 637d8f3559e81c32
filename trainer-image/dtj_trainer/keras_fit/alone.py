"""Notices a script whose workers each train a model of their own. Imports TensorFlow only after the script has.

With MirroredStrategy, without a strategy, or with a model that is made outside the scope of the strategy, each worker
trains on all of the data, and all results but one are thrown away.
"""

import functools
import importlib
import logging
import sys
import threading
import time
from typing import Any, ClassVar, Self

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.cluster import CHIEF, WORKER
from dtj_trainer.config.parsing import Config
from dtj_trainer.errors import UsageError
from dtj_trainer.process.ending import place_of_call
from dtj_trainer.process.imports import when_imported

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
THREAD = "alone"
"""Name of the thread that looks."""


def watch(config: Config, script: str, progress_store: ProgressStore) -> "Together | None":
    """Watches a script whose workers should train one model; None for one worker and for other strategies."""
    cluster = config.cluster
    workers = cluster.count(CHIEF) + cluster.count(WORKER)
    if config.strategy != "MultiWorkerMirrored" or workers < 2 or cluster.task.role not in (CHIEF, WORKER):
        return None
    _warn_if_alone(workers, script, progress_store)
    return Together(workers)


class Together:
    """Whether the workers ever sum anything, and where the script trains without that."""

    current: ClassVar[Self | None] = None
    """The one of this process, where there is one."""

    def __init__(self, workers: int) -> None:
        """Watches from now on."""
        self._workers = workers
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
            return original(*args, **kwargs)

        tf.GradientTape.gradient = gradient


def _warn_if_alone(workers: int, script: str, progress_store: ProgressStore) -> None:
    """Warns, once, in the log and on `progress_store`, when the script computes and the workers form no cluster.

    Looks from a thread of its own, which ends with the process.
    """

    def look() -> None:
        while (alone := _computes_alone()) is None:
            time.sleep(LOOK_SECONDS)
        if alone:
            warning = (
                f"{script} trains alone: the job has {workers} workers and strategy MultiWorkerMirrored, but "
                "the script began to compute without a tf.distribute.MultiWorkerMirroredStrategy, so each worker "
                "trains a model of its own on all the data. Make the strategy before any other TensorFlow operation, "
                "or set one worker and strategy OneDevice or Mirrored"
            )
            log.warning(warning)
            progress_store.update(warning=warning)

    threading.Thread(target=look, name=THREAD, daemon=True).start()


def _computes_alone() -> bool | None:
    if "tensorflow" not in sys.modules:
        return None
    # Waits until the script has imported all of it.
    importlib.import_module("tensorflow")
    from dtj_trainer.compat import tensorflow

    return tensorflow.computes_alone()
