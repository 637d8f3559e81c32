"""Whether the workers of a pipeline still answer, asked while they compute. Imports TensorFlow.

TensorFlow waits without end for a worker whose machine or network is gone without a word. So each is asked every
second for something small, on a thread of its own; and as an answer it reports whether it was asked to stop.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import tensorflow as tf

from dtj_trainer.errors import PeerLost
from dtj_trainer.process.watchdog import LastResort

SILENT_SECONDS = 7.0
"""A worker that has not answered for so long is lost. Together with the pauses this is noticed within 10 s."""
_ASK_SECONDS = 1.0
_LOOK_SECONDS = 0.25
_LAST_RESORT_SECONDS = SILENT_SECONDS + 2.0


class Heartbeat:
    """Asks the workers from entering to leaving, and ends the process when one of them does not answer.

    TensorFlow may hold the interpreter's lock while it waits, so that no thread of Python's runs: then the launcher
    ends the process, see `dtj_trainer.process.watchdog.LastResort`.
    """

    def __init__(
        self,
        devices: Mapping[str, str],
        leaving: Mapping[str, Path],
        *,
        on_termination: Callable[[str], object],
        end_with: Callable[[BaseException], object],
    ) -> None:
        """Args:
        devices: name of each worker for a person -> its device.
        leaving: name -> a file that is on its machine once it was asked to stop.
        on_termination: called once with the name of a worker that was asked to stop.
        """
        self._devices = devices
        self._leaving = leaving
        self._on_termination = on_termination
        self._end_with = end_with
        self._last_answer: dict[str, float] = {}
        self._over = threading.Event()
        self._last_resort = LastResort(PeerLost.exit_code)

    def __enter__(self) -> Self:
        self._last_answer = dict.fromkeys(self._devices, time.monotonic())
        for name in self._devices:
            threading.Thread(target=self._poll, args=(name,), name=f"heartbeat of {name}", daemon=True).start()
        self._watcher = threading.Thread(target=self._watch, name="heartbeats", daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        # It would set the last resort again.
        self._watcher.join()
        self._last_resort.cancel()

    def _poll(self, name: str) -> None:
        reported = False
        while not self._over.wait(_ASK_SECONDS):
            try:
                with tf.device(self._devices[name]):
                    found = tf.raw_ops.MatchingFiles(pattern=str(self._leaving[name])).numpy()
            except tf.errors.OpError:
                return  # the training gets the same answer, and says more of it
            self._last_answer[name] = time.monotonic()
            if len(found) and not reported:
                reported = True
                self._on_termination(name)

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self._last_resort.set(_LAST_RESORT_SECONDS)
            now = time.monotonic()
            if silent := sorted(name for name, last in self._last_answer.items() if now - last > SILENT_SECONDS):
                self._end_with(PeerLost(f"peer lost: {', '.join(silent)} silent for {SILENT_SECONDS:g} s"))
