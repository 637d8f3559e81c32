"""The two Kerases: Keras 3, and tf_keras, which is the Keras of TensorFlow 2.15 and before.

What differs between their variables. tf_keras is imported only where it is needed: it costs 0.2 s.
Imports TensorFlow.
"""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import keras

from dtj_trainer import draws


def of(model: Any) -> ModuleType:
    """The Keras that a model belongs to, whatever it was asked for: a user's model may be of either."""
    return sys.modules["tf_keras"] if draws.is_of_tf_keras(model) else keras


def variables(of_keras: Iterable[Any]) -> list[Any]:
    """The tf.Variables behind variables of either Keras."""
    return [variable.value if isinstance(variable, keras.Variable) else variable for variable in of_keras]


def state(optimizer: Any) -> list[Any]:
    """What an optimizer must remember, the same in both Kerases: its count of steps, and its slots by variable.

    Not the learning rate, which Keras 3 counts as its state: the command line decides it.
    """
    left_out = [optimizer.learning_rate]
    if getattr(optimizer, "momentum", None) == 0:
        # SGD of tf_keras makes slots for a momentum that is not there; Keras 3 makes none.
        left_out += getattr(optimizer, "momentums", [])
    return variables(variable for variable in optimizer.variables if all(variable is not one for one in left_out))


def whole(of_model: Iterable[Any]) -> list[Any]:
    """The same variables, with each that ParameterServer has split in place of its shards, which follow each other."""
    found: dict[int, Any] = {}
    for variable in of_model:
        container = getattr(variable, "_sharded_container", None)
        one = variable if container is None else container()
        found.setdefault(id(one), one)
    return list(found.values())
