"""AutoGraph rewrites the functions of the user, whose `if` and `for` may depend on tensors, and none of the trainer's.

To rewrite the trainer's own functions took a good part of the time to the first step. Imports TensorFlow.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import tensorflow as compat

as_written = tf.autograph.experimental.do_not_convert
"""Decorates what calls no code of the user's: neither it nor what it calls is rewritten."""


def rewritten(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, rewritten wherever a graph is made of it, as `tf.function` does; to be called outside of one.

    Where everything runs eagerly it stays as it is, for the debugger.
    """
    return _in_graphs(function, compat.convert_in_graphs(function))


def rewritten_within(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function as it is; what it makes graphs of, such as the functions of a dataset, is rewritten also where
    the function is called in a graph. To be called outside of one.
    """
    return _in_graphs(function, compat.convert_in_graphs(function, itself=False))


def _in_graphs(function: Callable[..., Any], in_graphs: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return (function if tf.executing_eagerly() else in_graphs)(*args, **kwargs)

    return call
