"""Python imports this when a task of a test starts: a training waits until the test lets it go on.

It waits behind the checkpoint of a step that `Job.hold_at` names: so a test acts in its middle, however fast it is.
"""

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any


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


CHANGES: dict[str, Callable[[ModuleType], None]] = {
    "dtj_trainer.checkpoint.manager": let_saves_wait,
}


class Finder(MetaPathFinder):
    """Changes a module when it is imported, if it is: importing it here would cost every process TensorFlow."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The module, changed."""
        change = CHANGES.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_change(module: ModuleType) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = execute_and_change  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Finder())
