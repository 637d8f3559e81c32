"""What a model can be exported as, how it is made, and whether this installation can. Standard library alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

SAVED_MODEL = "SavedModel"


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """A format that is made from the SavedModel."""

    place: Path
    """Where it lies, next to the SavedModel; a reader of that ignores it."""
    converter: str
    """The module whose `convert(saved_model, target)` makes it."""
    package: str | None = None
    """What the converter needs beyond what the trainer needs."""

    @property
    def missing(self) -> str | None:
        """The package that is not there; found without importing it."""
        return self.package if self.package and find_spec(self.package) is None else None


CONVERSIONS: Mapping[str, Conversion] = {
    "TFLite": Conversion(place=Path("model.tflite"), converter="dtj_trainer.export.tflite"),
    "TensorFlowJS": Conversion(place=Path("tfjs"), converter="dtj_trainer.export.tfjs", package="tensorflowjs"),
}
FORMATS = (SAVED_MODEL, *CONVERSIONS)


def parse(text: str) -> tuple[str, ...]:
    """`SavedModel,TFLite` -> the formats in a fixed order. SavedModel is always one: the others are made from it.

    Raises:
        ValueError: an unknown one, or one whose converter is not installed; says what to do.
    """
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in FORMATS:
            raise ValueError(f"{name!r} is not a model format; this trainer knows {', '.join(FORMATS)}")
        if name in CONVERSIONS and (package := CONVERSIONS[name].missing):
            raise ValueError(
                f"{name} needs the package {package}, which is not installed here; build the trainer's image with "
                "--build-arg TFJS=1, or leave the format out (docs/export.md)"
            )
    return tuple(name for name in FORMATS if name in names or name == SAVED_MODEL)
