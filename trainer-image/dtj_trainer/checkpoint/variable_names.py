"""Names of variables that mean the same in every process, under every strategy and in either Keras.

A variable's name is its path in the model: `encoder/dense/kernel`. Keras numbers the layers that have no name of their
own by what was made in the process before (`dense`, `dense_7`), and puts the model's name before some paths only. So
the path is taken from the tree of layers, without the model itself, and such a number is replaced by the layer's rank
among the layers next to it: `dense`, `dense_1`. A slot of an optimizer is named after its weight:
`encoder/dense/kernel/momentum`. Imports TensorFlow.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dtj_trainer.compat import keras3

_NUMBER = re.compile(r"_(\d+)$")
_NAMES_OF_FUNCTIONAL = ("functional", "model")
"""What Keras 3 and tf_keras call a functional model that has no name of its own."""
_SLOTS_OF_TF_KERAS = {"m": "momentum", "v": "velocity", "vhat": "velocity_hat", "u": "norm"}
"""tf_keras' names of slots -> those of Keras 3, where they differ."""


def of_model(model: Any, variables: Iterable[Any]) -> list[str]:
    """The names of variables of a model of either Keras.

    Args:
        model: built.
        variables: as the model gives them. One that is in no layer keeps its own name, without numbers.
    """
    found: dict[int, str] = {}
    _walk(model, "", found, set())
    return [found.get(id(one)) or _loose(_plain(one)) for one in variables]


def of_layers(model: Any) -> Mapping[int, str]:
    """Id of each layer next in a model -> its name in the paths of `of_model`."""
    children = _layers(model)
    return {id(child): name for child, name in zip(children, _names(model, children), strict=True)}


def of_optimizer(optimizer: Any, state: Iterable[Any], weights: Iterable[tuple[Any, str]]) -> list[str]:
    """The names of the state of an optimizer of either Keras.

    Args:
        optimizer: built.
        state: TensorFlow's variables, some of those of the optimizer.
        weights: the weights that it was built for, as Keras has them, with their names.
    """
    # Of a variable of Keras 3, TensorFlow's says less.
    raw = {id(getattr(one, "value", one)): _plain(one) for one in optimizer.variables if hasattr(one, "path")}
    by_path: dict[str, list[str]] = defaultdict(list)
    for weight, name in weights:
        by_path[weight.path.replace("/", "_") if hasattr(weight, "path") else _plain(weight)].append(name)
    seen: dict[tuple[str, str], int] = defaultdict(int)
    names = []
    for one in state:
        own = raw.get(id(one)) or _plain(one)
        path, kind = _parts(own, by_path)
        if path is None:
            names.append(_loose(own))
            continue
        # Weights of two layers may have one path: their slots come in the same order.
        same = by_path[path]
        names.append(f"{same[min(seen[path, kind], len(same) - 1)]}/{kind}")
        seen[path, kind] += 1
    return names


def of_training(model: Any, optimizer: Any, state: Iterable[Any]) -> dict[str, list[str]]:
    """The names of what a training remembers, by part: the `weights` of a model, and an `optimizer`'s state.

    Args:
        state: `two_kerases.state` of the optimizer.
    """
    trained = model.trainable_variables
    return {
        "weights": of_model(model, model.weights),
        "optimizer": of_optimizer(optimizer, state, zip(trained, of_model(model, trained), strict=True)),
    }


def loose(variable: Any) -> str:
    """The name of a variable of which nothing else is known: its own, without the numbers that were put to it."""
    return _loose(_plain(variable))


def _parts(slot: str, by_path: Mapping[str, Any]) -> tuple[str | None, str]:
    """The path of a slot's weight, and what the slot is: `m/dense/kernel` in tf_keras, `dense_kernel_momentum`."""
    kind, _, path = slot.partition("/")
    if path in by_path:
        return path, _SLOTS_OF_TF_KERAS.get(kind, kind)
    fitting = [path for path in by_path if slot.startswith(f"{path}_")]
    longest = max(fitting, key=len, default=None)
    return longest, "" if longest is None else slot.removeprefix(f"{longest}_")


def _walk(layer: Any, prefix: str, found: dict[int, str], seen: set[int]) -> None:
    """Names the variables of a layer's layers, then its own."""
    if id(layer) in seen:
        return
    seen.add(id(layer))
    children = _layers(layer)
    for child, name in zip(children, _names(layer, children), strict=True):
        _walk(child, f"{prefix}{name}/", found, seen)
    for variable in getattr(layer, "variables", ()):
        found.setdefault(id(variable), prefix + _loose(_plain(variable).rpartition("/")[2]))


def _layers(layer: Any) -> list[Any]:
    return keras3.sublayers(layer, recursive=False) if keras3.is_layer(layer) else []


def _names(parent: Any, children: Sequence[Any]) -> list[str]:
    """What a layer's layers are called in it: by their names, or by the attributes that hold them."""
    attributes = _attributes(parent)
    stems = [_stem(child) for child in children]
    numbers: dict[str, set[int]] = defaultdict(set)
    for stem, number, _ in stems:
        numbers[stem].add(number)
    names = []
    for child, (stem, number, automatic) in zip(children, stems, strict=True):
        if automatic and id(child) in attributes:
            names.append(attributes[id(child)])
            continue
        rank = sorted(numbers[stem]).index(number)
        names.append(f"{stem}_{rank}" if rank else stem)
    return names


def _stem(layer: Any) -> tuple[str, int, bool]:
    """A layer's name without the number that Keras put to it, the number, and whether all of it is Keras'."""
    name, kind = str(layer.name), type(layer).__name__
    number = _NUMBER.search(name)
    stem = name[: number.start()] if number else name
    if kind == "Functional" and stem in _NAMES_OF_FUNCTIONAL:
        stem = _NAMES_OF_FUNCTIONAL[0]
    squeezed, kind = stem.replace("_", "").lower(), kind.replace("_", "").lower()
    if not squeezed.endswith(kind):
        return name, 0, False
    return stem, int(number[1]) if number else 0, squeezed == kind


def _attributes(layer: Any) -> dict[int, str]:
    """Id of each object that the attributes of a layer of a user's own class hold -> `encoder`, `blocks_0`."""
    if type(layer).__module__.partition(".")[0] in ("keras", "tf_keras"):
        return {}
    found: dict[int, str] = {}
    for name, value in vars(layer).items():
        if name.startswith("_"):
            continue
        found.setdefault(id(value), name)
        if isinstance(value, list | tuple):
            for index, one in enumerate(value):
                found.setdefault(id(one), f"{name}_{index}")
        elif isinstance(value, Mapping):
            for key, one in value.items():
                found.setdefault(id(one), f"{name}_{key}")
    return found


def _plain(variable: Any) -> str:
    """A variable's own name, as `dense/kernel`."""
    return str(variable.name).partition(":")[0]


def _loose(name: str) -> str:
    return "/".join(_NUMBER.sub("", part) for part in name.split("/")).lower()
