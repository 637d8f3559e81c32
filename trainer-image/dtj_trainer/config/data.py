"""What a job says of its input, as frozen values. Must not import TensorFlow: a bad one is refused at once."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dtj_trainer.config.cluster import DATA_WORKER, DISPATCHER, Task
from dtj_trainer.config.options import Arguments, Options, is_port, names, one_of, option, some_text
from dtj_trainer.errors import UsageError

SERVICE_ADDRESS = "TF_DATA_SERVICE_ADDRESS"
SERVICE_PORT = "DTJ_DATA_SERVICE_PORT"
OWN_HOST = "DTJ_HOST"
DEFAULT_SERVICE_PORT = 2222
TFRECORD, CSV, IMAGES, TEXT = "tfrecord", "csv", "images", "text"
FORMATS = (TFRECORD, CSV, IMAGES, TEXT)
AUTO, MEMORY, NONE = "auto", "memory", "none"
CACHES = (AUTO, MEMORY, NONE)


def _files(text: str) -> str:
    """A directory, a file or a pattern."""
    if "**" in text.split("/"):
        # As TensorFlow reads it, unlike Python and shells: files above and below would be missing without a line.
        raise ValueError(
            "** would be one directory, as * is; give the directory, of which all files are read at any depth, or a * "
            "for each level"
        )
    return some_text(text)


def _validation(text: str) -> str | float:
    """A share of the examples, or where those are that are held out."""
    try:
        share = float(text)
    except ValueError:
        return _files(text)
    if not 0 < share <= 0.5:
        raise ValueError("give a share above 0 and at most 0.5, or the path of held-out files")
    return share


def _image_size(text: str) -> tuple[int, int]:
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise ValueError("give HEIGHTxWIDTH in pixels, such as 64x96")
    return int(height), int(width)


def _columns(text: str) -> tuple[str, ...]:
    """Each once: they are a choice, and have the order of the files."""
    return tuple(dict.fromkeys(names(text)))


def _cache(text: str) -> str:
    if text not in CACHES:
        raise ValueError(
            "give auto, memory or none; to keep decoded examples on a disk, write them once by Dataset.save of "
            "tf.data, and load them in a function of --data"
        )
    return text


@dataclass(frozen=True, kw_only=True)
class DataConfig(Options):
    """Where the examples of a job are and how they are brought to the model."""

    title: ClassVar[str] = "your own files"

    where: str | None = option(
        "--data-dir", parse=_files, default=None, metavar="PATH",
        help="your own files instead of --dataset: a directory, a file, or a pattern such as 's3://bucket/part-*.csv'",
    )  # fmt: skip
    format: str | None = option(
        "--data-format", parse=one_of(FORMATS, "format"), default=None, metavar="NAME",
        help=f"the format of the files: {', '.join(FORMATS)} (default: from the names of the files)",
    )  # fmt: skip
    validation: str | float = option(
        "--held-out", parse=_validation, default=0.1, metavar="SHARE",
        help="share of the examples to hold out for the evaluation, or the path of files with such examples",
    )  # fmt: skip
    label: str = option(
        "--label-column", parse=some_text, default="label", metavar="NAME",
        help="csv, tfrecord: the column to predict",
    )  # fmt: skip
    columns: tuple[str, ...] | None = option(
        "--columns", parse=_columns, default=None, metavar="A,B",
        help="csv, tfrecord: the columns to predict it from (default: all other columns)",
    )  # fmt: skip
    image_size: tuple[int, int] | None = option(
        "--image-size", parse=_image_size, default=None, metavar="HxW",
        help="resize images to this size (default: the size of the first image)",
    )  # fmt: skip
    cache: str = option(
        "--cache", parse=_cache, default=AUTO, metavar="WHERE",
        help="cache of decoded examples: memory, none, or auto (memory if they are few)",
    )  # fmt: skip
    service: str | None
    """host:port of the tf.data service's dispatcher; None: this process reads by itself."""

    def __post_init__(self) -> None:
        for source in self.given.values():
            if self.where is None:
                raise UsageError(f"{source}: it is about your own files; give --data-dir too, or leave it out")


def data_config(args: Arguments, environ: Mapping[str, str]) -> DataConfig:
    """What the job says of its input.

    Raises:
        UsageError: two options that exclude each other, or one without what it needs.
    """
    address = environ.get(SERVICE_ADDRESS) or None
    if address is not None:
        _port_of(address)
    return DataConfig(**args.values(DataConfig), service=address)


@dataclass(frozen=True, kw_only=True)
class ServiceTask:
    """What a dispatcher or a data worker needs to know of itself."""

    dispatcher: str
    """host:port"""
    host: str
    """Under which the training tasks reach a data worker."""
    port: int


def service_task(task: Task, environ: Mapping[str, str]) -> ServiceTask | None:
    """What a task of the tf.data service needs to know; None for the others.

    Raises:
        UsageError: TF_DATA_SERVICE_ADDRESS or DTJ_DATA_SERVICE_PORT is missing or malformed.
    """
    if task.role not in (DISPATCHER, DATA_WORKER):
        return None
    dispatcher = environ.get(SERVICE_ADDRESS, "")
    if not dispatcher:
        raise UsageError(f"{task.role}: {SERVICE_ADDRESS} is not set; give the dispatcher's host:port")
    port = _port_of(dispatcher)
    own = environ.get(SERVICE_PORT, "")
    if own and not is_port(own):
        raise UsageError(f"{SERVICE_PORT}={own}: give a port from 1 to 65535")
    if not own and task.role == DATA_WORKER:
        port = DEFAULT_SERVICE_PORT
    host = environ.get(OWN_HOST) or socket.gethostname()
    return ServiceTask(dispatcher=dispatcher, host=host, port=int(own) if own else port)


def _port_of(address: str) -> int:
    host, _, port = address.rpartition(":")
    if not host or not is_port(port):
        raise UsageError(f"{SERVICE_ADDRESS}={address}: not host:port; give e.g. job-dispatcher-0.job:2222")
    return int(port)
