"""The one place for private names of libraries such as Keras: what the trainer needs and nobody promises.

Each name is behind a function. Where a library has renamed it, the function ends the task with one line that gives the
name and the library's version; nothing is left out silently. `scripts/check_libraries.py` tries them all.

`dtj_trainer.keras_fit` replaces private functions of Keras 3 in the scripts of others.

Importing this package imports no library. `lean` imports TensorFlow's servers without TensorFlow, `tensorflow` and
`keras3` import the libraries of their names.
"""

import sys
from collections.abc import Callable
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from inspect import unwrap
from types import CodeType
from typing import Any

from dtj_trainer.errors import UsageError

LOSS = "loss"
"""What both Kerases call the loss among the values of a batch. It has to be finite; others may be NaN for good reasons,
such as a precision of no examples."""

_DISTRIBUTIONS = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly"), "tf_keras": ("tf_keras",)}


def private(owner: Any, name: str, *, library: str) -> Any:
    """An attribute that a library does not promise.

    Args:
        library: what it belongs to, such as `keras`, `tf_keras` or `tensorflow`.

    Raises:
        UsageError: it is not there.
    """
    try:
        return getattr(owner, name)
    except AttributeError:
        raise incompatible(f"{_name(owner)} has no {name}", library=library) from None


def replace(owner: Any, name: str, function: Callable[..., Any], *, library: str) -> None:
    """Puts a function in the place of the owner's of this name, which becomes its first argument.

    Raises:
        UsageError: the owner has none.
    """
    original = private(owner, name, library=library)
    setattr(owner, name, wraps(original)(lambda *args, **kwargs: function(original, *args, **kwargs)))


def require(condition: object, what: str, *, library: str) -> None:
    """Makes sure of what a library does within.

    Args:
        what: what is wrong where the condition is false.

    Raises:
        UsageError: the condition is false.
    """
    if not condition:
        raise incompatible(what, library=library)


def mentions(function: Any, name: str) -> bool:
    """Whether the code of a function has this name or text: says without a call whether it still does what it did."""
    waiting: list[CodeType] = [unwrap(function).__code__]
    while waiting:
        code = waiting.pop()
        if name in code.co_names or name in code.co_consts:
            return True
        waiting.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return False


def session_of(client: Any) -> Any:
    """The `requests.Session` by which a `google.cloud.storage.Client` sends all its requests."""
    return private(client, "_http", library="google-cloud-storage")


def require_tf_keras(why: str) -> None:
    """Makes sure that tf_keras is installed, without importing it.

    Args:
        why: the first words of the error, which say what needs it.

    Raises:
        UsageError: it is not.
    """
    if find_spec("tf_keras") is None:
        release = ".".join(version_of("tensorflow").split(".")[:2])
        raise UsageError(
            f"{why} tf_keras, which is not installed; install it without its dependencies, which would replace "
            f"TensorFlow: pip install --no-deps 'tf_keras=={release}.*'"
        )


def incompatible(what: str, *, library: str) -> UsageError:
    """The one line for a library that this version of the trainer does not fit."""
    return UsageError(
        f"{library} {version_of(library)} does not fit this version of the trainer: {what}; install the version that "
        "the trainer is released with"
    )


def version_of(library: str) -> str:
    """The installed version, as `3.15.1`."""
    if found := getattr(sys.modules.get(library), "__version__", None):
        return str(found)
    for name in _DISTRIBUTIONS.get(library, (library,)):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "(unknown version)"


def _name(owner: Any) -> str:
    kind = owner if isinstance(owner, type) else type(owner)
    return str(owner.__name__) if kind.__name__ == "module" else kind.__name__
