"""The number of replicas, where a user's own code asks for it within a step. Imports TensorFlow.

A step that is divided by us, or a loss or a layer in it, is written for one device, or divides by the number of
replicas as the guide of TensorFlow says: both are right where that number is one. So is what
`tf.nn.compute_average_loss` does, which asks for it too.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import Any
from weakref import WeakSet

import tensorflow as tf

from dtj_trainer.compat import private
from dtj_trainer.errors import UsageError

_NAME = "num_replicas_in_sync"
_REDUCTIONS = ("all_reduce", "all_gather")
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
    """From now on, it is noted who asks, and code that counts one replica reduces nothing over several."""
    owner = next(one for one in tf.distribute.Strategy.__mro__ if _NAME in vars(one))
    count = private(owner, _NAME, library="tensorflow").fget
    for name in _REDUCTIONS:
        reduce = private(tf.distribute.ReplicaContext, name, library="tensorflow")
        setattr(tf.distribute.ReplicaContext, name, _refusing(reduce, count))
    for kind in (tf.distribute.Strategy, tf.distribute.ReplicaContext):
        owner = next(one for one in kind.__mro__ if _NAME in vars(one))
        setattr(owner, _NAME, property(_asking(private(owner, _NAME, library="tensorflow").fget)))


def _asking(count: Callable[[Any], int]) -> Callable[[Any], int]:
    def num_replicas_in_sync(asked: Any) -> int:
        caller = _users_frame()
        if caller is None:
            return count(asked)
        if _here.counts_one:
            return 1
        method_of = caller.f_locals.get("self")
        if method_of is not None:
            _kept.add(type(method_of))
        return count(asked)

    num_replicas_in_sync.__doc__ = count.__doc__
    return num_replicas_in_sync


def _refusing(reduce: Callable[..., Any], count: Callable[[Any], int]) -> Callable[..., Any]:
    @functools.wraps(reduce)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        if _here.counts_one and count(args[0].strategy) > 1 and _users_frame() is not None:
            raise UsageError(
                f"{reduce.__name__} in a step of a model, or in its layers: its gradients and losses are those of the "
                "whole batch already, so leave it out; BatchNormalization(synchronized=True) takes the statistics of "
                "all replicas; or train on one device"
            )
        return reduce(*args, **kwargs)

    return refusing


def _users_frame() -> FrameType | None:
    """The code that has called the function which calls this, if it is the user's."""
    this = inspect.currentframe()
    caller = this.f_back.f_back if this is not None and this.f_back is not None else None
    module = (caller.f_globals.get("__name__") or "") if caller is not None else ""
    return None if module.startswith(_LIBRARIES) and module != _FOR_USERS else caller
