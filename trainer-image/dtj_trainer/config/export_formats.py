"""What a model can be exported as, and whether this installation can. Standard library alone."""

from importlib.util import find_spec
from pathlib import Path

SAVED_MODEL = "SavedModel"
TFLITE = "TFLite"
TENSORFLOW_JS = "TensorFlowJS"

FORMATS = (SAVED_MODEL, TFLITE, TENSORFLOW_JS)

PLACES = {TFLITE: Path("model.tflite"), TENSORFLOW_JS: Path("tfjs")}
"""Where a converted model lies, next to the SavedModel that it was made from; a reader of that ignores it."""


def parse(text: str) -> tuple[str, ...]:
    """`SavedModel,TFLite` -> the formats in a fixed order. SavedModel is always one: the others are made from it.

    Raises:
        ValueError: an unknown one, or one whose converter is not installed; says what to do.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FORMATS:
            raise ValueError(f"{name!r} is not a model format; this trainer knows {', '.join(FORMATS)}")
        if missing := missing_package(name):
            raise ValueError(
                f"{name} needs the package {missing}, which is not installed here; build the trainer's image with "
                "--build-arg TFJS=1, or leave the format out (docs/export.md)"
            )
    return tuple(name for name in FORMATS if name in names or name == SAVED_MODEL)


def missing_package(name: str) -> str | None:
    """The package that a format wants and that is not there; found without importing it."""
    package = "tensorflowjs"
    return package if name == TENSORFLOW_JS and find_spec(package) is None else None
