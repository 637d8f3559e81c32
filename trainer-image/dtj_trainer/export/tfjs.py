"""A SavedModel as a graph model for TensorFlow.js. Imports TensorFlow, and a converter with most of its needs left out.

The package `tensorflowjs` asks for JAX, decision forests, TensorFlow Hub and another TensorFlow (2.9 GB), and crashes
with them. Converting a SavedModel uses none of that: names that it merely imports are stood in for here.
"""

import sys
from pathlib import Path
from types import ModuleType

from dtj_trainer.export.saved_model import SIGNATURE


def convert(saved_model: Path, target: Path) -> None:
    """Writes a directory: model.json, which loadGraphModel of TensorFlow.js reads, and its weights.

    Raises:
        ValueError: the model has operations that TensorFlow.js has not.
    """
    _stand_in()
    from tensorflowjs.converters.tf_saved_model_conversion_v2 import convert_tf_saved_model

    try:
        # With the older control flow, which is the converter's default, a model with a loop converts and cannot be run.
        convert_tf_saved_model(str(saved_model), str(target), signature_def=SIGNATURE, control_flow_v2=True)
    except ValueError as error:
        head, _, operations = str(error).partition("\n")
        if not head.startswith("Unsupported Ops"):
            raise
        raise ValueError(f"the model has operations that TensorFlow.js does not have ({operations})") from error


def _stand_in() -> None:
    """Puts empty modules where the converter imports what it then does not use; for this process alone."""
    for name in ("tensorflow_decision_forests", "tensorflow_hub", "tensorflowjs.converters.jax_conversion"):
        sys.modules[name] = ModuleType(name)
    sys.modules["tensorflowjs.converters.jax_conversion"].convert_jax = None  # type: ignore[attr-defined]
