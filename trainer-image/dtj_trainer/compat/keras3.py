"""Private names of Keras 3, and of its base classes that tf_keras has too. Imports Keras 3."""

import sys
from functools import cache
from typing import Any

import keras

from dtj_trainer.compat import mentions, private, require, unfit

try:
    from keras.src.backend.common import global_state
    from keras.src.backend.common.masking import get_keras_mask
    from keras.src.random import seed_generator
except ImportError as error:
    raise unfit(str(error), library="keras") from None

_SEED = "seed_generator_state"


def is_seed(variable: Any) -> bool:
    """Whether a variable of Keras 3 says where a random layer stands."""
    _check_seed()
    return bool(variable.name == _SEED)


@cache
def _check_seed() -> None:
    # By its code: a generator that is made here would be one of the strategy's variables.
    generator = keras.random.SeedGenerator
    require(mentions(generator.__init__, _SEED), f"the state of a SeedGenerator is not called {_SEED}", library="keras")


def draw_unseeded_by(generator: Any) -> None:
    """What Keras 3 draws without a seed asks this generator's `next` from now on."""
    name = private(seed_generator, "GLOBAL_SEED_GENERATOR", library="keras")
    global_state.set_global_attribute(name, generator)
    require(
        seed_generator.global_seed_generator() is generator,
        "what is drawn without a seed does not ask the global generator",
        library="keras",
    )


def maker(tensor: Any) -> Any:
    """The call of a layer that made a symbolic tensor."""
    operation, call, _ = private(tensor, "_keras_history", library="keras")
    return private(operation, "_inbound_nodes", library="keras")[call]


def has_mask(tensor: Any) -> bool:
    """Whether a mask goes with a symbolic tensor."""
    return get_keras_mask(tensor) is not None


def is_layer(layer: Any) -> bool:
    """Whether something is a layer or a model of either Keras."""
    tf_keras = sys.modules.get("tf_keras")
    return isinstance(layer, keras.Layer) or (tf_keras is not None and isinstance(layer, tf_keras.layers.Layer))


def sublayers(layer: Any, *, recursive: bool) -> list[Any]:
    """The layers in a layer or a model of either Keras, without itself.

    Args:
        recursive: with the layers in those.
    """
    library = "keras" if isinstance(layer, keras.Layer) else "tf_keras"
    return list(private(layer, "_flatten_layers", library=library)(include_self=False, recursive=recursive))
