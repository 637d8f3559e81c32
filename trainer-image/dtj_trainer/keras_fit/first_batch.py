"""The first batch of a `fit` or an `evaluate`, looked at before it counts: how its losses and metrics divide.

Every worker looks at examples of its own, and all decide alike. Imports TensorFlow and Keras.
"""

import itertools
import logging
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakSet

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import components, summed_variables_here
from dtj_trainer.distribution.agreement import of_each_replica
from dtj_trainer.distribution.gathering import described
from dtj_trainer.errors import Undivided, UsageError, accept
from dtj_trainer.keras_fit import models
from dtj_trainer.keras_fit.adoption import members
from dtj_trainer.keras_fit.judged import Doubts, Judged
from dtj_trainer.keras_fit.metric_updates import Update
from dtj_trainer.keras_fit.replica_losses import divided, known
from dtj_trainer.keras_fit.step_values import Possible
from dtj_trainer.training.global_batch_loss import gives_each
from dtj_trainer.training.layers import sent_for, share_examples
from dtj_trainer.training.layers_by_parts import Seen
from dtj_trainer.training.loss_division import EXAMPLES, Parts, part_of, rows_of

log = logging.getLogger(__name__)
T = TypeVar("T")

_CODES = {parts: number for number, parts in enumerate(Parts, start=1)}
_PARTS = {number: parts for parts, number in _CODES.items()}
_FAILED, _LOOKED = 1, 2
_GATHERED, _ADDS_UP = 1, 2

unchecked: Sequence[str] = ()
"""Names of what the user accepts although nothing shows how replicas divide it."""


@dataclass(frozen=True)
class Found:
    """What all workers take for known of a step, see `models.OwnStep`.

    Attributes:
        equal: whether all replicas have as many examples.
    """

    targets: Sequence[Parts] = ()
    returned: Mapping[Any, Parts] = field(default_factory=dict)
    means: Sequence[Parts] = ()
    updates: Sequence[Update] = ()
    results: bool = False
    equal: bool = False


@dataclass
class _Seen:
    """What one worker has found."""

    problem: UsageError | None = None
    own_loss: Parts | None = None
    judged: Judged | None = None
    layers: Seen = field(default_factory=lambda: Seen([], None))
    step: models.OwnStep = field(default_factory=models.OwnStep)


def look(strategy: Any, model: Any, step: Callable[[Any], Any], data: Any, *, trains: bool, own: bool) -> Found:
    """Finds out how what a step computes divides over the replicas. All workers have to call it.

    Args:
        step: of the model: a train step, or a test step.
        data: what the replicas are given first.
        trains: whether it is a train step.
        own: whether the step is the user's own.

    Raises:
        UsageError: a layer, a loss or a step is of a kind that replicas cannot divide; on all workers.
    """
    compiled = (model._compile_loss, model._compile_metrics)
    if not trains and not own and _looked_at.get(model) == compiled:
        return Found()
    if (before := _own_losses.get(model)) is not None and before.compiled is not model._compile_loss:
        # It may call the compiled loss, which is another one by now.
        del _own_losses[model], model.compute_loss
    parts = _parts(strategy, model, data)
    filled = [part for part in parts if rows_of(part)]
    seen = _Seen()
    if filled:
        examples, replicas = _of_all(filled), strategy.num_replicas_in_sync
        looks = partial(_look, seen, model, step, examples, trains=trains, own=own, replicas=replicas)
        apart(partial(_look_at, model, looks))
    rows = [rows_of(part) for part in parts]
    found = _agree(strategy, model, seen, rows=rows)
    _looked_at[model] = compiled
    return found


def look_to_predict(strategy: Any, model: Any, data: Any) -> None:
    """Finds out which layers compute an example with others, unless that is known. All workers have to call it.

    Args:
        data: what the replicas are given first.

    Raises:
        UsageError: replicas cannot divide what a layer computes; on all workers.
    """
    if model in _looked_at:
        return
    seen = _Seen()
    filled = [part for part in _parts(strategy, model, data) if rows_of(part)]

    def checked() -> None:
        what = f"predict with {strategy.num_replicas_in_sync} replicas"
        try:
            examples = _of_all(filled)
            seen.layers = models.check(
                model, examples, trains=False, losses_count=False, what=what, unchecked=unchecked
            )
        except UsageError as error:
            seen.problem = error
        except Exception as error:  # noqa: BLE001 - the real call says what is wrong, if anything is
            log.debug(f"{type(model).__name__} could not be tried on examples: {error}")

    if filled:
        apart(partial(_look_at, model, checked))
    if any(of_each_worker(strategy, int(seen.problem is not None))):
        raise seen.problem or _said_by_another(model)
    share_examples(model, seen.layers, strategy)
    _looked_at[model] = None


def _said_by_another(model: Any) -> UsageError:
    return UsageError(f"{type(model).__name__}: another worker says why it does not run on several replicas")


def gathers(model: Any) -> bool:
    """Whether a step of a model computes something of the examples of all replicas."""
    return model in _gathering


_gathering: WeakSet[Any] = WeakSet()
"""Models of which a step computes something of the examples of all replicas."""


class _OwnLoss(NamedTuple):
    """What is known of a `compute_loss` of the model's own, and the compiled loss that it may have called."""

    parts: Parts
    compiled: Any


_own_losses: WeakKeyDictionary[Any, _OwnLoss] = WeakKeyDictionary()


def _own_parts(model: Any) -> Parts:
    """How its `compute_loss` divides; NONE also of a model that has none of its own."""
    own = _own_losses.get(model)
    return own.parts if own is not None else Parts.NONE


def doubtful(model: Any) -> bool:
    """Whether a loss or a metric is taken for known of which only examples say it."""
    return (
        _own_parts(model) is not Parts.NONE
        or any(not gives_each(one) and parts is not Parts.NONE for one, parts in known.losses.items())
        or any(known.metrics.values())
    )


LOOKS_AGAIN = (10, 100, 1000)
"""Steps at which what was found is looked at again."""


def look_again(
    strategy: Any, model: Any, step: Callable[[Any], Any], data: Any, *, targets: Sequence[Parts] | None, steps: int
) -> None:
    """Makes sure that losses and metrics still are what the first batch has shown. All workers have to call it.

    Args:
        data: what the replicas are given next.
        targets: how each loss divides of which a step of the user's own takes gradients; None if it is Keras' step.
        steps: that were taken.

    Raises:
        UsageError: one of them is not; on all workers.
    """
    doubts = Doubts(known)
    filled = [part for part in _parts(strategy, model, data) if rows_of(part)]
    if filled:
        examples = _of_all(filled)
        apart(partial(_look_at, model, partial(_look_again, doubts, model, step, examples, targets)))
    if any(of_each_worker(strategy, len(doubts.wrong))):
        what = doubts.wrong[0] if doubts.wrong else "a loss or a metric (another worker names it)"
        raise UsageError(
            f"fit with {strategy.num_replicas_in_sync} replicas: {what} compares the examples of a batch or leaves "
            f"some out, as those of step {steps + 1} show and those of the first did not, so steps 1 to {steps} were "
            "not those of one device; let it give one value for each example, or train on one device"
        )


def _look_again(
    doubts: Doubts, model: Any, step: Callable[[Any], Any], examples: Any, targets: Sequence[Parts] | None
) -> None:
    try:
        models.look(model, step, examples, doubts)
        if targets is None and not _divides_still(model, examples):
            doubts.wrong.append(f"{type(model).__name__}.compute_loss")
        if targets is not None and not models.still(model, step, examples, targets):
            doubts.wrong.append(f"a loss that {type(model).__name__}.train_step takes gradients of")
    except Exception as error:  # noqa: BLE001 - the real step says what is wrong, if anything is
        log.debug(f"{type(model).__name__}: its step could not be tried on examples: {error}")


def _divides_still(model: Any, examples: Any) -> bool:
    """Whether a `compute_loss` of the model's own divides for these examples as it did for the first, if it has one."""
    parts = _own_parts(model)
    return parts is Parts.NONE or models.division_of_loss(model, examples, known=parts) is parts


_looked_at: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""By model, the losses and metrics that it was compiled with when it was looked at."""


def parts_of(strategy: Any, data: Any) -> list[Any]:
    """What each replica of this worker has; one value for all, such as a weight of a batch, is that of each."""

    def of_replica(replica: int, value: Any) -> Any:
        local = strategy.experimental_local_results(value)
        return local[replica % len(local)]

    replicas = range(len(strategy.extended.worker_devices))
    return [keras.tree.map_structure(partial(of_replica, replica), data) for replica in replicas]


def _parts(strategy: Any, model: Any, data: Any) -> list[Any]:
    """The same, as a step of the model is given it."""
    parts: list[Any] = []
    for part in parts_of(strategy, data):
        model._autoconvert_optionals(parts.append)(part)
    return parts


def _of_all(parts: Sequence[Any]) -> Any:
    """Some of the examples of several replicas."""
    joined = keras.tree.map_structure(lambda *ones: None if ones[0] is None else _joined(ones), *parts)
    return part_of(joined, slice(0, EXAMPLES))


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], tf.SparseTensor):
        return tf.sparse.concat(0, list(parts))
    return tf.concat(parts, 0) if len(parts) > 1 and parts[0].shape.rank != 0 else parts[0]


def apart(call: Callable[[], T]) -> T:
    """Calls outside of the scope of a strategy, which is one of a thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def _look_at(model: Any, look: Callable[[], None]) -> None:
    """Looks at a model, whose code may count its calls, draw, or write summaries: all is as before afterwards."""
    counted = [
        component
        for layer in (model, *keras3.sublayers(model, recursive=True))
        for attribute in vars(layer).values()
        for value in members(attribute)
        if isinstance(value, tf.Variable)
        for component in components(value)
    ]
    before = [tf.identity(variable) for variable in counted]
    try:
        with leaving_no_trace(), summed_variables_here():
            look()
    finally:
        for variable, value in zip(counted, before, strict=True):
            variable.assign(value)


@contextmanager
def leaving_no_trace() -> Iterator[None]:
    """Meanwhile, nothing is written for TensorBoard; Python and NumPy draw afterwards as if nothing had been."""
    drawn, drawn_by_numpy = random.getstate(), np.random.get_state()
    try:
        with tf.summary.record_if(False):
            yield
    finally:
        random.setstate(drawn)
        np.random.set_state(drawn_by_numpy)


def _look(
    seen: _Seen,
    model: Any,
    step: Callable[[Any], Any],
    examples: Any,
    *,
    trains: bool,
    own: bool,
    replicas: int,
) -> None:
    def tried(what: str, call: Callable[[], Any]) -> Any:
        if seen.problem is not None:
            return None
        try:
            return call()
        except UsageError as error:
            seen.problem = error
        except Exception as error:  # noqa: BLE001 - the real step says what is wrong, if anything is
            log.warning(f"{type(model).__name__}: {what}; it could not be tried on examples ({first_line(error)})")
        return None

    checked = tried(
        "its layers are taken to give each example its own",
        lambda: models.check(model, examples, trains=trains, what=f"fit with {replicas} replicas", unchecked=unchecked),
    )
    seen.layers = checked or seen.layers
    if "compute_loss" not in vars(model):
        seen.own_loss = tried(
            "its compute_loss is computed of the examples of all replicas",
            lambda: models.division_of_loss(model, examples),
        )

    def judge() -> Judged:
        judged = Judged()
        models.look(model, step, examples, judged)
        return judged

    seen.judged = tried("its losses and metrics are computed of the examples of all replicas", judge)
    if own and seen.problem is None:
        name = "train_step" if trains else "test_step"
        try:
            try:
                seen.step = models.look_at_own_step(
                    model, step, examples,
                    own_loss=seen.own_loss,
                    replicas=replicas, name=name, unchecked=unchecked,
                )  # fmt: skip
            except Undivided as error:
                accept(error, unchecked)
            except UsageError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever the user's code raises
                what = (
                    f"fit with {replicas} replicas: {type(model).__name__}.{name} could not be tried on some of the "
                    f"examples, which shows how replicas divide what it computes ({type(error).__name__}: "
                    f"{first_line(error)}); let it take any number of examples, or train on one device"
                )
                accept(Undivided(name, what), unchecked)
        except UsageError as error:
            seen.problem = error


def first_line(error: Exception) -> str:
    """What an error of the user's code says; AutoGraph writes lines of this code before it."""
    lines = str(error).strip().split("\n")
    return (
        lines[-1 if lines[0].startswith("in user code") else 0].strip().removeprefix(f"{type(error).__name__}: ")[:200]
    )


def _agree(strategy: Any, model: Any, seen: _Seen, *, rows: Sequence[int]) -> Found:
    """Lets all workers take the same for known."""
    judged = seen.judged or Judged()
    losses, metrics = list(judged.losses), list(judged.metrics)
    added = seen.layers.parts
    updates = seen.step.updates
    given = [parts for _, ones in updates for parts in ones]
    problem, equal, looked, own_loss, with_results, *of_each = _alike(
        strategy,
        [
            int(seen.problem is not None),
            rows[0] + 1 if len(set(rows)) == 1 else -1,
            _FAILED if seen.judged is None else _LOOKED,
            0 if seen.own_loss is None else _CODES[seen.own_loss],
            int(seen.step.results),
            *(_CODES[judged.losses[loss]] for loss in losses),
            *(_ADDS_UP if judged.metrics[metric] else _GATHERED for metric in metrics),
            *(_CODES[parts] for parts in added),
            *(_CODES[parts] for parts in seen.step.targets),
            *(_mask(parts) for parts in seen.step.returned.values()),
            *(_mask(parts) for parts in seen.step.means),
            *(_ADDS_UP if adds_up else _GATHERED for adds_up, _ in updates),
            *(_mask(parts) for parts in given),
        ],
    )
    if problem:
        raise seen.problem or _said_by_another(model)
    if keras3.overrides(model, "compute_loss") and "compute_loss" not in vars(model):
        _own_losses[model] = _OwnLoss(_agreed(own_loss), model._compile_loss)
        model.compute_loss = divided(type(model).compute_loss, model, _agreed(own_loss))
    layers = share_examples(model, seen.layers, strategy)
    of_all = bool(layers) or (bool(own_loss) and _agreed(own_loss) is Parts.NONE)
    returned: dict[Any, Parts] = {}
    targets: Sequence[Parts] = ()
    means: Sequence[Parts] = ()
    of_updates: Sequence[Update] = ()
    if looked == {_LOOKED}:
        groups, each = [], iter(of_each)
        for group in (losses, metrics, added, seen.step.targets, seen.step.returned, seen.step.means, updates, given):
            groups.append(list(itertools.islice(each, len(group))))
        of_losses, of_metrics, of_added, of_targets, of_returned, of_means, of_own, of_given = groups
        given_next = iter(of_given)
        known.added[model] = [_agreed(codes) for codes in of_added]
        targets = [_agreed(codes) for codes in of_targets]
        returned = {place: _shared(codes) for place, codes in zip(seen.step.returned, of_returned, strict=True)}
        means = [_shared(codes) for codes in of_means]
        of_updates = [
            Update(codes == {_ADDS_UP}, [_shared(next(given_next)) for _ in ones])
            for codes, (_, ones) in zip(of_own, updates, strict=True)
        ]
        for loss, codes in zip(losses, of_losses, strict=True):
            known.put(loss, _agreed(codes))
        differ = any(codes and not _possible(codes) for codes in itertools.chain(of_returned, of_means, of_given))
        if differ or Parts.NONE in targets or Parts.NONE in known.added[model]:
            raise UsageError(
                f"fit: the workers do not find the same of {type(model).__name__}, each with its first examples: "
                "whether what it computes is a mean or a sum over the examples; let it be a mean"
            )
        for metric, codes in zip(metrics, of_metrics, strict=True):
            known.metrics[metric] = codes == {_ADDS_UP}
        replicas = strategy.num_replicas_in_sync
        most = max(of_each_worker(strategy, sum(rows))) * replicas // len(rows)
        sizes = {**_gathered(judged, losses, metrics), **seen.step.sizes}
        of_all |= bool(sizes)
        told = [described(name, size * most, replicas=replicas) for name, size in sizes.items()]
        told += sent_for(layers, most, replicas=replicas)
        for line in told if strategy.extended.should_checkpoint else ():
            log.info(line)
    if any(of_each_worker(strategy, int(of_all))):
        _gathering.add(model)
    return Found(targets, returned, means, of_updates, bool(with_results), len(equal) == 1 and equal != {-1})


def _agreed(codes: set[int]) -> Parts:
    return _PARTS[min(codes)] if len(codes) == 1 else Parts.NONE


def _mask(possible: Possible) -> int:
    return sum(1 << code for parts, code in _CODES.items() if parts in possible)


def _possible(masks: set[int]) -> int:
    return reduce(operator.and_, masks) if masks else 0


def _shared(masks: set[int]) -> Parts:
    """What all workers have found that a number of a step may be."""
    possible = _possible(masks)
    return next((parts for parts, code in _CODES.items() if possible >> code & 1), Parts.NONE)


def _gathered(judged: Judged, losses: Sequence[Any], metrics: Sequence[Any]) -> Mapping[str, int]:
    """Which losses and metrics are computed of the examples of all, as lines say it, and the bytes of an example."""
    found = {f"the loss {one.name}": one for one in losses if known.of_loss(one) is Parts.NONE}
    found |= {f"the metric {one.name}": one for one in metrics if not known.adds_up(one)}
    return {name: judged.bytes_of_each.get(one, 0) for name, one in found.items()}


def _alike(strategy: Any, codes: Sequence[int]) -> list[set[int]]:
    """What the workers bring, for each place; 0 says nothing."""
    longest = max(of_each_worker(strategy, len(codes)))
    filled = [*codes, *[0] * (longest - len(codes))]
    return [set(of_each_worker(strategy, code)) - {0} for code in filled]


def of_each_worker(strategy: Any, number: int) -> list[int]:
    """What all workers bring, once for each replica; all of them have to call it."""
    alone = len(strategy.extended.worker_devices) == strategy.num_replicas_in_sync
    return [number] if alone else of_each_replica(strategy, number)
