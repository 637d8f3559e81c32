"""Private names of tf_keras. Imports it for nobody: it costs 0.2 s. What calls this has a model of it."""

import importlib
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dtj_trainer.compat import mentions, private, require, unfit


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


def given_losses(losses: Any) -> tuple[Any, Any]:
    """The losses and their weights that made a model's `compiled_loss`, as the user gave them."""
    return tuple(private(losses, name, library="tf_keras") for name in ("_user_losses", "_user_loss_weights"))


def options_of_loss(loss: Any) -> Mapping[str, Any]:
    """What a Loss of tf_keras hands to its function, such as `from_logits`; nothing for any other loss."""
    library = sys.modules.get("tf_keras")
    if library is None or not isinstance(loss, private(_losses(), "LossFunctionWrapper", library="tf_keras")):
        return {}
    options: Mapping[str, Any] = private(loss, "_fn_kwargs", library="tf_keras")
    return options


def replace_moments(layer: Any, moments: Callable[..., tuple[Any, Any]]) -> None:
    """Replaces how a synchronized BatchNormalization computes its statistics.

    Args:
        moments: (x, reduction_axes, keep_dims, mask) -> mean and variance.
    """
    _check_moments()
    layer._sync_calculate_mean_and_var = moments


@cache
def _check_moments() -> None:
    kind, name = sys.modules["tf_keras"].layers.BatchNormalization, "_sync_calculate_mean_and_var"
    private(kind, name, library="tf_keras")
    caller = private(kind, "_calculate_mean_and_var", library="tf_keras")
    require(mentions(caller, name), f"BatchNormalization does not call {name}", library="tf_keras")


def state_of_loss_scale(optimizer: Any) -> list[Any]:
    """The variables of a LossScaleOptimizer with a dynamic scale: the scale, and a count of good steps."""
    scale = private(optimizer, "_loss_scale", library="tf_keras")
    return [private(scale, name, library="tf_keras") for name in ("_current_loss_scale", "_counter")]


def _losses() -> Any:
    try:
        return importlib.import_module("tf_keras.src.losses")
    except ImportError as error:
        raise unfit(str(error), library="tf_keras") from None
