"""Notices a script that trains alone in a job of several workers. Imports TensorFlow only after the script has.

With MirroredStrategy, or without a strategy, each worker trains a model of its own on all of the data, and all results
but one are thrown away.
"""

import importlib
import logging
import sys
import threading
import time

from dtj_launch.progress import ProgressStore
from dtj_trainer.config.cluster import CHIEF, WORKER
from dtj_trainer.config.parsing import Config

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
THREAD = "alone"
"""Name of the thread that looks."""


def warn_if_alone(config: Config, script: str, progress_store: ProgressStore) -> None:
    """Warns, once, in the log and on `progress_store`, when the script computes and the workers form no cluster.

    Looks from a thread of its own, which ends with the process. A job of one worker and other strategies than
    MultiWorkerMirrored are left alone.
    """
    cluster = config.cluster
    workers = cluster.count(CHIEF) + cluster.count(WORKER)
    if config.strategy != "MultiWorkerMirrored" or workers < 2 or cluster.task.role not in (CHIEF, WORKER):
        return

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
