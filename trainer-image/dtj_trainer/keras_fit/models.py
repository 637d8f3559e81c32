"""What several replicas need of the model of a script's `fit`, as of a model of `--model`. Imports TensorFlow.

The model is looked at with the first examples that its data give. So is a train step of the script's own, of all of
them and of two parts: that shows what its losses are of the examples.
"""

import logging
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from dtj_trainer.compat import keras3
from dtj_trainer.compat.tensorflow import components, values_here
from dtj_trainer.distribution.replica_count import asks_elsewhere
from dtj_trainer.errors import Undivided, UsageError
from dtj_trainer.keras_fit.adoption import members, owners_of
from dtj_trainer.keras_fit.judged import Judged, begins_at_zero
from dtj_trainer.keras_fit.metric_updates import Updated, as_array, watching
from dtj_trainer.keras_fit.replica_losses import Noted, divided, here, looking, measuring, noting, own_step
from dtj_trainer.keras_fit.step_values import Possible, Values
from dtj_trainer.training import layers_by_parts, layers_of_all
from dtj_trainer.training.drawing_alike import drawing_alike
from dtj_trainer.training.layers import check_shared, separate_losses
from dtj_trainer.training.loss_division import (
    ChangesModel,
    Evidence,
    Parts,
    Tried,
    by_row,
    compared,
    division,
    off,
    part_of,
    repeated,
    rows_of,
    with_value,
)
from dtj_trainer.training.metric_values import is_sum

log = logging.getLogger(__name__)

_LEAST, _MOST = 6, 12
"""Examples that a step is tried on."""
_TOLERANCE = 1e-4
"""Of the numbers that a step computes: a GPU may convolve a batch of another size in another way."""


def check(
    model: Any, examples: Any, *, trains: bool, losses_count: bool = True, what: str, unchecked: Sequence[str] = ()
) -> layers_by_parts.Seen:
    """How the losses divide that the layers of a model add, and which of these need the examples of all replicas.

    Lets each replica have its own losses.

    Args:
        examples: real ones, as a step is given them.
        trains: whether it is called to train.
        losses_count: whether what the layers add is used.
        what: is done, which the line of a refusal begins with.
        unchecked: names of what the user accepts as it is.

    Raises:
        Undivided: several replicas cannot share a layer.
    """
    separate_losses(model)
    inputs = keras.utils.unpack_x_y_sample_weight(examples)[0]
    if inputs is None or type(model).call is keras.Model.call:
        return layers_by_parts.Seen([], None)
    return check_shared(
        model, inputs,
        what=what,
        otherwise="train on one device",
        trains=trains, losses_count=losses_count, unchecked=unchecked,
    )  # fmt: skip


def division_of_loss(model: Any, examples: Any, *, known: Parts | None = None) -> Parts | None:
    """How a `compute_loss` of the model's own divides over the replicas; None if it has none.

    Args:
        known: what was found before, if it was.

    Raises:
        UsageError: it changes the model.
    """
    if not keras3.overrides(model, "compute_loss"):
        return None
    training = keras3.compute_loss_arguments(model, training=True)

    def compute(x: Any, y: Any, y_pred: Any, weights: Any) -> Any:
        return type(model).compute_loss(model, x, y, y_pred, weights, **training)

    try:
        return division(model, compute, keras.utils.unpack_x_y_sample_weight(examples), known=known)
    except ChangesModel:
        raise UsageError(
            f"{type(model).__name__}.compute_loss sets variables of the model, and each replica would have its own; "
            "set them in a layer that is given an aggregation, or train on one device"
        ) from None


def look(model: Any, step: Callable[[Any], Any], examples: Any, judged: Judged) -> None:
    """Judges the losses and metrics of a train step or a test step, which is called with real examples.

    It changes nothing: no gradient is taken, and no variable is set.
    """
    before = values_here(_variables(model))
    with (
        keras.StatelessScope(state_mapping=before, collect_losses=True),
        drawing_alike(lambda: None),
        looking(judged),
    ):
        step(examples)


@dataclass(frozen=True)
class OwnStep:
    """How what a step of the user's own computes for a batch comes of what it computes for its parts.

    Attributes:
        targets: each loss of which it takes gradients of weights, in its order: MEAN or SUM.
        returned: what it returns, by its place.
        means: each number that it gives a Mean, in its order.
        updates: how it updates other metrics of the user's own, in its order.
        results: whether it computes with results of metrics.
        sizes: what a line calls these metrics that are updated by all replicas, and the bytes of an example.
    """

    targets: Sequence[Parts] = ()
    returned: Mapping[Any, Possible] = field(default_factory=dict)
    means: Sequence[Possible] = ()
    updates: Sequence[tuple[bool, Sequence[Possible]]] = ()
    results: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)


def look_at_own_step(
    model: Any,
    step: Callable[[Any], Any],
    examples: Any,
    *,
    own_loss: Parts | None,
    replicas: int,
    name: str,
    unchecked: Sequence[str],
) -> OwnStep:
    """Looks at a train step or a test step of the user's own, which is called with real examples and parts of them.

    It is also called with the same examples of which some have inputs or labels that often stand for none. It changes
    nothing: no weight is updated, and no variable is set. Each example draws the same numbers.

    Args:
        own_loss: how its own `compute_loss` divides; None if it has none.
        name: of the step.
        unchecked: names of what the user accepts as it is.

    Raises:
        Undivided: a target, or what it returns or gives a metric, is neither a mean nor a sum.
        Exception: what it raises for these examples.
    """
    examples, rows = _enough(examples)
    targets: list[Evidence] = []
    of_weights = layers_by_parts.tolerance_of(model)
    tries: list[list[_Run]] = []
    of_inputs: list[list[_Run]] = []
    results = False
    with layers_by_parts.undisturbed(model), _of_one_replica(model, own_loss):
        for number, tried in enumerate(_tried(examples, rows)):
            try:
                runs = _runs(model, step, tried, rows)
            except Exception as error:
                if not number:
                    raise
                log.debug(f"a step does not take what is tried: {error}")
                continue
            tries.append(runs)
            of_inputs += [runs] if number < _OF_INPUTS else []
            targets = targets or [Evidence(rows, tolerance=_TOLERANCE, of_weights=of_weights) for _ in runs[0].targets]
            _add(targets, runs)
        first = tries[0]
        results = _computes_with_results(model, step, examples, first[0])
        _check_kept(model, step, examples, first[0], replicas=replicas)
        _check_weights(model, first, replicas=replicas)
    found = [one.found or Parts.MEAN for one in targets]
    if Parts.NONE in found:
        raise Undivided(
            "train_step",
            f"fit with {replicas} replicas: {type(model).__name__}.train_step takes gradients of what is neither "
            "the mean nor the sum of what the examples give each by itself, as where it leaves out, compares "
            "or splits examples, so nothing says how replicas divide it; compute a mean over all examples of the "
            "batch, let self.compute_loss compute it, or train on one device",
        )
    values = Values(f"fit with {replicas} replicas: {type(model).__name__}.{name}", rows, unchecked=unchecked)

    def possible(of: Callable[[_Run], Any], name: str, does: str) -> Possible:
        return values.possible([[of(run) for run in runs] for runs in of_inputs], name, does)

    whole = of_inputs[0][0]
    returned = {
        place: possible(partial(_returned, place), "/".join(map(str, place)) or name, "returns")
        for place in whole.returned
    }
    means = [
        possible(partial(_mean, number), metric.name, "gives the metric")
        for number, (metric, _) in enumerate(whole.means)
    ]
    updates: list[tuple[bool, Sequence[Possible]]] = []
    sizes: dict[str, int] = {}
    for number, updated in enumerate(whole.updates):
        metric, given = updated.metric, []
        adds_up = begins_at_zero(metric) and _adds_up([[run.updates[number] for run in runs] for runs in tries])
        for at, size in enumerate(() if adds_up else updated.sizes):
            given.append(possible(partial(_given, number, at), metric.name, "gives the metric"))
            if Parts.EACH in given[-1]:
                what = f"the metric {metric.name}"
                sizes[what] = sizes.get(what, 0) + size // rows
        updates.append((adds_up, given))
    return OwnStep(found, returned, means, updates, results, sizes)


def _returned(place: Any, run: "_Run") -> Any:
    return run.returned[place]


def _mean(number: int, run: "_Run") -> Any:
    return run.means[number][1]


def _given(number: int, at: int, run: "_Run") -> Any:
    return run.updates[number].given[at]


def _adds_up(tries: Sequence[Sequence[Updated]]) -> bool:
    """Whether what a metric gains by a batch is the sum of what it gains by parts of it, and not always nothing."""
    gains = [[one.gained for one in updates] for updates in tries]
    found = [all(map(is_sum, whole, first, rest)) for whole, _, first, rest in gains]
    return all(found) and any(np.any(one) for whole, *_ in gains for one in whole)


def _computes_with_results(model: Any, step: Callable[[Any], Any], examples: Any, whole: "_Run") -> bool:
    """Whether a step returns, or takes gradients of, what depends on results of metrics and is none."""
    if not whole.results:
        return False

    def other(value: Any) -> Any:
        return 1.5 * value + 0.5 if value.dtype.is_floating else value

    changed = _Run.of(model, step, examples, keras.tree.map_structure(other, whole.results))
    pairs = [(one.values, two.values) for one, two in zip(whole.targets, changed.targets, strict=True)]
    pairs += [(one, changed.returned[place]) for place, one in whole.returned.items() if place not in whole.shown]
    return any(not np.allclose(one, two, rtol=_TOLERANCE, equal_nan=True) for one, two in pairs if one is not None)


def still(model: Any, step: Callable[[Any], Any], examples: Any, targets: Sequence[Parts]) -> bool:
    """Whether other examples contradict what was found of the losses that a step takes gradients of: then not.

    Raises:
        Exception: what the step raises for these examples.
    """
    examples, rows = _enough(examples)
    with layers_by_parts.undisturbed(model):
        runs = _runs(model, step, examples, rows)
    of_weights = layers_by_parts.tolerance_of(model)
    evidence = [Evidence(rows, known=one, tolerance=_TOLERANCE, of_weights=of_weights) for one in targets]
    _add(evidence, runs)
    return [one.found for one in evidence] == list(targets)


def _enough(examples: Any) -> tuple[Any, int]:
    """Some of the examples, and how many."""
    if (rows := rows_of(examples)) < _LEAST:
        examples = repeated(examples, rows)
    examples = part_of(examples, slice(0, _MOST))
    return examples, rows_of(examples)


def _runs(model: Any, step: Callable[[Any], Any], examples: Any, rows: int) -> "list[_Run]":
    calls = layers_of_all.Recorded()
    runs: list[_Run] = []
    for number, part in enumerate(compared(rows)):
        places = np.arange(rows)[part]
        of_part = calls if not number else calls.of_part(places)
        with layers_of_all.calling(of_part):
            # What metrics have is that of all replicas there.
            results = runs[0].results if runs else ()
            runs.append(_Run.of(model, step, part_of(examples, part), results))
    return runs


def _add(targets: Sequence[Evidence], runs: "Sequence[_Run]") -> None:
    for target, *each in zip(targets, *(run.targets for run in runs), strict=True):
        target.add(*each)


@dataclass(frozen=True)
class _Run:
    """What a step computes for some examples."""

    targets: Sequence[Tried]
    returned: Mapping[Any, Any]
    means: Sequence[tuple[Any, Any]]
    updates: Sequence[Updated]
    results: Sequence[Any]
    shown: Container[Any]
    """Places of what it returns that is a result of a metric."""
    kept: Mapping[str, Any]
    """What the step sets weights to of which each replica would have its own, by their paths."""

    @classmethod
    def of(cls, model: Any, step: Callable[[Any], Any], examples: Any, results: Sequence[Any] = ()) -> "_Run":
        """Calls a step.

        Args:
            results: of metrics, in the order of the step, where they are not those of these examples.
        """

        def otherwise() -> None:
            raise Undivided(
                "train_step",
                f"{type(model).__name__}: its own step draws numbers of a kind that cannot be the same for a batch and "
                "for parts of it, so nothing shows how replicas divide it; draw normal or uniform numbers",
            )

        # The trainable weights are read where they are, so that tapes see them.
        fixed = values_here([one for one in _variables(model) if not getattr(one, "trainable", False)])
        with (
            _Reading(state_mapping=fixed, collect_losses=True) as scope,
            drawing_alike(otherwise),
            noting() as noted,
            own_step(model),
            watching(owners_of(model), partial(_noting_result, noted)),
        ):
            noted.replayed = results
            returned = dict(keras.tree.flatten_with_path(step(examples)))
        ours = {id(one) for one in keras.tree.flatten(noted.results)}
        shown = {place for place, value in returned.items() if id(value) in ours}
        kept = {
            weight.path: np.asarray(scope.updated[id(weight)])
            for weight in model.non_trainable_weights
            if id(weight) in scope.updated and not layers_by_parts.aggregated(weight)
        }
        return cls(
            noted.targets,
            {place: as_array(value) for place, value in returned.items()},
            [(metric, as_array(value)) for metric, value in noted.means],
            noted.updates,
            noted.results,
            shown,
            kept,
        )


def _noting_result(noted: Noted, _metric: Any, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if here.updating:
        return original(*args, **kwargs)
    with measuring(here.share):
        value = original(*args, **kwargs)
    place = len(noted.results)
    value = noted.replayed[place] if place < len(noted.replayed) else keras.tree.map_structure(_tensor, value)
    noted.results.append(value)
    return value


def _tensor(value: Any) -> Any:
    return tf.convert_to_tensor(value)


class _Reading(keras.StatelessScope):  # type: ignore[misc]
    """What has no value in it is read where it is: the penalties of weights ask the scope alone."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.updated: dict[int, Any] = {}
        """The values that variables were set to."""

    def add_update(self, update: Any) -> None:
        super().add_update(update)
        self.updated[id(update[0])] = update[1]

    def get_current_value(self, variable: Any) -> Any:
        value, storage = super().get_current_value(variable), keras3.storage_of(variable)
        # A variable that is not made yet has none.
        return value if value is not None or storage is None else tf.convert_to_tensor(components(storage)[0])


@contextmanager
def _of_one_replica(model: Any, own_loss: Parts | None) -> Iterator[None]:
    """Its own `compute_loss` is what it is in a replica's step, where this is not known of the model yet."""
    divides = own_loss is not None and "compute_loss" not in vars(model)
    if divides:
        vars(model)["compute_loss"] = divided(type(model).compute_loss, model, own_loss or Parts.NONE)
    try:
        yield
    finally:
        if divides:
            del vars(model)["compute_loss"]


def _check_kept(model: Any, step: Callable[[Any], Any], examples: Any, whole: _Run, *, replicas: int) -> None:
    """Refuses a step that divides by the number of replicas as the model has kept it: within the step it is one.

    Raises:
        Undivided: it does.
    """
    if not asks_elsewhere(type(model)):
        return
    kept = [name for name, value in vars(model).items() if type(value) in (int, float) and value == replicas]
    for name in kept:
        vars(model)[name] = 1
        try:
            other = _Run.of(model, step, examples)
        finally:
            vars(model)[name] = replicas
        pairs = zip(whole.targets, other.targets, strict=True)
        if not all(np.allclose(one.values, two.values, rtol=0.1) for one, two in pairs):
            raise Undivided(
                "train_step",
                f"fit with {replicas} replicas: {type(model).__name__}.train_step computes with self.{name}, which "
                "keeps the number of replicas, and its gradients are those of the whole batch already; read "
                "num_replicas_in_sync in the step, where it is 1, or leave it out",
            )


def _check_weights(model: Any, runs: "Sequence[_Run]", *, replicas: int) -> None:
    """Refuses a step that sets a weight to what depends on the examples, such as a queue of their features.

    Raises:
        Undivided: it does.
    """
    whole, *others = (run.kept for run in runs)
    for path, value in whole.items():
        for other in others:
            if path not in other or other[path].shape != value.shape or off(value, other[path]) > _TOLERANCE:
                raise Undivided(
                    path,
                    f"fit with {replicas} replicas: {type(model).__name__}.train_step sets {path} to what depends on "
                    "the examples or on their order, and each replica would have its own; give add_weight an "
                    "aggregation, such as 'mean', or train on one device",
                )


def _tried(examples: Any, rows: int) -> Iterator[Any]:
    """Real examples, and the same with what often stands for none."""
    yield examples
    inputs, labels, weights = keras.utils.unpack_x_y_sample_weight(examples)

    def batch(inputs: Any, labels: Any) -> Any:
        given = tuple(one for one in (inputs, labels, weights) if one is not None)
        return given if isinstance(examples, tuple | list) else inputs

    yield batch(keras.tree.map_structure(_mirrored, inputs), labels)
    yield batch(with_value(inputs, rows, 0), labels)
    for value in (0, -1, -100) if labels is not None else ():
        yield batch(inputs, with_value(labels, rows, value))


_OF_INPUTS = 2
"""Of these, the first that have none of it."""


def _mirrored(values: Any) -> Any:
    """Examples of which some have the other sign, where their numbers have one."""
    if not isinstance(values, tf.Tensor) or not values.dtype.is_floating:
        return values
    signs = np.where(np.isin(np.arange(values.shape[0]), (0, 2, 5)), -1, 1)
    return values * by_row(signs, values)


def _variables(model: Any) -> list[Any]:
    owners = [*model.metrics, *members(getattr(model, "optimizer", None))]
    return [*model.variables, *(one for owner in owners for one in getattr(owner, "variables", ()))]
