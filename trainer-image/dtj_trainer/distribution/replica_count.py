"""The number of replicas, where a user's own code asks for it within a step. Imports TensorFlow.

A step that is divided by us is written for one device, or divides by the number of replicas as TensorFlow's guide says:
both are right where that number is one. So is what `tf.nn.compute_average_loss` does, which asks for it too.
"""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from weakref import WeakSet

import tensorflow as tf

from dtj_trainer.compat import private

_NAME = "num_replicas_in_sync"
_LIBRARIES = ("tensorflow.", "keras.", "dtj_trainer.")
_FOR_USERS = inspect.unwrap(tf.nn.compute_average_loss).__module__
"""Where `tf.nn.scale_regularization_loss` is, too."""


class _Here(threading.local):
    counts_one = False


_here = _Here()
_kept: WeakSet[type] = WeakSet()


@contextmanager
def one_replica() -> Iterator[None]:
    """Meanwhile, in this thread, strategies tell the user's code that they have one replica."""
    install()
    before, _here.counts_one = _here.counts_one, True
    try:
        yield
    finally:
        _here.counts_one = before


def asks_elsewhere(kind: type) -> bool:
    """Whether methods of a class have asked for the number of replicas outside of a step, and may have kept it."""
    return any(one in _kept for one in kind.__mro__)


@cache
def install() -> None:
    """From now on, it is noted who asks."""
    for kind in (tf.distribute.Strategy, tf.distribute.ReplicaContext):
        owner = next(one for one in kind.__mro__ if _NAME in vars(one))
        setattr(owner, _NAME, property(_asking(private(owner, _NAME, library="tensorflow").fget)))


def _asking(count: Callable[[Any], int]) -> Callable[[Any], int]:
    def num_replicas_in_sync(asked: Any) -> int:
        this = inspect.currentframe()
        assert this is not None  # in CPython
        assert this.f_back is not None
        caller = this.f_back
        module = caller.f_globals.get("__name__") or ""
        if module.startswith(_LIBRARIES) and module != _FOR_USERS:
            return count(asked)
        if _here.counts_one:
            return 1
        method_of = caller.f_locals.get("self")
        if method_of is not None:
            _kept.add(type(method_of))
        return count(asked)

    num_replicas_in_sync.__doc__ = count.__doc__
    return num_replicas_in_sync
