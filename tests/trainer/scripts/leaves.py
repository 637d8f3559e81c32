"""The model of `overfits.py`, whose process is lost at the worst moments: once in an epoch, once between a checkpoint
and the callbacks of its epoch, and once after the training was stopped early.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import keras
import overfits

STEPS = 3
"""Of an epoch."""


class Leaves(keras.callbacks.Callback):
    """Comes first, so that it ends the process before the others see the end of an epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 2 and self._is_first("in-an-epoch"):
            os.kill(os.getpid(), signal.SIGTERM)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if epoch == 4 and self._is_first("at-its-end"):
            while not Path(f"checkpoints/ckpt-{(epoch + 1) * STEPS}.index").exists():
                pass
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_end(self, logs: Any = None) -> None:
        if self._is_first("after-the-last"):
            os.kill(os.getpid(), signal.SIGKILL)

    def _is_first(self, what: str) -> bool:
        if not os.environ.get("LEAVES") or Path(what).exists():
            return False
        Path(what).touch()
        return True


class Counts(keras.callbacks.Callback):
    """A class of a user's, with values of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, list[float]] = {}
        self.total = 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seen[epoch] = [round(value, 6) for value in logs.values()]
        self.total += 1
        print("epoch", epoch, "seen", len(self.seen), self.total, sorted(logs), self.seen[epoch], flush=True)

    def on_train_end(self, logs: Any = None) -> None:
        print("end", self.seen, self.total, len(self.model.history.epoch), flush=True)


def callbacks() -> list[Any]:
    return [Leaves(), *overfits.callbacks(), Counts()]
