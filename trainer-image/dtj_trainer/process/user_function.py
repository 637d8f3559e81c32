"""Imports a user's function and calls it; whatever goes wrong in it is one line that says where.

A watch that ends the task while such a function runs can ask for it. Must not import TensorFlow.
"""

import importlib
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dtj_trainer.config.entry_points import Name
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.process.ending import user_place

_LONGEST = 300
_running: list[str] = []


def load(name: Name) -> Callable[[], Any]:
    """The function.

    Raises:
        UsageError: the module cannot be imported, or has no such function.
    """
    module = guarded(name, f"importing {name.module}", lambda: importlib.import_module(name.module))
    if not hasattr(module, name.function):
        offered = [word for word, value in vars(module).items() if callable(value) and not word.startswith("_")]
        raise UsageError(
            f"{name}: {module.__name__} ({getattr(module, '__file__', None)}) has no {name.function}; "
            f"it has {', '.join(offered[:10]) or 'no function'}"
        )
    function = getattr(module, name.function)
    if not callable(function):
        raise UsageError(f"{name}: of type {type(function).__name__}, not a function; name one that takes no arguments")
    return lambda: guarded(name, f"{name.function}()", function)


def guarded(name: Name | str, what: str, call: Callable[[], Any]) -> Any:
    """Calls what may run code of the user's.

    Raises:
        UsageError: it raised something.
    """
    doing = f"is in {what}" if what.endswith("()") else f"is {what}"
    try:
        with running(f"{doing} of {name}"):
            return call()
    except TrainerError:
        raise
    # Whatever a user's code may raise.
    except Exception as error:
        message = " ".join(traceback.format_exception_only(error)[-1].split())
        message = message if len(message) <= _LONGEST else message[: _LONGEST - 3] + "..."
        # A SyntaxError says it itself.
        place = None if isinstance(error, SyntaxError) else user_place(error)
        where = f" ({place[0]}, line {place[1]})" if place else ""
        raise UsageError(
            f"{name}: {what} raised {message}{where}; fix it", restart_may_help=not isinstance(error, SyntaxError)
        ) from error


@contextmanager
def running(what: str) -> Iterator[None]:
    """Notes what runs until the end of the context: `is in model() of --model=mine:model`."""
    _running.append(what)
    try:
        yield
    finally:
        _running.pop()


def current() -> str | None:
    """What `running` noted last and is not over; can be asked by any thread."""
    return next(iter(_running[-1:]), None)
