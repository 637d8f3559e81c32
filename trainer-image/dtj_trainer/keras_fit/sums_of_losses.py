"""What a loss that a train step computes by itself is the sum of, read from the graph of the step. Imports TensorFlow.

Replicas add up their gradients. A loss of Keras' is divided by them already; a mean that the step takes by itself, such
as `tf.reduce_mean`, is not, and would count once for each replica. A gradient is linear: it is enough to know the means
that a loss is the sum of, and their factors.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from dtj_trainer.compat import private

_SAME = ("Identity", "Cast", "Reshape", "Squeeze")
_CHANCE = ("Random", "TruncatedNormal", "Multinomial", "RngReadAndSkip")
"""Words in the names of operations that draw numbers."""
_FUNCTIONS = ("f", "then_branch", "else_branch")
"""Attributes of operations that name what they call."""
_SHAPES = ("Shape", "Size", "Const", "Cast", "StridedSlice", "Prod", "Pack", "Maximum", "Mul", "GatherV2", "Identity")


class UnknownSumError(Exception):
    """The loss is made of something that is neither a mean, nor a sum over the examples, nor a loss of Keras'."""


def means_of(
    losses: Sequence[Any],
    *,
    divided: Callable[[Any], bool],
    whole: Callable[[Any], bool],
    sums: list[Any] | None = None,
) -> list[tuple[Any, Any]]:
    """The means over a replica's examples that scalars are the sums of, each with its factor.

    Args:
        losses: tensors of a graph.
        divided: whether a tensor is a replica's part of a loss already.
        whole: whether a tensor counts as a mean, such as a penalty of weights.
        sums: takes the sums over the examples that it is the sum of as well.

    Raises:
        UnknownSumError: it is not such a sum.
    """
    found: list[tuple[Any, Any]] = []
    sums = [] if sums is None else sums
    waiting: list[tuple[Any, Any]] = [(loss, tf.ones([], loss.dtype)) for loss in losses]
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


def mark_whole(tensor: Any) -> None:
    """Notes of a tensor that it is the same on all replicas."""
    tensor._dtj_whole = True


def is_whole(tensor: Any) -> bool:
    """Whether `mark_whole` has noted it."""
    return hasattr(tensor, "_dtj_whole")


def parts_of_replica(tensor: Any) -> Iterator[Any]:
    """What a tensor of a graph is made of that each replica has of its own: examples, and numbers drawn by chance.

    What is made of constants, variables and whole tensors alone is the same on each replica. Looks into the functions
    that are called, and the branches of `tf.cond`; of loops it knows what they are given.
    """
    waiting, seen = [tensor], set()
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen or is_whole(tensor):
            continue
        seen.add(id(tensor))
        if isinstance(tensor, tf.__internal__.EagerTensor):
            if tensor.dtype in (tf.resource, tf.variant):
                yield tensor
            continue
        operation = tensor.op
        captures = getattr(tensor.graph, "captures", ()) if operation.type == "Placeholder" else ()
        if outers := [outer for outer, one in captures if one is tensor]:
            waiting += outers
        elif called := _called(operation):
            waiting += operation.inputs[:1] if "If" in operation.type else ()
            for graph in called:
                given = operation.inputs[len(operation.inputs) - len(graph.inputs) :]
                outer = {id(one): value for one, value in zip(graph.inputs, given, strict=True)}
                for part in parts_of_replica(graph.outputs[tensor.value_index]):
                    if id(part) in outer:
                        waiting.append(outer[id(part)])
                    else:
                        yield part
        elif operation.type in ("Const", "ReadVariableOp"):
            continue
        elif not operation.inputs or any(word in operation.type for word in _CHANCE):
            yield tensor
        else:
            waiting += operation.inputs


def _called(operation: Any) -> list[Any]:
    """The graphs that an operation calls and whose outputs it has."""
    names = [operation.get_attr(one).name for one in _FUNCTIONS if one in operation.node_def.attr]
    return [private(operation.graph, "_get_function", library="tensorflow")(name).graph for name in names]


def _is_of_weights(tensor: Any) -> bool:
    """Whether a tensor is made of variables and constants alone: it is the same on each replica."""
    return next(parts_of_replica(tensor), None) is None
