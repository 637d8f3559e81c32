"""A Keras model as a chain of links, and the stages that it is cut into. Imports TensorFlow.

A link is as little of the model as one tensor enters and one leaves: a layer of a plain chain, a whole block where
there are branches. A cut between two links is a tensor that is sent from one worker to the next, forward, and its
gradient backward. So it must be of real numbers, and carry no mask, and the weights on its two sides must be others.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from dtj_trainer.checkpoint import variable_names
from dtj_trainer.compat import keras3
from dtj_trainer.config.pipeline_layout import PIPELINE, Layout
from dtj_trainer.errors import UsageError
from dtj_trainer.pipeline_parallel import partition


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of the model that is not cut."""

    name: str
    """Of its first layer."""
    parameters: int
    enters: Any
    """keras.KerasTensor."""
    leaves: Any


@dataclass(frozen=True, kw_only=True)
class Part:
    """What one stage computes: links that follow each other."""

    segments: tuple[Segment, ...]

    @property
    def parameters(self) -> int:
        """Of all its layers."""
        return sum(segment.parameters for segment in self.segments)

    def model(self) -> Any:
        """A model of its own, with the layers of the whole one."""
        return keras.Model(self.segments[0].enters, self.segments[-1].leaves)

    def __str__(self) -> str:
        first, last = self.segments[0].name, self.segments[-1].name
        return f"{first}..{last}" if first != last else first


def cut(model: Any, layout: Layout) -> tuple[Part, ...]:
    """Cuts a model into the stages of a layout.

    Raises:
        UsageError: the model cannot be cut so.
    """
    chain = segments(model)
    if len(chain) < layout.stages:
        raise UsageError(
            f"strategy {PIPELINE}: {layout.stages} stages, but the model can be cut into {len(chain)} at most "
            f"({_named(chain)}); use fewer workers"
        )
    if layout.first_layers:
        firsts = _asked(chain, layout.first_layers)
    else:
        firsts = partition.balance([segment.parameters for segment in chain], layout.stages)
    return tuple(Part(segments=chain[first:end]) for first, end in zip(firsts, [*firsts[1:], len(chain)], strict=True))


def segments(model: Any) -> tuple[Segment, ...]:
    """All links, in the order in which the data goes through them.

    Raises:
        UsageError: the model is no graph of layers from one input to one output.
    """
    nodes = list(_nodes(model))
    made = {id(tensor): place for place, node in enumerate(nodes) for tensor in node.output_tensors}
    used = {id(tensor): (tensor, place) for place, node in enumerate(nodes) for tensor in node.input_tensors}
    used[id(model.outputs[0])] = (model.outputs[0], len(nodes))
    crossing: list[list[Any]] = [[] for _ in range(len(nodes) + 1)]
    for tensor, last in used.values():
        for place in range(made[id(tensor)] + 1, last + 1):
            crossing[place].append(tensor)
    tied, names = _tied(nodes), variable_names.of_layers(model)
    # The first node is the input: what follows it belongs to the first link.
    begins = [1, *(place for place in range(2, len(nodes)) if place not in tied and _can_be_sent(crossing[place]))]
    return tuple(
        Segment(
            name=names.get(id(nodes[begin].operation), nodes[begin].operation.name),
            parameters=_parameters(nodes[begin:end]),
            enters=crossing[begin][0],
            leaves=crossing[end][0],
        )
        for begin, end in zip(begins, [*begins[1:], len(nodes)], strict=True)
    )


def _nodes(model: Any) -> Iterator[Any]:
    """The calls of layers and operations that lead to the output, each after all that it depends on."""
    if not isinstance(model, keras.Sequential | keras.Model) or not getattr(model, "inputs", None):
        raise UsageError(
            f"strategy {PIPELINE}: the model is a {type(model).__module__.partition('.')[0]} {type(model).__name__} "
            "and not a graph of layers of Keras 3; build a keras.Sequential that begins with an Input, or a functional "
            "model"
        )
    for kind, tensors in (("inputs", model.inputs), ("outputs", model.outputs)):
        if len(tensors) > 1:
            raise UsageError(
                f"strategy {PIPELINE}: the model has {len(tensors)} {kind}; only a model with one can be cut"
            )
    seen: set[int] = set()
    waiting = [(keras3.maker(model.outputs[0]), False)]
    while waiting:
        node, ready = waiting.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.append((node, True))
            waiting.extend((keras3.maker(tensor), False) for tensor in reversed(node.input_tensors))


def _tied(nodes: Sequence[Any]) -> set[int]:
    """The places where a cut would divide two uses of the same weight."""
    uses: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        for weight in getattr(node.operation, "weights", ()):
            uses.setdefault(id(weight), []).append(place)
    return {place for places in uses.values() for place in range(places[0] + 1, places[-1] + 1)}


def _can_be_sent(tensors: Sequence[Any]) -> bool:
    if len(tensors) != 1 or keras3.mask_of(tensors[0]) is not None:
        return False
    return bool(keras.backend.is_float_dtype(tensors[0].dtype))


def _parameters(nodes: Sequence[Any]) -> int:
    weights = {id(w): w for node in nodes for w in getattr(node.operation, "weights", ())}
    return sum(math.prod(weight.shape) for weight in weights.values())


def _asked(chain: Sequence[Segment], names: Sequence[str]) -> tuple[int, ...]:
    """Where the stages begin that the user named."""
    flag = f"--stages={','.join(names)}"
    known = {segment.name: place for place, segment in enumerate(chain) if place}
    for name in names:
        if name not in known:
            raise UsageError(f"{flag}: the model cannot be cut before {name!r}; it can before {_named(chain[1:])}")
    places = [known[name] for name in names]
    if doubled := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{flag}: {doubled[0]} begins one stage, not two; name each layer once")
    if places != sorted(places):
        raise UsageError(f"{flag}: not in the model's order; give {','.join(chain[p].name for p in sorted(places))}")
    return (0, *places)


def _named(chain: Sequence[Segment]) -> str:
    names = [segment.name for segment in chain]
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
