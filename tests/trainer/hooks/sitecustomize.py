"""Python imports this when a task of a test starts: a training, or a watch on it, waits for a file of the test.

A training waits behind the checkpoint of a step that `Job.hold_at` names: so a test acts in its middle, however fast it
is. With `Job(patient=True)` nothing has stalled before there is a file "stalls": a slow machine is no stall. With
TEST_CPUS_ARE_CHIPS a slice of TPU hosts trains on their CPUs.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from dtj_trainer.process.imports import when_imported

NEVER = 3600.0


def let_saves_wait(manager: ModuleType) -> None:
    """Saves wait for the test."""
    save = manager.Store.save_async

    def save_and_wait(store: Any, step: int) -> None:
        save(store, step)
        while step >= held_at():
            time.sleep(0.02)

    manager.Store.save_async = save_and_wait


def held_at() -> float:
    """The step behind which the training waits."""
    with suppress(OSError):
        return float(Path(os.environ.get("TEST_HOLD", "")).read_text())
    return float("inf")


def let_watchdogs_wait(watchdog: ModuleType) -> None:
    """Watchdogs begin to count when something stalls."""
    kind = watchdog.Watchdog
    feed, rest = kind.feed, kind.rest
    waiting: set[Any] = set()

    def feed_well(dog: Any, seconds: float | None = None) -> None:
        feed(dog, NEVER if is_patient() else seconds)
        if is_patient() and dog not in waiting:
            waiting.add(dog)
            threading.Thread(target=feed_later, args=(dog,), daemon=True).start()

    def feed_later(dog: Any) -> None:
        while is_patient():
            time.sleep(0.1)
        if dog in waiting:
            feed(dog)

    def rest_well(dog: Any) -> None:
        waiting.discard(dog)
        rest(dog)

    kind.feed, kind.rest = feed_well, rest_well


def is_patient() -> bool:
    """Whether nothing is taken for a stall yet."""
    file = os.environ.get("TEST_STALLS")
    return file is not None and not Path(file).exists()


def let_cpus_be_chips(tpu: ModuleType) -> None:
    """The CPUs of the hosts of a TPU slice take the steps, where a test says so."""
    if "TEST_CPUS_ARE_CHIPS" not in os.environ:
        return
    tf: Any = tpu.tf  # type: ignore[attr-defined]

    class Slice(tf.distribute.experimental.CentralStorageStrategy):  # type: ignore[misc]
        def __init__(self, resolver: Any) -> None:
            hosts = range(resolver.cluster_spec().num_tasks("worker"))
            devices = [f"/job:worker/replica:0/task:{host}/device:CPU:0" for host in hosts]
            super().__init__(compute_devices=devices, parameter_device=devices[0])

    tf.distribute.TPUStrategy = Slice
    tf.tpu.experimental.initialize_tpu_system = lambda resolver: None


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "dtj_trainer.checkpoint.manager": let_saves_wait,
    "dtj_trainer.process.watchdog": let_watchdogs_wait,
    "dtj_trainer.distribution.tpu": let_cpus_be_chips,
}
"""Each changes its module when that is imported, if it is: importing it here would cost every process TensorFlow."""

for name, change in CHANGES.items():
    when_imported(name, lambda name=name, change=change: change(sys.modules[name]))
