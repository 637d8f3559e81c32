"""What the workers of a script tell each other of their ends: one that has completed is not lost. Imports TensorFlow.

A call that is made by one worker alone, such as an `evaluate`, waits for sums of workers that never come.
"""

import os
import re
import threading
import traceback
from contextlib import suppress

import tensorflow as tf

from dtj_trainer.compat import tensorflow as compat
from dtj_trainer.config.cluster import CHIEF, WORKER, Cluster, Task
from dtj_trainer.distribution import strategies
from dtj_trainer.errors import UnequalCalls

_SECONDS = 5.0
"""What the coordination service may take to note a word."""
_ANSWER_SECONDS = 1.0
_ASKED_AT_MOST = 4
_NEVER = 1e9
"""Seconds."""
_CALL = re.compile(r"\.(fit|evaluate|predict|train_on_batch|test_on_batch|predict_on_batch)\(")


class Listener:
    """Waits for the word of the leader, which takes with it what keeps the words."""

    current: "Listener | None" = None
    """The one of this process, where there is one."""

    def __init__(self, leader: Task) -> None:
        """Waits from now on, in a thread that ends with the process."""
        self.leader = leader
        self._completed = False
        self._thread = threading.Thread(target=self._wait, name="leader", daemon=True)
        self._thread.start()
        type(self).current = self

    def _wait(self) -> None:
        with suppress(tf.errors.OpError):  # it has gone without a word
            compat.get_key_value(_key(self.leader), seconds=_NEVER)
            self._completed = True

    def has_completed(self) -> bool:
        """Whether the leader has; to be asked when it is not there."""
        self._thread.join(_ANSWER_SECONDS)
        return self._completed


def tell(task: Task) -> None:
    """Leaves word that the script of this task has come to its end, where it forms a cluster with others."""
    if compat.computes_alone() is not False:
        return

    def leave() -> None:
        with suppress(tf.errors.OpError):  # the leader, which keeps the words, has gone
            compat.set_key_value(_key(task), "completed")

    thread = threading.Thread(target=leave, name="completed", daemon=True)
    thread.start()
    thread.join(_SECONDS)


def unequal_calls(error: Exception, cluster: Cluster) -> UnequalCalls | None:
    """What an error means with which TensorFlow waited for a worker that has completed; None if none has."""
    if "collective" not in str(error).lower():
        return None  # storage that cannot be reached raises the same
    peers = cluster.peers(CHIEF, WORKER)
    for task in (strategies.silent(peers) or list(peers))[:_ASKED_AT_MOST]:
        if _has_completed(task):
            place, call = _waits_in(error)
            return UnequalCalls(
                f"{place}{task} has completed while {cluster.task} waits in {call}: all workers must make the same "
                "calls; make this one on each of them"
            )
    return None


def _has_completed(task: Task) -> bool:
    listener = Listener.current
    if listener and task == listener.leader:
        return listener.has_completed()
    with suppress(tf.errors.OpError):
        compat.get_key_value(_key(task), seconds=_ANSWER_SECONDS)
        return True
    return False


def _waits_in(error: Exception) -> tuple[str, str]:
    """The script's line, and the call of Keras' in it."""
    for frame in traceback.extract_tb(error.__traceback__):
        if found := _CALL.search(frame.line or ""):
            return f"{os.path.basename(frame.filename)}:{frame.lineno}: ", found[1]
    return "", "a sum over the workers"


def _key(task: Task) -> str:
    return f"dtj-completed/{task}"
