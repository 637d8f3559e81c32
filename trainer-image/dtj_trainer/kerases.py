"""The two Kerases: Keras 3, and tf_keras, which is the Keras of TensorFlow 2.15 and before.

What differs between their variables. tf_keras is imported only where it is needed: it costs 0.2 s.
Imports TensorFlow.
"""

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import keras


def of(model: Any) -> ModuleType:
    """The Keras that a model belongs to, whatever it was asked for: a user's model may be of either."""
    tf_keras = sys.modules.get("tf_keras")
    return tf_keras if tf_keras is not None and isinstance(model, tf_keras.Model) else keras


def variables(of_keras: Iterable[Any]) -> list[Any]:
    """The tf.Variables behind variables of either Keras."""
    return [variable.value if isinstance(variable, keras.Variable) else variable for variable in of_keras]
