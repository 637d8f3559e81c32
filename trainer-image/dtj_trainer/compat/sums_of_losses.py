"""What a loss that a train step computes by itself is the sum of, read from the graph of the step. Imports TensorFlow.

Replicas add up their gradients. A loss of Keras' is divided by them already; a mean that the step takes by itself, such
as `tf.reduce_mean`, is not, and would count once for each replica. A gradient is linear: it is enough to know the means
that a loss is the sum of, and their factors.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

_SAME = ("Identity", "Cast", "Reshape", "Squeeze")
_SHAPES = ("Shape", "Size", "Const", "Cast", "StridedSlice", "Prod", "Pack", "Maximum", "Mul", "GatherV2", "Identity")


class UnknownSumError(Exception):
    """The loss is made of something that is neither a mean, nor a sum over the examples, nor a loss of Keras'."""


def means_of(
    loss: Any, *, divided: Callable[[Any], bool], whole: Callable[[Any], bool], sums: list[Any] | None = None
) -> list[tuple[Any, Any]]:
    """The means over a replica's examples that a scalar is the sum of, each with its factor.

    Args:
        loss: a tensor of a graph.
        divided: whether a tensor is a replica's part of a loss already.
        whole: whether a tensor counts as a mean, such as a penalty of weights.
        sums: takes the sums over the examples that it is the sum of as well.

    Raises:
        UnknownSumError: it is not such a sum.
    """
    found: list[tuple[Any, Any]] = []
    sums = [] if sums is None else sums
    waiting: list[tuple[Any, Any]] = [(loss, tf.ones([], loss.dtype))]
    while waiting:
        tensor, factor = waiting.pop()
        if divided(tensor):
            continue
        kind, inputs = tensor.op.type, list(tensor.op.inputs)
        if kind in ("Sum", "Mean") and inputs[0].op.type == "Pack" and inputs[0].shape.rank == 1:
            parts = list(inputs[0].op.inputs)
            waiting += [(one, factor if kind == "Sum" else factor / len(parts)) for one in parts]
            continue
        means = (kind == "Mean" and inputs[0].shape.rank) or _is_mean(tensor)
        if means or whole(tensor) or _is_of_weights(tensor):
            found.append((tensor, factor))
        elif kind == "Sum" and inputs[0].shape.rank:
            sums.append(tensor)
        elif kind == "StopGradient":
            continue
        elif kind in ("Add", "AddV2", "AddN", "Pack"):
            waiting += [(one, factor) for one in inputs]
        elif kind == "Sub":
            waiting += [(inputs[0], factor), (inputs[1], -factor)]
        elif kind == "Neg":
            waiting.append((inputs[0], -factor))
        elif kind in ("Sum", "Mean", *_SAME):
            waiting.append((inputs[0], tf.cast(factor, inputs[0].dtype)))
        elif kind == "Mul" and _is_fixed(inputs[0]):
            waiting.append((inputs[1], factor * inputs[0]))
        elif kind == "Mul" and _is_fixed(inputs[1]):
            waiting.append((inputs[0], factor * inputs[1]))
        elif kind == "RealDiv" and _is_fixed(inputs[1]):
            waiting.append((inputs[0], factor / inputs[1]))
        else:
            raise UnknownSumError(kind)
    return found


def _is_fixed(tensor: Any) -> bool:
    """Whether a tensor is a number that no example changes."""
    while tensor.op.type in _SAME and tensor.op.inputs:
        tensor = tensor.op.inputs[0]
    return tensor.shape.rank == 0 and tensor.op.type in ("Const", "ReadVariableOp", "Placeholder")


def _is_mean(tensor: Any) -> bool:
    """Whether a tensor is a sum over the examples, divided by their number."""
    if tensor.op.type not in ("RealDiv", "DivNoNan") or tensor.op.inputs[0].op.type != "Sum":
        return False
    waiting, shapes = [tensor.op.inputs[1]], False
    while waiting:
        operation = waiting.pop().op
        if operation.type not in _SHAPES:
            return False
        if operation.type in ("Shape", "Size"):
            shapes = True
        else:
            waiting += operation.inputs
    return shapes


def _is_of_weights(tensor: Any) -> bool:
    """Whether a tensor is made of variables and constants alone: it is the same on each replica."""
    waiting, seen = [tensor], set()
    while waiting:
        operation = waiting.pop().op
        if operation.name in seen or operation.type == "ReadVariableOp":
            continue
        seen.add(operation.name)
        if operation.type != "Const" and not operation.inputs:
            return False
        waiting += operation.inputs
    return True
