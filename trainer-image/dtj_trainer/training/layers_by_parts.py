"""What the layers of a model of Keras 3 compute for a batch, compared with what they compute for its parts.

Several replicas have a part of a batch each. A layer whose output for an example depends on the other examples gives
something else there, and so does a loss that a layer adds and that is neither a mean nor a sum over the examples. Both
are looked for with real examples, in calls that change nothing. Such a layer can be given the examples of all replicas,
see `layers_of_all`, if all that it takes and gives has a row for each example. Imports TensorFlow.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import values_here
from dtj_trainer.training import layers_of_all
from dtj_trainer.training.drawing_alike import drawing_alike
from dtj_trainer.training.loss_division import Parts, agreeing, off, rows_of
from dtj_trainer.training.varied_examples import EXAMPLES, chosen, enough, varied

log = logging.getLogger(__name__)

_LOSSES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
"""Of the largest of the losses: what passes as rounded, by the least exact type in the model."""
_OUTPUTS = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 2e-2}
"""Of the largest number of an output."""
_NOISE = 1e-2
"""Of the largest: what differs more for the same examples in another order is no noise."""
_TIMES = 10.0
"""What differs by this many times the noise is none."""
_CALLS = 4
"""Of one layer: a cell of a recurrent layer has one for each time step."""
_NUMBERS = 4096
"""Of an example that are compared, of each output."""


@dataclass(frozen=True)
class Added:
    """A loss that a layer adds, or the penalty of a weight.

    Attributes:
        parts: MEAN, SUM or NONE; MEAN also for what does not depend on the examples.
        by: the layer as a user knows it; None for a weight's penalty.
    """

    parts: Parts
    by: str | None


@dataclass(frozen=True)
class Seen:
    """What a look at a model has shown.

    Attributes:
        added: for each of `model.losses`, in their order.
        comparing: the first layer, in the order of calls, whose output for an example depends on others.
        of_all: the layers that are to be given the examples of all replicas, with the bytes that an example has there;
            what they give and add is not among the rest.
    """

    added: list[Added]
    comparing: str | None
    of_all: Mapping[Any, int] = field(default_factory=dict)

    @property
    def parts(self) -> list[Parts]:
        """How each of `model.losses` counts: as a mean, where the user accepts it as it is."""
        return [Parts.MEAN if loss.parts is Parts.NONE else loss.parts for loss in self.added]


def look(
    model: Any,
    inputs: Any,
    *,
    training: bool = True,
    of_all: Sequence[Any] | None = None,
    as_they_are: Sequence[str] = (),
) -> Seen:
    """Compares a batch of these examples with two parts of it, in forward passes.

    Everything draws the same numbers for each example. BatchNormalization takes the statistics that it has, and
    weights that the replicas aggregate keep their values. What differs by chance is not compared.

    Args:
        inputs: real examples, up to `EXAMPLES`; fewer than 6 are repeated, and varied.
        training: how the model is called.
        of_all: layers that are to be given the examples of all replicas, if they can be, as those that are found; None:
            no layer can be.
        as_they_are: names of layers that are not.

    Raises:
        Exception: what the model raises for them.
    """
    inputs = enough(chosen(inputs, np.arange(min(rows_of(inputs), EXAMPLES))))
    known: dict[Any, int] = {}
    with undisturbed(model):
        while True:
            seen, first, mixing = _looked(model, inputs, training=training, exchanging=of_all is not None)
            found = {
                layer: size
                for layer in (() if of_all is None else (*of_all, *mixing))
                if layer not in known and layer.name not in as_they_are and (size := first.size_in_rows(layer))
            }
            if not found:
                return replace(seen, of_all=known)
            known |= found
            for layer in found:
                layers_of_all.compute_of_all(layer)


def _looked(model: Any, inputs: Any, *, training: bool, exchanging: bool) -> "tuple[Seen, _Passes, list[Any]]":
    """What shows; the calls; and the layers that need the examples of all, as far as they show.

    Args:
        exchanging: whether the layers that are known to need it have the examples of all.
    """
    first = _Passes(model, inputs, training=training, exchanging=exchanging)
    possible, comparing = first.possible(), first.comparing()
    for tried in varied(inputs):
        try:
            other = _Passes(model, tried, training=training, exchanging=exchanging)
            also, comparing = other.possible(), other.comparing() if comparing is None else comparing
        except Exception as error:  # noqa: BLE001 - inputs may have to be numbers of a kind
            log.debug(f"the model does not take inputs that are changed: {error}")
            continue
        if len(also) == len(possible):
            possible = [one & two for one, two in zip(possible, also, strict=True)]
    parts = [next((one for one in (Parts.MEAN, Parts.SUM) if one in each), Parts.NONE) for each in possible]
    adders = first.whole.adders
    mixing = [layer for one, layer in zip(parts, adders, strict=True) if one is Parts.NONE and layer is not None]
    names = [None if layer is None else _name(layer) for layer in (comparing, *adders)]
    seen = Seen([Added(*each) for each in zip(parts, names[1:], strict=True)], names[0])
    return seen, first, mixing if comparing is None else [comparing, *mixing]


def tolerance_of(model: Any) -> float:
    """What passes as rounded of what a model computes, as a part of the largest number."""
    layers = (model, *keras3.sublayers(model, recursive=True))
    return max(_OUTPUTS.get(getattr(layer, "compute_dtype", ""), 0.0) for layer in layers) or _OUTPUTS["float32"]


@contextmanager
def undisturbed(model: Any) -> Iterator[None]:
    """Calls are eager, so that no function keeps numbers that are drawn alike, and they compute as they do alone."""
    layers = () if model is None else (model, *keras3.sublayers(model, recursive=True))
    known = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization) and layer.trainable]
    config, eagerly = tf.config.experimental, tf.config.functions_run_eagerly()
    fast = config.tensor_float_32_execution_enabled()
    for layer in known:
        layer.trainable = False
    tf.config.run_functions_eagerly(True)
    config.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        config.enable_tensor_float_32_execution(fast)
        tf.config.run_functions_eagerly(eagerly)
        for layer in known:
            layer.trainable = True


# -- calls -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Shown:
    """Of a tensor: its shape, its type, and some numbers of each row."""

    shape: tuple[int, ...]
    dtype: str
    numbers: Any


@dataclass(frozen=True)
class _Call:
    layer: Any
    inputs: list[_Shown]
    outputs: list[_Shown]
    size: int
    """Bytes of the inputs for an example; 0 if something that it takes or gives has no row for each."""


@dataclass
class _Pass:
    """One forward pass."""

    calls: dict[tuple[int, int], _Call] = field(default_factory=dict)
    losses: list[Any] = field(default_factory=list)
    adders: list[Any] = field(default_factory=list)
    """The layer of each loss; None for the penalty of a weight."""
    by_chance: bool = False
    """Whether it has drawn numbers that cannot be made alike."""

    @classmethod
    def of(
        cls, model: Any, inputs: Any, rows: Any, *, training: bool, calls: layers_of_all.Calls | None = None
    ) -> "_Pass":
        made, count = cls(), len(rows)
        called: dict[int, int] = {}

        def note(layer: Any, arguments: Any, outputs: Any) -> None:
            number = called[id(layer)] = called.get(id(layer), 0) + 1
            if not made.by_chance and number <= _CALLS and tf.executing_eagerly():
                given, got = ([_shown(one, count) for one in _tensors(each)] for each in (arguments, outputs))
                in_rows = layers_of_all.in_rows(arguments, count) and layers_of_all.in_rows(outputs, count)
                size = layers_of_all.bytes_of_row(arguments, count) if in_rows and layer is not model else 0
                made.calls[id(layer), number] = _Call(layer, given, got, size)

        def otherwise() -> None:
            made.by_chance = True

        before = values_here(model.variables)
        with (
            drawing_alike(otherwise),
            keras3.noting_calls(note),
            layers_of_all.calling(calls),
            _Scope(state_mapping=before, collect_losses=True),
        ):
            model(chosen(inputs, rows), **keras3.call_arguments(model, training=training))
            made.losses = [np.sum(np.asarray(tf.cast(loss, tf.float64))) for loss in model.losses]
            made.adders = keras3.adders_of_losses(model)
        return made


class _Scope(keras.StatelessScope):  # type: ignore[misc]
    """Weights that the replicas aggregate keep their values: all replicas give them the same."""

    def add_update(self, update: Any) -> None:
        if not aggregated(update[0]):
            super().add_update(update)


def aggregated(weight: Any) -> bool:
    """Whether a weight says how the values that replicas give it become one."""
    return str(getattr(weight, "aggregation", "none")).rpartition(".")[2].lower() not in ("none", "0")


def _name(layer: Any) -> str:
    return f"{'model' if isinstance(layer, keras.Model) else 'layer'} {layer.name} ({type(layer).__name__})"


def _tensors(values: Any) -> list[Any]:
    found: list[Any] = []
    for one in keras.tree.flatten(values):
        if isinstance(one, tf.RaggedTensor):
            found += [one.flat_values, *one.nested_row_lengths()]
        elif isinstance(one, tf.Tensor) and hasattr(one, "numpy") and one.dtype not in (tf.variant, tf.resource):
            found.append(one)
    return found


def _shown(one: Any, rows: int) -> _Shown:
    shape = tuple(one.shape)
    values = np.asarray(one)
    flat = values.reshape(shape[0] if shape else 1, -1) if values.size else np.zeros([0, 1], "float32")
    # An odd step meets all channels.
    step = -(-flat.shape[1] // max(_NUMBERS // max(len(flat) // rows, 1), 1)) | 1
    exact = one.dtype.is_integer or one.dtype in (tf.bool, tf.string)
    kind = flat.dtype if exact else "complex64" if one.dtype.is_complex else "float32"
    return _Shown(shape, one.dtype.name, flat[:, ::step].astype(kind))


# -- comparisons -----------------------------------------------------------------------------------------------


class _Passes:
    """All examples, the first third of them, and the rest."""

    def __init__(self, model: Any, inputs: Any, *, training: bool, exchanging: bool) -> None:
        self.rows = rows_of(inputs)
        self._part = self.rows // 3
        self._of: Callable[..., _Pass] = partial(_Pass.of, model, inputs, training=training)
        places, calls = np.arange(self.rows), layers_of_all.Recorded()
        self.whole = self._of(places, calls=calls)
        self.first, self.rest = (
            self._of(part, calls=calls.of_part(part) if exchanging else None)
            for part in (places[: self._part], places[self._part :])
        )

    @cached_property
    def again(self) -> _Pass:
        """What differs from the first time differs by chance."""
        return self._of(np.arange(self.rows))

    @cached_property
    def reversed(self) -> _Pass:
        """In another order, which shows how far numbers are rounded."""
        return self._of(np.arange(self.rows)[::-1])

    @property
    def _type(self) -> str:
        """The least exact one."""
        types = {one.dtype for call in self.whole.calls.values() for one in (*call.inputs, *call.outputs)}
        return next((name for name in ("bfloat16", "float16") if name in types), "float32")

    def possible(self) -> list[set[Parts]]:
        """For each added loss, what it may be: MEAN and SUM, one of them, or none."""
        losses = [one.losses for one in (self.whole, self.first, self.rest)]
        if len({len(one) for one in losses}) > 1:
            return [set() for _ in self.whole.losses]
        return [self._agreeing(place, *each) for place, each in enumerate(zip(*losses, strict=True))]

    def _agreeing(self, place: int, *each: Any) -> set[Parts]:
        """As what a loss agrees with those of the parts.

        Args:
            place: among the losses.
            each: the loss of all, of the first, and of the rest.
        """
        share, known = self._part / self.rows, {Parts.MEAN, Parts.SUM}
        if found := agreeing(*each, share=share, tolerance=_LOSSES[self._type]) & known:
            return found
        noise = off(np.float64(each[0]), np.float64(self.reversed.losses[place]))
        return agreeing(*each, share=share, tolerance=_TIMES * noise) & known if noise < _NOISE else set()

    def size_in_rows(self, layer: Any) -> int:
        """The bytes of a layer's inputs for an example; 0 if something that it takes or gives has no row for each."""
        calls = [
            call for one in (self.whole, self.first, self.rest) for call in one.calls.values() if call.layer is layer
        ]
        return sum(call.size for call in calls[: len(calls) // 3]) if all(call.size for call in calls) else 0

    def comparing(self) -> Any | None:
        """The first layer whose inputs agree with those of the parts, and whose outputs do not."""
        for key, whole in self.whole.calls.items():
            first, rest = self.first.calls.get(key), self.rest.calls.get(key)
            if first and rest and self._compares(key, whole, first, rest):
                return whole.layer
        return None

    def _compares(self, key: tuple[int, int], *each: _Call) -> bool:
        """Args:
        each: the call with all, with the first, and with the rest.
        """
        if len({(len(call.inputs), len(call.outputs)) for call in each}) > 1:
            return False
        tolerance, off = _OUTPUTS[self._type], 0.0
        for three in zip(*(call.inputs for call in each), strict=True):
            if self._mixes(*three):
                return False
            rows = self._off(*three)
            off = max(off, _off_of_same(*three) if rows is None else rows)
        if off > tolerance:
            return False
        tolerance = max(tolerance, _TIMES * off)
        return any(
            (self._mixes(*three) or (self._off(*three) or 0) > tolerance)
            and self._by_more_than_noise(key, place, self._off(*three), tolerance)
            for place, three in enumerate(zip(*(call.outputs for call in each), strict=True))
        )

    def _by_more_than_noise(self, key: tuple[int, int], place: int, off: float | None, tolerance: float) -> bool:
        """Whether an output is the same the next time, and differs by less in another order than in parts."""
        whole, again, turned = (one.calls.get(key) for one in (self.whole, self.again, self.reversed))
        if not (whole and again and turned) or len({len(one.outputs) for one in (whole, again, turned)}) > 1:
            return False
        shown = whole.outputs[place]
        if _difference(shown, again.outputs[place].numbers) > tolerance:
            return False
        noise = _difference(shown, self._turned(turned.outputs[place]))
        return off is None or noise >= _NOISE or off > _TIMES * noise

    def _mixes(self, whole: _Shown, first: _Shown, rest: _Shown) -> bool:
        """Whether there is a number for each pair of examples."""
        ranks = {len(one.shape) for one in (whole, first, rest)}
        sizes = (self.rows, self._part, self.rows - self._part)
        return (
            len(ranks) == 1
            and max(ranks) > 1
            and (whole.shape[0], first.shape[0], rest.shape[0]) == sizes
            and sizes in zip(whole.shape[1:], first.shape[1:], rest.shape[1:], strict=True)
        )

    def _turned(self, one: _Shown) -> Any:
        """Its numbers with the rows in reversed order."""
        count = len(one.numbers)
        if not count or count % self.rows:
            return one.numbers
        return one.numbers.reshape(self.rows, -1)[::-1].reshape(one.numbers.shape)

    def _off(self, whole: _Shown, first: _Shown, rest: _Shown) -> float | None:
        """How far the numbers of the parts together are from those of all; None if they have no rows, or others."""
        if not (whole.shape and first.shape and rest.shape and len(first.numbers) and len(rest.numbers)):
            return None
        if whole.shape[0] != first.shape[0] + rest.shape[0] or not (
            whole.numbers.shape[1] == first.numbers.shape[1] == rest.numbers.shape[1]
            and whole.shape[1:] == first.shape[1:] == rest.shape[1:]
        ):
            return None
        found = _difference(whole, np.concatenate([first.numbers, rest.numbers]))
        count = len(whole.numbers)
        if found and count > self.rows and count % self.rows == 0:
            # Rows may be of time steps first, and then of examples.
            steps = count // self.rows
            if len(first.numbers) == steps * self._part:
                parts = [one.numbers.reshape(steps, -1, one.numbers.shape[1]) for one in (first, rest)]
                found = min(found, _difference(whole, np.concatenate(parts, 1).reshape(whole.numbers.shape)))
        return found


def _off_of_same(whole: _Shown, first: _Shown, rest: _Shown) -> float:
    """How far two parts are from what does not depend on the number of examples."""
    return max(_difference(whole, first.numbers), _difference(whole, rest.numbers))


def _difference(one: _Shown, numbers: Any) -> float:
    """Of the largest; infinite for other integers, 0 for what is not finite."""
    if one.numbers.shape != numbers.shape:
        return float("inf")
    if one.numbers.dtype.kind not in "fc":
        return 0.0 if np.array_equal(one.numbers, numbers) else float("inf")
    if not (np.isfinite(one.numbers).all() and np.isfinite(numbers).all()):
        return 0.0
    return off(one.numbers, numbers)
