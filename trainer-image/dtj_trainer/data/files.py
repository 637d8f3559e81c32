"""Which files there are: a directory, a pattern or one file, on any file system that TensorFlow opens."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import tensorflow as tf

from dtj_trainer.config.data import CSV, IMAGES, TEXT, TFRECORD
from dtj_trainer.errors import UsageError, may_pass

_ENDINGS = {
    TFRECORD: (".tfrecord", ".tfrecords", ".tfrec"),
    CSV: (".csv",),
    IMAGES: (".png", ".jpg", ".jpeg"),
    TEXT: (".txt", ".tsv", ".text"),
}
_COMPRESSED = ".gz"
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class FileSet:
    """The files of one place, in the order of their names."""

    where: str
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    """In bytes; 0 where they are not asked for."""
    left_out: tuple[str, ...] = field(default=(), repr=False)
    """What is there, and is not among them: of another format, or hidden."""

    def class_of(self, path: str) -> str:
        """The name of the directory that a file is in."""
        return path.rpartition("/")[0].rpartition("/")[2]


def find(where: str, *, option: str, form: str | None) -> tuple[FileSet, str]:
    """The files that `where` names and that can be of the format, and the format, by the files' names if not given.

    Args:
        option: that gave `where`, for the error.

    Raises:
        UsageError: nothing there, or nothing of that format, or several formats.
    """
    try:
        there = sorted(_listed(where))
        listed = [path for path in there if _counts(path, where)]
    except (tf.errors.OpError, OSError) as error:
        raise UsageError(
            f"{option}={where}: cannot be read ({first_line(error) or type(error).__name__}); {_REMEDY}",
            restart_may_help=may_pass(error),
        ) from None
    formats = {form} if form else {known for path in listed if (known := _format_of(path))}
    if not listed:
        raise UsageError(f"{option}={where}: no files there; {_REMEDY}", restart_may_help=True)
    if len(formats) != 1:
        seen = (
            f"files of several formats ({', '.join(sorted(formats))})" if formats else f"no format of {listed[0]} known"
        )
        raise UsageError(f"{option}={where}: {seen}; give --data-format, or a pattern such as '{where}/*.csv'")
    (form,) = formats
    # Somebody who names a file or a pattern knows what is in it; in a directory there may be anything.
    paths = [p for p in listed if _format_of(p) == form] if _is_directory(where) else listed
    if not paths:
        raise UsageError(
            f"{option}={where}: no {form} files there (their names end with {', '.join(_ENDINGS[form])}); "
            "name them by a pattern such as 'PATH/part-*'"
        )
    # Every file that is stated costs a call; of images there are many, and their size says little.
    sizes = tuple(0 if form == IMAGES else int(tf.io.gfile.stat(path).length) for path in paths)
    return FileSet(where, tuple(paths), sizes, tuple(sorted({*there} - {*paths}))), form


def class_folders(found: FileSet, *, option: str) -> tuple[str, ...]:
    """The names of the directories that the files are in, in order: the classes.

    Raises:
        UsageError: there are files next to the directories, or there is only one class.
    """
    classes = tuple(sorted({found.class_of(path) for path in found.paths}))
    if len(classes) < 2:
        raise UsageError(
            f"{option}={found.where}: one directory only ({classes[0]}); give one directory for each class"
        )
    if beside := [path for path in found.paths if path.rpartition("/")[0] == found.where.rstrip("/")]:
        raise UsageError(
            f"{option}={found.where}: {beside[0]} is next to the directories of the classes; put it into one"
        )
    return classes


def _listed(where: str) -> Iterable[str]:
    if _is_directory(where):
        for folder, _, names in tf.io.gfile.walk(where):
            yield from (f"{folder.rstrip('/')}/{name}" for name in names)
    elif _WILD & set(where):
        yield from (path for path in tf.io.gfile.glob(where) if not tf.io.gfile.isdir(path))
    elif tf.io.gfile.exists(where):
        yield where


def _is_directory(where: str) -> bool:
    return bool(tf.io.gfile.isdir(where))


def _counts(path: str, where: str) -> bool:
    """Hidden files and directories, such as .ipynb_checkpoints, and marks such as _SUCCESS, are no data."""
    directory = f"{where.rstrip('/')}/"
    below = path.removeprefix(directory) if path.startswith(directory) else path.rpartition("/")[2]
    return not any(part.startswith((".", "_")) for part in below.split("/"))


def _format_of(path: str) -> str | None:
    name = path.lower().removesuffix(_COMPRESSED)
    return next((form for form, endings in _ENDINGS.items() if name.endswith(endings)), None)


def first_line(error: Exception) -> str:
    """The first line of what TensorFlow says of an error."""
    # Before its reason stand TensorFlow's own nodes, behind it the operation.
    text = re.sub(r"\{\{[^}]*\}\}|\[Op:.*", "", str(getattr(error, "message", error)))
    lines: Sequence[str] = text.strip().splitlines()
    return lines[0].strip()[:160] if lines else ""


_REMEDY = "give a directory, a file, or a pattern such as '/data/part-*.csv'; in a job, mount it in every pod"
