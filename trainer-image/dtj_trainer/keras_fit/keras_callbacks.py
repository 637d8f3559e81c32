"""Keras' callbacks under several replicas: one that stops the training stops all, and the leader alone writes files.

A `fit` whose loss is not finite ends, and Keras' callbacks save nothing that is not finite. `override` puts these
functions in the place of those of Keras. Imports TensorFlow and Keras.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import keras
import tensorflow as tf

from dtj_launch import progress
from dtj_launch.ledger import Doing
from dtj_trainer.config.cluster import Cluster
from dtj_trainer.distribution.agreement import FitAgreement
from dtj_trainer.errors import WorkersDiffer
from dtj_trainer.keras_fit import counted
from dtj_trainer.keras_fit.nan_losses import FitLosses, model_of
from dtj_trainer.process.task_context import TaskContext

losses: FitLosses
agreement: FitAgreement


def begin(cluster: Cluster) -> None:
    """From now on, losses are looked at, and the tasks of this cluster agree."""
    global losses, agreement
    losses, agreement = FitLosses(cluster), FitAgreement(cluster, keras)


def leads(strategy: Any) -> bool:
    """Whether this task writes for all."""
    return bool(getattr(strategy.extended, "should_checkpoint", True))


def _writes(callback: Any) -> bool:
    return leads(getattr(callback.model, "distribute_strategy", tf.distribute.get_strategy()))


@contextmanager
def _writing() -> Iterator[None]:
    """Within this, a callback replaces its only file: SIGTERM waits for that."""
    task = TaskContext.current
    with task.termination.writing() if task else nullcontext(), progress.doing(Doing.CHECKPOINTING):
        yield


def train_begins(original: Any, callbacks: Any, logs: Any = None) -> None:
    """Makes sure that all tasks begin with the same epoch, whichever of them have a BackupAndRestore.

    Raises:
        WorkersDiffer: they do not.
    """
    original(callbacks, logs)
    model = model_of(callbacks)
    epochs = agreement.begins(callbacks.callbacks, model, first_epoch=getattr(model, "_initial_epoch", None) or 0)
    if len(set(epochs)) > 1:
        kind = keras.callbacks.BackupAndRestore
        found = [f"backup_dir={one.backup_dir}: " for one in callbacks.callbacks if isinstance(one, kind)]
        raise WorkersDiffer(
            f"BackupAndRestore: {''.join(found[:1])}tasks begin with different epochs ({', '.join(map(str, epochs))}); "
            "give it to all tasks, with a backup_dir on one volume that all share"
        )


def epoch_begins(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
    """Notes which epoch begins."""
    losses.epoch(model_of(callbacks), epoch)
    original(callbacks, epoch, logs)


def batch_ended(original: Any, callbacks: Any, batch: int, logs: Any = None) -> None:
    """Looks at the loss, and whether a callback of another worker has stopped the training."""
    # A session's callback looks by itself, in step with the session's checkpoints.
    if not any(getattr(one, "looks_at_losses", False) for one in callbacks.callbacks):
        losses.batch(model_of(callbacks), batch, logs)
    original(callbacks, batch, logs)
    agreement.after_batch(model_of(callbacks))


def epoch_ended(original: Any, callbacks: Any, epoch: int, logs: Any = None) -> None:
    """The same at the end of an epoch."""
    losses.look(model_of(callbacks))
    counted.epoch_ended(model_of(callbacks))
    original(callbacks, epoch, logs)
    agreement.after_epoch(model_of(callbacks), epoch)


def train_ended(original: Any, callbacks: Any, logs: Any = None) -> None:
    """Looks at losses and weights before callbacks save them."""
    losses.look(model_of(callbacks), weights=True)
    original(callbacks, logs)


def save_best(original: Any, callback: Any, epoch: int, batch: int | None, logs: Any) -> None:
    """ModelCheckpoint: the leader writes, and all keep the best value."""
    losses.look(callback.model, weights=True)
    if _writes(callback):
        with _writing():
            original(callback, epoch, batch, logs)
        return
    verbose, callback.verbose = callback.verbose, 0
    try:
        callback._should_save_model(epoch, batch, logs, "")  # keeps the best value, as the leader's does
    finally:
        callback.verbose = verbose


def back_up(original: Any, callback: Any) -> None:
    """BackupAndRestore: the leader writes."""
    losses.look(callback.model, weights=True)
    if _writes(callback):
        with _writing():
            original(callback)


def remove_backup(original: Any, callback: Any, logs: Any = None) -> None:
    """BackupAndRestore: the leader removes."""
    if _writes(callback):
        with _writing():
            original(callback, logs)


def board_of(original: Any, callback: Any, model: Any) -> None:
    """TensorBoard: only what the leader writes stays."""
    if not leads(model.distribute_strategy):
        callback.log_dir = tempfile.mkdtemp(prefix="tensorboard-")
        atexit.register(shutil.rmtree, callback.log_dir, ignore_errors=True)
    original(callback, model)


def open_table(original: Any, callback: Any, logs: Any = None) -> None:
    """CSVLogger: only what the leader writes stays."""
    if not _writes(callback):
        callback.filename = os.devnull
    original(callback, logs)
