"""Layers that compute an example with others of the batch, in a step of several replicas: of the examples of all.

A layer that centres, ranks or contrasts the examples of a batch gives something else for a part of it. So does a loss
that it adds, such as one that balances experts, and a weight that it sets, such as a running mean. Each replica calls
such a layer with the inputs of all replicas, and takes its own rows of what it gives: the numbers of one device, for
what is sent and computed more. Imports TensorFlow.
"""

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakSet

import keras
import tensorflow as tf

from dtj_trainer.autograph import as_written
from dtj_trainer.distribution.gathering import Whole, bytes_of, of_tensors
from dtj_trainer.errors import Undivided
from dtj_trainer.training.loss_division import by_row


class Calls(Protocol):
    """What the calls of these layers are given and give, meanwhile."""

    def given(self, layer: Any, arguments: Any) -> Any:
        """The arguments, positional and by name, in place of these."""

    def taken(self, layer: Any, outputs: Any) -> Any:
        """What is taken of the outputs."""


class _Here(threading.local):
    calls: Calls | None = None
    """In this thread; None: the layers compute what they are given."""


_here = _Here()
_layers: WeakSet[Any] = WeakSet()


def compute_of_all(layer: Any) -> None:
    """From now on, a layer of Keras 3 is called as `calling` says."""
    if layer in _layers:
        return
    _layers.add(layer)
    call = layer.call

    @functools.wraps(call)
    def call_with_all(*args: Any, **kwargs: Any) -> Any:
        calls = _here.calls
        if calls is None:
            return call(*args, **kwargs)
        args, kwargs = calls.given(layer, (args, kwargs))
        # The layers in it have the examples of all already.
        with calling(None):
            outputs = call(*args, **kwargs)
        return calls.taken(layer, outputs)

    # Not as an attribute that Keras tracks.
    vars(layer)["call"] = call_with_all


@contextmanager
def calling(calls: Calls | None) -> Iterator[None]:
    """How these layers are called, meanwhile and in this thread; None: as on one device."""
    before, _here.calls = _here.calls, calls
    try:
        yield
    finally:
        _here.calls = before


class OfStep:
    """Their calls in a replica's step: with the rows of all replicas."""

    def __init__(self, present: Any = None) -> None:
        """To be made in the step.

        Args:
            present: 0 if this replica's example only stands in for none, else 1; None where this cannot be.
        """
        self._present = present
        self._graph = tf.compat.v1.get_default_graph()
        self._calls: list[tuple[Whole, Any]] = []

    @as_written
    def given(self, layer: Any, arguments: Any) -> Any:
        """See `Calls`."""
        if tf.compat.v1.get_default_graph() is not self._graph:
            raise Undivided(
                layer.name,
                f"layer {layer.name} ({type(layer).__name__}) computes an example with others of the batch, of which "
                "each replica has only its own, and it is called in a loop, a condition or a function of TensorFlow, "
                "where replicas cannot exchange them; call it outside of that, or train on one device",
            )
        whole = Whole(self._present, of_layer=True)
        tensors = [one for one in keras.tree.flatten(arguments) if tf.is_tensor(one)]
        self._calls.append((whole, tf.shape(tensors[0])[0]))
        return of_tensors(whole.gathered, arguments)

    @as_written
    def taken(self, layer: Any, outputs: Any) -> Any:
        """See `Calls`."""
        whole, rows = self._calls.pop()
        return whole.own(outputs, rows)


class Recorded:
    """The arguments of their calls for some examples, by which calls for a part of these give what a replica's do.

    They are constants there. What such a layer gives for an example has gradients of others, which a part does not
    have: in their place, an example gets a share of the gradients of what is given for itself. So all else has the
    gradients that show how a loss divides.
    """

    def __init__(self) -> None:
        """Records in `calling`."""
        self._arguments: dict[tuple[int, int], Any] = {}
        self._calls = _Calls()

    def given(self, layer: Any, arguments: Any) -> Any:
        """See `Calls`."""
        constant = of_tensors(tf.stop_gradient, arguments)
        self._arguments[self._calls.begin(layer, arguments)] = constant
        return constant

    def taken(self, layer: Any, outputs: Any) -> Any:
        """See `Calls`."""
        return self._calls.end(outputs)

    def of_part(self, rows: Any) -> Calls:
        """The calls for some of these rows: of all examples, of which these are taken."""
        return _OfPart(self._arguments, rows)


class _OfPart:
    def __init__(self, arguments: dict[tuple[int, int], Any], rows: Any) -> None:
        self._arguments = arguments
        self._rows = rows
        self._calls = _Calls()

    def given(self, layer: Any, arguments: Any) -> Any:
        return self._arguments.get(self._calls.begin(layer, arguments), arguments)

    def taken(self, layer: Any, outputs: Any) -> Any:
        return self._calls.end(of_tensors(lambda one: tf.gather(one, self._rows), outputs))


class _Calls:
    """Their numbers, and the gradients that they have for an example."""

    def __init__(self) -> None:
        self._number: dict[int, int] = {}
        self._arguments: Any = None

    def begin(self, layer: Any, arguments: Any) -> tuple[int, int]:
        """The place of a call that begins: its layer, and the number of its calls."""
        self._arguments = arguments
        self._number[id(layer)] = self._number.get(id(layer), 0) + 1
        return id(layer), self._number[id(layer)]

    def end(self, outputs: Any) -> Any:
        """The same outputs, with gradients for the arguments of the call, row by row."""
        numbers = [one for one in keras.tree.flatten(self._arguments) if tf.is_tensor(one) and one.dtype.is_floating]
        if not numbers:
            return outputs
        of_rows = [tf.reduce_mean(tf.reshape(one, [tf.shape(one)[0], -1]), 1) for one in numbers]
        sum_ = tf.add_n([tf.cast(one, tf.float32) for one in of_rows])

        def connected(one: Any) -> Any:
            if not one.dtype.is_floating:
                return one
            return one + by_row(sum_ - tf.stop_gradient(sum_), one)

        return of_tensors(connected, outputs)


def in_rows(values: Any, rows: int) -> bool:
    """Whether all tensors of a structure, of which there are some, have so many rows, and can be gathered."""
    tensors = [one for one in keras.tree.flatten(values) if tf.is_tensor(one)]
    return bool(tensors) and all(
        isinstance(one, tf.Tensor)
        and (one.dtype.is_floating or one.dtype.is_integer or one.dtype.is_bool)
        and one.shape.rank
        and one.shape[0] == rows
        for one in tensors
    )


def bytes_of_row(values: Any, rows: int) -> int:
    """What one row of a structure of tensors holds."""
    tensors = [one for one in keras.tree.flatten(values) if tf.is_tensor(one)]
    return sum(bytes_of(one) for one in tensors) // rows
