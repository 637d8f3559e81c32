"""Where a task puts what it makes: checkpoints, exports in which formats, and logs, by the command line.

Must not import TensorFlow.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Final, Literal

from dtj_trainer.config.cluster import EVALUATOR, Task
from dtj_trainer.config.options import Options, directory, option, place, positive, whole
from dtj_trainer.config.store_url import DEFAULT_RETRY_SECONDS, Location, StorePolicy
from dtj_trainer.errors import UsageError

DEFAULT_CHECKPOINT_SECONDS = 30.0
AUTO: Final = "auto"
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


def _formats(text: str) -> tuple[str, ...]:
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


def _seconds(text: str) -> float | Literal["auto"]:
    try:
        return AUTO if text == AUTO else positive(text)
    except ValueError as wanted:
        raise ValueError(f"{wanted}, or {AUTO}") from None


@dataclass(frozen=True, kw_only=True)
class InMemory:
    """Copies of the training state that each task keeps in memory that outlives its process."""

    DIRECTORY: ClassVar[str] = "DTJ_CHECKPOINT_MEMORY_DIR"
    EVERY_STEPS: ClassVar[str] = "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS"

    directory: Path
    """Of this task alone."""
    every_steps: int | None
    """None: see `dtj_trainer.checkpoint.interval`."""

    @classmethod
    def read(cls, environ: Mapping[str, str], *, strategy: str, task: Task) -> "InMemory | None":
        """What the operator, or `dtj run`, has set; None if the task keeps no such copies.

        Raises:
            UsageError: the strategy does not give each task the whole state; or a number is none.
        """
        place = environ.get(cls.DIRECTORY) or ""
        if not place or task.role == EVALUATOR:
            return None
        if strategy != "MultiWorkerMirrored":
            raise UsageError(
                f"{cls.DIRECTORY}={place}: strategy {strategy} keeps no checkpoints in memory; use "
                "MultiWorkerMirrored, or unset it"
            )
        steps = environ.get(cls.EVERY_STEPS)
        try:
            return cls(directory=Path(place), every_steps=whole(1)(steps) if steps else None)
        except ValueError as wanted:
            raise UsageError(f"{cls.EVERY_STEPS}={steps}: {wanted}") from None


@dataclass(frozen=True, kw_only=True)
class CheckpointPolicy(Options):
    """Where checkpoints are, when they are written, and how many stay. No directory: none are written."""

    title: ClassVar[str] = "checkpoints and outputs"

    place: Path | Location | None = option(
        "--checkpoint-dir", variable="DTJ_CHECKPOINT_DIR", parse=place, default=None, metavar="DIR",
        help="directory, or s3:// or gs:// URL, to save checkpoints to and to resume from; all tasks of a job share it",
    )  # fmt: skip
    directory: Path | None
    """Of a URL, the local copy that is this task's alone."""
    location: Location | None
    every_steps: int | None = option(
        "--checkpoint-every-steps", variable="DTJ_CHECKPOINT_EVERY_STEPS", parse=whole(1), default=None,
        help="save after every N steps",
    )  # fmt: skip
    given_seconds: float | Literal["auto"] | None = option(
        "--checkpoint-every-seconds", variable="DTJ_CHECKPOINT_EVERY_SECONDS", parse=_seconds, default=None,
        metavar="S", help="save after every S seconds (default: 30, if steps are not given either); auto: chosen by "
        "what a save costs and how often the job lost a replica",
    )  # fmt: skip
    keep: int = option(
        "--checkpoint-keep", variable="DTJ_CHECKPOINT_KEEP", parse=whole(1), default=3,
        help="number of newest checkpoints to keep",
    )  # fmt: skip
    store: StorePolicy
    memory: InMemory | None = None
    seconds_between_losses: float = math.inf
    """Of this job, on average, as the operator knows; infinite: it knows of none."""

    @property
    def every_seconds(self) -> float | None:
        """Seconds between two checkpoints, or between the first ones; None: only steps count."""
        if self.given_seconds == AUTO or (self.every_steps is None and self.given_seconds is None):
            return DEFAULT_CHECKPOINT_SECONDS
        return self.given_seconds

    @property
    def chooses_seconds(self) -> bool:
        """Whether `every_seconds` changes as `dtj_trainer.checkpoint.interval` says."""
        return self.given_seconds == AUTO


@dataclass(frozen=True, kw_only=True)
class Outputs(Options):
    """Where all else that a task makes goes."""

    title: ClassVar[str] = "checkpoints and outputs"

    export: Path | Location | None = option(
        "--export-dir", variable="DTJ_EXPORT_DIR", parse=place, default=None, metavar="DIR",
        help="directory, or s3:// or gs:// URL, for the SavedModel, as DIR/<version>",
    )  # fmt: skip
    export_formats: tuple[str, ...] | None = option(
        "--export-formats", variable="DTJ_EXPORT_FORMATS", parse=_formats, default=None, metavar="LIST",
        help=f"formats of the exported model: {', '.join(FORMATS)}, with commas (default: "
        f"{SAVED_MODEL}, which is always one of them)",
    )  # fmt: skip
    log: Path | Location | None = option(
        "--log-dir", variable="DTJ_LOG_DIR", parse=place, default=None, metavar="DIR",
        help="directory, or s3:// or gs:// URL, for TensorBoard's logs and result.json",
    )  # fmt: skip
    store_cache: Path | None = option(
        "--store-cache", variable="DTJ_STORE_CACHE", parse=directory, default=None, metavar="DIR",
        help="URLs: directory of a local disk for their copies (default: one below that for temporary files)",
    )  # fmt: skip
    store_retry_seconds: float = option(
        "--store-retry-seconds", variable="DTJ_STORE_RETRY_SECONDS", parse=positive, default=DEFAULT_RETRY_SECONDS,
        metavar="S", help="URLs: seconds for which a request that fails is repeated",
    )  # fmt: skip
