"""Private names of tf_keras. Imports it for nobody: it costs 0.2 s. What calls this has a model of it."""

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from dtj_trainer.compat import incompatible, private


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


def _losses() -> Any:
    try:
        return importlib.import_module("tf_keras.src.losses")
    except ImportError as error:
        raise incompatible(str(error), library="tf_keras") from None
