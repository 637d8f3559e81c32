"""What a session's checkpoint holds: the variables of the parts that a script names. Imports TensorFlow."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from dtj_trainer import two_kerases
from dtj_trainer.checkpoint import variable_names
from dtj_trainer.errors import UsageError
from dtj_trainer.keras_fit.adoption import adopt, owners_of
from dtj_trainer.keras_fit.replica_losses import has_scope, several
from dtj_trainer.training import weight_update

log = logging.getLogger(__name__)


def check_keras(parts: Mapping[str, Any], strategy: str) -> None:
    """Makes sure that a strategy, whose name this is, gets nothing of tf_keras that it cannot train.

    Raises:
        UsageError: a part is of tf_keras and the strategy is synchronous, or an optimizer cannot be saved.
    """
    for name, part in parts.items():
        for one in tf.nest.flatten(part):
            if strategy == "ParameterServer":
                two_kerases.check_counted(getattr(one, "optimizer", one), f"session: checkpoint({name}=...)")
            elif two_kerases.is_of_tf_keras(one):
                raise UsageError(
                    f"session: checkpoint({name}=...): {type(one).__name__} of tf_keras, but strategy {strategy} needs "
                    f"one of Keras 3; {two_kerases.REMEDY}"
                )


def wait_for_fit(parts: Mapping[str, Any]) -> bool:
    """Whether some models have no weights yet, and `fit` of Keras 3 makes them."""
    models = [model for name, part in parts.items() for _, model in _models(name, part) if not model.built]
    return bool(models) and all(isinstance(one, keras.Model) and one.compiled for one in models)


def require_built(parts: Mapping[str, Any], *, waits: bool = False) -> None:
    """Makes sure that all models have their weights.

    Args:
        waits: whether they waited for `fit`.

    Raises:
        UsageError: one has none.
    """
    for name, model in [each for top, part in parts.items() for each in _models(top, part)]:
        if waits or not model.built:
            late = ", and no fit with callback() of the session has restored it" if waits else ""
            raise UsageError(
                f"session: checkpoint({name}=...): the model has no weights yet{late}; begin it with an Input layer, "
                "or call its build() before"
            )


def build_optimizers(parts: Mapping[str, Any]) -> None:
    """Has the optimizers make their variables, which they do for a certain model: the only one."""
    models = [(name, part) for name, part in parts.items() if hasattr(part, "layers")]
    for name, part in parts.items():
        if hasattr(part, "apply_gradients") and hasattr(part, "build"):
            if len(models) == 1:
                part.build(models[0][1].trainable_variables)
            elif not getattr(part, "built", True):
                raise UsageError(
                    f"session: checkpoint({name}=...): build the optimizer first, as there is not exactly one model"
                )


def own_optimizers(parts: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizers that the models among the parts are compiled with and that are no parts themselves, built.

    Their names are `model.optimizer`, of a part that is named `model`.
    """
    given, found = {id(one) for one in tf.nest.flatten(dict(parts))}, {}
    for name, model in [each for top, part in parts.items() for each in _models(top, part)]:
        optimizer = getattr(model, "optimizer", None)
        if optimizer is None or id(optimizer) in given:
            continue
        given.add(id(optimizer))
        if not hasattr(optimizer, "build"):
            log.warning(f"session: checkpoint({name}=...): the state of its {type(optimizer).__name__} is not saved")
            continue
        optimizer.build(model.trainable_variables)
        found[f"{name}.optimizer"] = optimizer
    return found


def adopt_parts(strategy: Any, parts: Mapping[str, Any]) -> None:
    """Makes anew in the scope what of these Keras 3 has made outside of it.

    On one replica this is what belongs to a model of the scope, as a model and an optimizer that are both made outside
    train as they are.
    """
    flat = tf.nest.flatten(parts)
    within = [one for one in flat if isinstance(one, keras.Model) and one.distribute_strategy is strategy]
    if not several(strategy):
        flat = [one for one in flat if one in within or not isinstance(one, keras.Model)] if within else []
    for part in flat if has_scope(strategy) or several(strategy) else ():
        adopt(strategy, owners_of(part) if isinstance(part, keras.Model) else [part])


def sum_gradients_first(parts: Mapping[str, Any]) -> None:
    """Has the optimizers of Keras 3 clip and accumulate the gradients of the global batch, as on one device.

    To be called once they are built.
    """
    for part in tf.nest.flatten(parts):
        if hasattr(part, "apply_gradients") and weight_update.needs_sum_first(part):
            weight_update.sum_first(part)


def variables_of(name: str, part: Any, weights: Sequence[tuple[Any, str]]) -> list[tuple[str, Any]]:
    """The tf.Variables of a part, always in the same order, with their names.

    Args:
        weights: of all models, with their names: optimizers may be of each.

    Raises:
        UsageError: it has none, and is no list or dict.
    """
    if isinstance(part, Mapping | list | tuple):
        return [
            (f"{key}/{each}", one)
            for key, within in _items(part)
            for each, one in variables_of(f"{name}.{key}", within, weights)
        ]
    if hasattr(part, "assign") and hasattr(part, "dtype"):
        return [(variable_names.loose(part), two_kerases.variables([part])[0])]
    found = getattr(part, "variables", None)
    if found is None:
        raise UsageError(
            f"session: checkpoint({name}=...): {type(part).__name__} has no variables; give models, optimizers, "
            "tf.Variables, or lists and dicts of them"
        )
    # Of metrics, Keras makes the variables when it sees the first batch; they begin again with each epoch.
    metrics = {id(one) for one in getattr(part, "metrics_variables", ())}
    found = [each for each in found if id(each) not in metrics]
    variables = two_kerases.variables(found)
    if hasattr(part, "apply_gradients"):
        names = variable_names.of_optimizer(part, variables, weights)
    else:
        names = variable_names.of_model(part, found)
    return list(zip(names, variables, strict=True))


def _items(part: Any) -> list[tuple[Any, Any]]:
    return [(key, part[key]) for key in sorted(part)] if isinstance(part, Mapping) else list(enumerate(part))


def _models(name: str, part: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(part, Mapping | list | tuple):
        for key, within in _items(part):
            yield from _models(f"{name}.{key}", within)
    elif hasattr(part, "layers"):
        yield name, part


def trained(name: str, part: Any) -> list[tuple[Any, str]]:
    """What a part's models give an optimizer to train, with names."""
    if isinstance(part, Mapping | list | tuple):
        return [each for key, within in _items(part) for each in trained(f"{name}/{key}", within)]
    if not hasattr(part, "layers"):
        return []
    weights = part.trainable_variables
    names = variable_names.of_model(part, weights)
    return [(one, f"{name}/{each}") for one, each in zip(weights, names, strict=True)]


def set_by_layers(parts: Mapping[str, Any]) -> list[Any]:
    """The tf.Variables that models set by themselves, such as the statistics of a normalization."""
    models = (part for part in tf.nest.flatten(parts) if hasattr(part, "layers"))
    return two_kerases.variables(one for model in models for one in model.non_trainable_variables)


def set_by_optimizers(parts: Mapping[str, Any]) -> list[Any]:
    """The tf.Variables that the optimizers among the parts set, which include those of `own_optimizers`."""
    optimizers = (part for part in tf.nest.flatten(parts) if hasattr(part, "apply_gradients"))
    return two_kerases.variables(one for optimizer in optimizers for one in optimizer.variables)
