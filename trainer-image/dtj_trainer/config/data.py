"""What a job says of its input, as frozen values. Standard library only: a bad one is refused without TensorFlow."""

from dataclasses import dataclass
from typing import Self

TFRECORD, CSV, IMAGES, TEXT = "tfrecord", "csv", "images", "text"
FORMATS = (TFRECORD, CSV, IMAGES, TEXT)
AUTO, MEMORY, NONE = "auto", "memory", "none"
CACHES = (AUTO, MEMORY, NONE)
DATA, FILE = "data", "file"
SHARDS = (DATA, FILE, AUTO)
SERVICES = (AUTO, "on", "off")

KINDS = ("float", "int", "bytes")


@dataclass(frozen=True)
class FeatureSpec:
    """One feature of a tf.train.Example, of fixed length."""

    name: str
    kind: str
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads `NAME:KIND` or `NAME:KIND:SHAPE`, the shape as `28x28x1`.

        Raises:
            ValueError: says what is wanted.
        """
        name, _, rest = text.partition(":")
        kind, _, shape = rest.partition(":")
        lengths = shape.split("x") if shape else []
        if not name or kind not in KINDS or not all(length.isdecimal() and int(length) for length in lengths):
            raise ValueError(f"give NAME:KIND or NAME:KIND:SHAPE with a kind of {', '.join(KINDS)}, not {text}")
        return cls(name, kind, tuple(int(length) for length in lengths))


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Where the examples of a job are and how they are brought to the model."""

    where: str | None
    """Path or pattern of the user's files; None: a data set that is shipped."""
    format: str | None
    validation: str | float
    """Path of the files to be judged by, or the share of the examples."""
    label: str
    columns: tuple[str, ...] | None
    features: tuple[FeatureSpec, ...] | None
    image_size: tuple[int, int] | None
    shuffle_window: int
    cache: str
    shard: str
    service: str | None
    """host:port of the tf.data service's dispatcher; None: this process reads by itself."""


@dataclass(frozen=True, kw_only=True)
class ServiceTask:
    """What a dispatcher or a data worker needs to know of itself."""

    dispatcher: str
    """host:port"""
    host: str
    """Under which the training tasks reach a data worker."""
    port: int
