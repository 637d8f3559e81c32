"""Private names of tf_keras. Imports it for nobody: it costs 0.2 s. What calls this has a model of it."""

import sys
from typing import Any

from dtj_trainer.compat import private


def random_layers(model: Any) -> list[Any]:
    """The layers of a model that can draw random numbers."""
    internal = private(
        private(sys.modules["tf_keras"], "__internal__", library="tf_keras"), "layers", library="tf_keras"
    )
    kind = private(internal, "BaseRandomLayer", library="tf_keras")
    layers = private(model, "_flatten_layers", library="tf_keras")(include_self=False, recursive=True)
    return [layer for layer in layers if isinstance(layer, kind)]


def random_state(layer: Any) -> Any:
    """The variable that says where a random layer stands; None where nothing does."""
    generator = private(layer, "_random_generator", library="tf_keras")
    # Some layers would only make it when they are first called, in the midst of a tf.function.
    private(generator, "_maybe_init", library="tf_keras")()
    found = private(generator, "_generator", library="tf_keras")
    return None if found is None else found.state


def is_stateful_by_tensorflow(layer: Any) -> bool:
    """Whether a random layer draws by TensorFlow's stateful operations, whose state nobody can set."""
    generator = private(layer, "_random_generator", library="tf_keras")
    kind = private(generator, "_rng_type", library="tf_keras")
    return bool(kind == private(generator, "RNG_LEGACY_STATEFUL", library="tf_keras"))
