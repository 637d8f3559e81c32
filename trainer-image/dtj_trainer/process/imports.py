"""Calls what has to follow the import of a library, which a script imports when it likes. Imports no library."""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def when_imported(name: str, then: Callable[[], None]) -> None:
    """Calls it as soon as a module is imported: now, if it is."""
    if name in sys.modules:
        then()
    else:
        around_import(name, lambda: then)


def around_import(name: str, begins: Callable[[], Callable[[], None]]) -> None:
    """Calls it when a module that is not imported yet is about to be, and what it returns as soon as it is."""
    if name not in sys.modules:
        sys.meta_path.insert(0, _Finder(name, begins))


class _Finder:
    """Sees the first import of a module, and leaves it to the others."""

    def __init__(self, name: str, begins: Callable[[], Callable[[], None]]) -> None:
        self._name = name
        self._begins = begins
        self._asks = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # TensorFlow looks for Keras without importing it, so this finder stays until the module has been executed.
        if name != self._name or self._asks:
            return None
        self._asks = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asks = False
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            then = self._begins()
            run(module)
            sys.meta_path.remove(self)
            then()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
