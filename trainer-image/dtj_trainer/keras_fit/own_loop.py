"""A step of a loop of the user's own: the gradients of all replicas, compared with those of one with the whole batch.

Nothing is updated, and every variable that the step sets is as before. Imports TensorFlow and Keras.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat.optimizers import reduced, sums_otherwise
from dtj_trainer.compat.tensorflow import convert_in_graphs
from dtj_trainer.distribution.gathering import Whole
from dtj_trainer.distribution.replica_count import one_replica
from dtj_trainer.errors import Undivided, accept
from dtj_trainer.keras_fit.first_batch import apart, first_line, leaving_no_trace, of_each_worker, parts_of
from dtj_trainer.keras_fit.replica_losses import noting_applied, several
from dtj_trainer.training.drawing_alike import drawing_alike
from dtj_trainer.training.layers_by_parts import undisturbed
from dtj_trainer.training.loss_division import EXAMPLES, off, part_of, rows_of
from dtj_trainer.training.weight_update import inner

log = logging.getLogger(__name__)

_TOLERANCE, _LEAST = 1e-4, 1e-6
"""Of the largest number of a gradient, and of all gradients: what differs by less is rounded."""
_TIMES, _NOISE = 10.0, 1e-2
"""What differs by so many times what another order of the examples gives is no noise; more noise shows nothing."""

Step = Callable[[Any], Any]
Values = Sequence[Any]


class _Differs(Exception):
    """What is wrong with a step, and what to write instead."""

    ag_pass_through = True


def check(strategy: Any, step: Step, batch: Any, *, unchecked: Sequence[str]) -> None:
    """Makes sure that all replicas together compute the gradients of one. All workers have to call it.

    Args:
        step: called by each replica with its part of the batch; what it gives its optimizers is compared.
        batch: of a distributed dataset, or tensors of this worker, which are divided among its replicas.
        unchecked: names of what the user accepts as it is.

    Raises:
        UsageError: they do not, or nothing shows it; on all workers.
    """
    step = getattr(step, "python_function", step)  # a tf.function would keep what is traced here
    name = getattr(step, "__name__", "")
    name = name if name.isidentifier() else "step"
    replicas = strategy.num_replicas_in_sync
    if not several(strategy):
        log.info(f"check of {name}: nothing to compare under {type(strategy).__name__} with {replicas} replicas")
        return
    # What fails on one worker alone ends before the others wait for its sums.
    problem, compare = _tried(lambda: _traced(strategy, step, _parts(strategy, batch)))
    fails = any(of_each_worker(strategy, int(bool(problem))))
    if not fails:
        problem, shown = _tried(compare)
        fails = any(of_each_worker(strategy, int(bool(problem))))
    if fails:
        accept(Undivided(name, f"check of {name}: {problem or 'another worker says what is wrong'}"), unchecked)
    elif strategy.extended.should_checkpoint:
        log.info(f"checked {name}: {replicas} replicas compute the gradients of one ({shown})")


def _tried(call: Callable[[], Any]) -> tuple[str, Any]:
    """What is wrong with the step, or "", and what comes of the call."""
    try:
        with leaving_no_trace(), undisturbed(None):
            return "", call()
    except _Differs as differs:
        return str(differs), None
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises
        return (
            f"it could not be tried ({type(error).__name__}: {first_line(error)}); let it take any number of examples, "
            "and compute with tensors alone"
        ), None


def _parts(strategy: Any, batch: Any) -> list[Any]:
    """What each replica of this worker has, or the first examples of it."""
    here = len(strategy.extended.worker_devices)
    if any(isinstance(one, tf.distribute.DistributedValues) for one in keras.tree.flatten(batch)):
        parts = parts_of(strategy, batch)
    else:
        batch = keras.tree.map_structure(tf.convert_to_tensor, batch)
        size = -(-rows_of(batch) // here)
        parts = [part_of(batch, slice(place * size, (place + 1) * size)) for place in range(here)]
    rows = [rows_of(part) for part in parts]
    most = max(of_each_worker(strategy, sum(rows))) * strategy.num_replicas_in_sync // here
    # In proportion, so that uneven parts stay uneven.
    taken = [-(-count * EXAMPLES // max(most, EXAMPLES)) for count in rows]
    return [part_of(part, slice(0, count)) for part, count in zip(parts, taken, strict=True)]


def _traced(strategy: Any, step: Step, parts: Sequence[Any]) -> Callable[[], str]:
    """What compares the gradients of all replicas with those of one: see `_judged`."""
    replicas, converted = strategy.num_replicas_in_sync, convert_in_graphs(step)
    distributed = strategy.experimental_distribute_values_from_function(
        lambda context: parts[context.replica_id_in_sync_group % len(parts)]
    )

    def gather(batch: Any) -> Any:
        found = strategy.run(lambda part: Whole().gathered(part), args=(batch,))
        return keras.tree.map_structure(lambda one: strategy.experimental_local_results(one)[0], found)

    whole = tf.function(gather, autograph=False).get_concrete_function(distributed)(distributed)

    def of_all(names: list[str], batch: Any) -> Any:
        def of_replica(part: Any) -> Any:
            given, gradients, summed = _given(converted, part)
            names[:] = given
            sums = reduced("SUM", [None if done else one for one, done in zip(gradients, summed, strict=True)])
            return [one if two is None else two for one, two in zip(gradients, sums, strict=True)]

        found = strategy.run(of_replica, args=(batch,))
        return [strategy.experimental_local_results(one)[0] for one in found]

    def of_one(names: list[str], batch: Any) -> Any:
        with one_replica():
            names[:], gradients, _ = _given(converted, batch)
        return gradients

    # All replicas first: a gradient that is taken on one alone looks like a worker that trains by itself.
    on_all = _Gradients(of_all, distributed)
    on_one = apart(lambda: _Gradients(of_one, whole))
    if on_one.names != on_all.names:
        raise _Differs("it gives its optimizers gradients of other weights on one replica than on several")
    other = None
    with _kept(step, replicas) as kept, suppress(Exception):  # it may be another number
        # A global batch of this size is no number of replicas.
        other = apart(lambda: _Gradients(of_one, whole)) if kept and rows_of(whole) != replicas else None

    def compare() -> str:
        many, one, again = on_all(distributed), on_one(whole), on_one(part_of(whole, slice(None, None, -1)))
        return _judged(on_one.names, one, again, many, other(whole) if other else None, (kept, replicas))

    return compare


def _given(step: Step, batch: Any) -> tuple[list[str], list[Any], list[bool]]:
    """What a step gives its optimizers: of which weights, their gradients, and whether these are of all replicas."""
    with noting_applied() as applied:
        step(batch)
    each = [
        (getattr(weight, "path", weight.name), tf.convert_to_tensor(gradient), sums_otherwise(inner(optimizer)))
        for optimizer, gradients, weights in applied
        for gradient, weight in zip(gradients, weights, strict=True)
        if gradient is not None
    ]
    if not each:
        raise _Differs("it gives no gradient to an optimizer of Keras 3, so there is nothing to compare")
    names, gradients, summed = zip(*each, strict=True)
    return list(names), list(gradients), list(summed)


class _Gradients:
    """The gradients of a step, in a graph of their own, by which all variables that the step sets are known."""

    def __init__(self, compute: Callable[[list[str], Any], Any], batch: Any) -> None:
        self.names: list[str] = []

        def of_batch(batch: Any) -> Any:
            with drawing_alike(self._otherwise, in_all_threads=True):
                return compute(self.names, batch)

        self._function = tf.function(of_batch, autograph=False).get_concrete_function(batch)

    def __call__(self, batch: Any) -> Values:
        before = [(variable, tf.identity(variable)) for variable in self._function.variables]
        try:
            return [np.asarray(one, np.float64) for one in self._function(batch)]
        finally:
            for variable, value in before:
                variable.assign(value)

    def _otherwise(self) -> None:
        raise _Differs("it draws numbers of a kind that cannot be the same for a batch and for parts of it")


@contextmanager
def _kept(step: Step, replicas: int) -> Iterator[list[str]]:
    """Meanwhile, what may keep the number of replicas from before is 1, as on one device. Yields its names."""
    found = [one for one in _held(step, set()) if type(one[1]) in (int, float) and one[1] == replicas]
    try:
        for _, _, put in found:
            put(1)
        yield sorted({name for name, _, _ in found})
    finally:
        for _, value, put in found:
            put(value)


def _held(step: Any, seen: set[Any]) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """What a step reads of its object, its module and the functions around it: name, value, and what replaces it."""
    spaces = []
    if isinstance(step, MethodType):
        spaces.append(vars(step.__self__))
        step = step.__func__
    if not isinstance(step, FunctionType) or step in seen:
        return
    seen.add(step)
    for space in (*spaces, step.__globals__):
        yield from [(name, value, partial(space.__setitem__, name)) for name, value in space.items()]
    for name, cell in zip(step.__code__.co_freevars, step.__closure__ or (), strict=True):
        with suppress(ValueError):  # not set yet
            yield name, cell.cell_contents, partial(setattr, cell, "cell_contents")
            yield from _held(cell.cell_contents, seen)


def _judged(names: Sequence[str], one: Values, again: Values, many: Values, other: Values | None, kept: Any) -> str:
    """How far the gradients on one replica are from those on all together.

    Args:
        one: of one replica.
        again: the same, of the examples in another order.
        other: the same, where what may keep the number of replicas is 1; None if there is no such thing.
        kept: the names of that, and the number.

    Raises:
        _Differs: too far, or they show nothing.
    """
    largest = max(float(np.abs(value).max(initial=0)) for value in (*one, *many))
    if not largest or not np.isfinite(largest):
        what = "not finite" if largest else "all 0"
        raise _Differs(f"its gradients are {what}, which shows nothing; check it with another batch")
    noise = [float(np.abs(a - b).max(initial=0)) for a, b in zip(one, again, strict=True)]
    if max(noise) > _NOISE * largest:
        raise _Differs("its gradients depend on the order of the examples or on chance, so nothing can be compared")

    def excess(a: Values, b: Values) -> list[float]:
        """Of the difference of each gradient over what passes."""
        each = zip(a, b, noise, strict=True)
        return [
            float(np.abs(x - y).max(initial=0))
            / max(_TOLERANCE * float(np.abs([x, y]).max(initial=0)), _TIMES * rounded, _LEAST * largest)
            for x, y, rounded in each
        ]

    def times(values: Values, factor: float) -> Values:
        return [factor * value for value in values]

    found, (names_kept, replicas) = excess(one, many), kept
    if max(found) > 1 and other is not None and max(excess(other, many)) <= 1:
        one, found = other, excess(other, many)
    elif max(found) <= 1 and other is not None and max(excess(times(one, replicas), other)) <= 1:
        raise _Differs(
            f"its gradients are divided by {replicas}, which {' or '.join(names_kept)} keeps: {replicas} times smaller "
            "than those of one device; leave that division out, as the size of the global batch counts all replicas"
        )
    if max(found) > 1:
        place = next(place for place, one_found in enumerate(found) if one_found > 1)
        at = np.unravel_index(np.argmax(np.abs(one[place] - many[place])), np.shape(one[place]))
        remedy = (
            "let it sum what each example gives by itself, divided by the size of the global batch, and give "
            "BatchNormalization synchronized=True"
        )
        if max(excess(times(one, replicas), many)) <= 1:
            remedy = (
                "divide the sum over the examples by the size of the global batch, as tf.nn.compute_average_loss("
                "losses, global_batch_size=...) does: the mean of each replica counts as a whole one"
            )
        elif max(excess(one, times(many, replicas))) <= 1:
            remedy = "leave out the division by the number of replicas, as the size of the global batch counts all"
        raise _Differs(
            f"the gradient of {names[place]} is {many[place][at]:.4g} on {replicas} replicas together and "
            f"{one[place][at]:.4g} on one with the whole batch; {remedy}"
        )
    difference = off(*(np.concatenate([np.ravel(value) for value in each]) for each in (one, many)))
    return f"largest difference {difference:.0e} of {len(names)} variables"
