"""Which files there are: a directory, a pattern or one file, on any file system that TensorFlow opens.

A file is known by its real path, whichever links and spellings lead to it, so that each example counts once.
"""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import tensorflow as tf

from dtj_trainer.config.data import CSV, IMAGES, TEXT, TFRECORD
from dtj_trainer.config.store_url import Location, is_url
from dtj_trainer.data.gzip_files import ENDING
from dtj_trainer.errors import UsageError, may_pass, storage_reason

_ENDINGS = {
    TFRECORD: (".tfrecord", ".tfrecords", ".tfrec"),
    CSV: (".csv",),
    IMAGES: (".png", ".jpg", ".jpeg", ".gif", ".webp"),
    TEXT: (".txt", ".tsv", ".text"),
}
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class FileSet:
    """The files of one place, in the order of their names; no file twice."""

    where: str
    paths: tuple[str, ...]
    sizes: tuple[int, ...]
    """In bytes; 0 where they are not asked for."""
    written: tuple[int, ...]
    """When each was last written, in nanoseconds; 0 where it is not asked for."""
    real: tuple[str, ...] = field(repr=False)
    """The real path of each, which no other name of the same file has."""
    same: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Other names of these files, as links give them: (the name, the one among the paths)."""
    left_out: tuple[str, ...] = field(default=(), repr=False)
    """What is there, and is not among them: of another format, hidden, or another name of one of them."""

    def without(self, others: "FileSet") -> "FileSet":
        """Those that are not among `others`, by whichever names: links of both kinds."""
        theirs = set(others.real)
        # Most files have one name: these need no look at each of ours, which costs a call.
        linked = {inode for real in others.real if (inode := _inode(real, if_linked=True))}
        kept = [
            number
            for number, real in enumerate(self.real)
            if real not in theirs and not (linked and _inode(real) in linked)
        ]
        return replace(
            self,
            paths=tuple(self.paths[number] for number in kept),
            sizes=tuple(self.sizes[number] for number in kept),
            written=tuple(self.written[number] for number in kept),
            real=tuple(self.real[number] for number in kept),
        )

    @property
    def parts(self) -> frozenset[str]:
        """Names of directories and files, without endings, that were found and not given."""
        return frozenset(part.split(".")[0] for path in self.paths for part, _ in _found(path, self.where))


def find(where: str, *, option: str, form: str | None) -> tuple[FileSet, str]:
    """The files that `where` names and that can be of the format, and the format, by the files' names if not given.

    Args:
        option: that gave `where`, for the error.

    Raises:
        UsageError: nothing there, or nothing of that format, or several formats, or what cannot be read.
    """
    try:
        there = dict(sorted(_listed(where)))
        listed = [path for path in there if not any(_is_hidden(*part) for part in _found(path, where))]
        formats = {form} if form else {known for path in listed if (known := _format_of(path))}
        if not listed:
            raise UsageError(f"{option}={where}: no files there; {_REMEDY}", restart_may_help=True)
        if not formats:
            remedy = (
                "unpack it"
                if listed[0].lower().endswith(_ARCHIVES)
                else "read it in a function of your own with --data, or give --data-format if it is one of these"
            )
            raise UsageError(f"{option}={where}: no format of {listed[0]} known ({', '.join(_ENDINGS)}); {remedy}")
        if formats == {IMAGES, TEXT} and _is_directory(where) and _are_notes(listed):
            formats = {IMAGES}
        if len(formats) != 1:
            raise UsageError(
                f"{option}={where}: files of several formats ({', '.join(sorted(formats))}); give --data-format, or a "
                f"pattern such as '{where}/*.csv'"
            )
        (form,) = formats
        # Somebody who names a file or a pattern knows what is in it; in a directory there may be anything.
        chosen = [path for path in listed if _format_of(path) == form] if _is_directory(where) else listed
        if not chosen:
            raise UsageError(
                f"{option}={where}: no {form} files there (their names end with {', '.join(_ENDINGS[form])}); "
                "name them by a pattern such as 'PATH/part-*'"
            )
        first: dict[str, str] = {}
        for path in chosen:
            first.setdefault(there[path], path)
        paths = tuple(first.values())
        if odd := next((path for path in paths if not _is_text(path)), None):
            raise UsageError(f"{option}={where}: {odd!a}: its name is no UTF-8; rename it")
        # Every file that is stated costs a call; of images there are many, and their size says little.
        stats = [(0, 0) if form == IMAGES else _size_and_time(path) for path in paths]
    except (tf.errors.OpError, OSError) as error:
        raise UsageError(
            f"{option}={where}: cannot be read ({_reason(error)}); {_REMEDY}", restart_may_help=may_pass(error)
        ) from None
    found = FileSet(
        where,
        paths,
        sizes=tuple(size for size, _ in stats),
        written=tuple(time for _, time in stats),
        real=tuple(first),
        same=tuple((path, first[there[path]]) for path in chosen if path != first[there[path]]),
        left_out=tuple(sorted({*there} - {*paths})),
    )
    return found, form


def class_folders(found: FileSet, *, option: str) -> tuple[str, ...]:
    """The names of the directories that the files are in, in order: the classes.

    Raises:
        UsageError: there are files next to the directories, or one of these is in another, or there is only one class.
    """
    classes = tuple(sorted({directory_of(path) for path in found.paths}))
    if len(classes) < 2:
        raise UsageError(
            f"{option}={found.where}: one directory only ({classes[0]}); give one directory for each class"
        )
    if beside := [path for path in found.paths if path.rpartition("/")[0] == found.where.rstrip("/")]:
        raise UsageError(
            f"{option}={found.where}: {beside[0]} is next to the directories of the classes; move it away, or "
            "into the directory of its class"
        )
    folders = {path.rpartition("/")[0] for path in found.paths}
    for folder in sorted(folders):
        above = folder
        while above := above.rpartition("/")[0]:
            if above in folders and _name(above) != _name(folder):
                raise UsageError(
                    f"{option}={found.where}: {folder} is in the directory of another class, {above}; move its files "
                    "up, or the directory out"
                )
    for path, other in found.same:
        if directory_of(path) != directory_of(other):
            raise UsageError(
                f"{option}={found.where}: {path} and {other} are one file in two classes; leave it in one of them"
            )
    return classes


def check_classes(paths: Iterable[str], classes: Sequence[str], where: str) -> None:
    """That the directories of held-out files are classes of the files at `where`.

    Raises:
        UsageError: one is not.
    """
    for path in paths:
        if directory_of(path) not in classes:
            raise UsageError(f"{path}: its directory is not a class of {where}; they are {', '.join(classes)}")


def directory_of(path: str) -> str:
    """The name of the directory that a file is in."""
    return _name(path.rpartition("/")[0])


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _listed(where: str) -> Iterator[tuple[str, str]]:
    """Each file with its real path."""
    if _is_directory(where):
        folder = where.rstrip("/")
        if not is_url(where):
            yield from _below(folder, os.path.realpath(where), _Walk())
            return
        for below, _, names in tf.io.gfile.walk(folder):
            yield from ((path := f"{below.rstrip('/')}/{name}", _real(path)) for name in names)
    elif _WILD & set(where) and not _is_local_file(where):
        inodes = dict[int, str]()
        paths = (path for path in tf.io.gfile.glob(where) if not _is_directory(path))
        yield from ((path, _first_of_links(_real(path), inodes)) for path in paths)
    elif tf.io.gfile.exists(where):
        yield where, _real(where)


@dataclass(frozen=True)
class _Walk:
    """Where a walk through directories and links is."""

    above: tuple[str, ...] = ()
    """The real paths of the directories that it is in."""
    hidden: bool = False
    linked: bool = False
    seen: set[tuple[bool, str]] = field(default_factory=set)
    """The directories that were entered: whether as hidden ones, and the real path."""
    inodes: dict[int, str] = field(default_factory=dict)
    """See `_first_of_links`."""


def _below(folder: str, real: str, walk: _Walk) -> Iterator[tuple[str, str]]:
    """The files below a directory, also where links lead: a link to a directory that it is in ends there.

    So does one that was found by a link, to a directory that was entered already: of folders that are all linked with
    each other there are more ways than can be walked.

    Only of links is the real path looked up: that costs a call for each part of it.
    """
    walk.seen.add((walk.hidden, real))
    with os.scandir(folder or "/") as entries:
        for entry in entries:
            path, own = f"{folder}/{entry.name}", f"{real.rstrip('/')}/{entry.name}"
            if entry.is_symlink():
                own = os.path.realpath(path)
                if not os.path.exists(own) and not _is_hidden(entry.name):
                    raise FileNotFoundError(0, "a link to what is not there", path)
            if not entry.is_dir():
                # Of what is no link, the directory knows the inode: that costs no call.
                yield path, _first_of_links(own, walk.inodes, None if entry.is_symlink() else entry.inode())
                continue
            hidden = walk.hidden or _is_hidden(entry.name)
            if own in (*walk.above, real) or (walk.linked and entry.is_symlink() and (hidden, own) in walk.seen):
                continue
            linked = walk.linked or entry.is_symlink()
            try:
                yield from _below(path, own, replace(walk, above=(*walk.above, real), hidden=hidden, linked=linked))
            except PermissionError:
                # Such as the lost+found of a volume.
                if not _is_hidden(entry.name):
                    raise
                yield path, own


def _real(path: str) -> str:
    return str(Location.of(path)) if is_url(path) else os.path.realpath(path)


def _first_of_links(real: str, inodes: dict[int, str], inode: int | None = None) -> str:
    """The real path of a file, or of that of its hard links that was met first.

    Args:
        inodes: the files that were met, by their inodes; an empty path where one inode stands for several files, as on
            several devices.
        inode: of the file, if it is known.
    """
    if inode is None:
        found = _inode(real)
        if found is None:
            return real
        _, inode = found
    first = inodes.setdefault(inode, real)
    if first in ("", real):
        return real
    if _inode(first) == _inode(real) is not None:
        return first
    inodes[inode] = ""
    return real


def _inode(path: str, *, if_linked: bool = False) -> tuple[int, int] | None:
    """What all hard links to a local file have in common; None for others.

    Args:
        if_linked: None also for one that no other name leads to.
    """
    if is_url(path):
        return None
    try:
        found = os.stat(path)
    except OSError:
        # It was listed, and is gone, or may not be looked at: reading it says so.
        return None
    return None if if_linked and found.st_nlink == 1 else (found.st_dev, found.st_ino)


def _is_local_file(where: str) -> bool:
    """Whether it is the name of a file as it stands, also where it could be a pattern."""
    return not is_url(where) and os.path.exists(where)


def _is_directory(where: str) -> bool:
    return bool(tf.io.gfile.isdir(where))


def _size_and_time(path: str) -> tuple[int, int]:
    if is_url(path):
        remote = tf.io.gfile.stat(path)
        return int(remote.length), int(remote.mtime_nsec)
    # TensorFlow rounds times to seconds.
    local = os.stat(path)
    return local.st_size, local.st_mtime_ns


def _is_text(path: str) -> bool:
    """Whether TensorFlow can name it."""
    return not any("\udc80" <= letter <= "\udcff" for letter in path)


def _found(path: str, where: str) -> list[tuple[str, str]]:
    """The parts of a path that were found and not given, each with the pattern that it matched, or nothing."""
    if path == where:
        return []
    directory = f"{where.rstrip('/')}/"
    if path.startswith(directory):
        return [(part, "") for part in path.removeprefix(directory).split("/")]
    parts = zip(reversed(path.split("/")), reversed(where.split("/")), strict=False)
    return [(part, pattern) for part, pattern in parts if _WILD & set(pattern)]


def _is_hidden(part: str, pattern: str = "") -> bool:
    """Hidden files and directories, such as .ipynb_checkpoints, and marks such as _SUCCESS, are no data.

    They are if the pattern begins with the same character, as in a shell.
    """
    return part == "lost+found" or (part.startswith((".", "_")) and not pattern.startswith(part[0]))


def _format_of(path: str) -> str | None:
    name = path.lower().removesuffix(ENDING)
    return next((form for form, endings in _ENDINGS.items() if name.endswith(endings)), None)


def _are_notes(paths: Iterable[str]) -> bool:
    """Whether all texts beside pictures are such as a README: next to the folders of pictures, and in none of them."""
    folders, texts = set[str](), list[str]()
    for path in paths:
        if _format_of(path) == IMAGES:
            folders.add(path.rpartition("/")[0])
        elif _format_of(path) == TEXT:
            texts.append(path)
    above = {folder[: slash.start()] for folder in folders for slash in re.finditer("/", folder)} - folders
    beside = all(path.lower().endswith((".txt", ".text")) and path.rpartition("/")[0] in above for path in texts)
    # One folder has no classes: it may hold the figures of a report on the texts.
    return beside and len(folders) > 1


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}"
    return first_line(error) or type(error).__name__


def first_line(error: Exception) -> str:
    """The first line of what TensorFlow says of an error."""
    # Before its reason stand TensorFlow's own nodes, behind it the operation.
    text = re.sub(r"\{\{[^}]*\}\}|\[Op:.*", "", str(getattr(error, "message", error)))
    lines: Sequence[str] = text.strip().splitlines()
    return lines[0].strip()[:160] if lines else ""


def fault_of(path: str, error: Exception, content: str) -> UsageError:
    """The error to raise for a file: that it cannot be read at all, or else what is wrong with its content."""
    by_tensorflow = isinstance(error, tf.errors.OpError)
    if by_tensorflow and not isinstance(error, _OF_CONTENT):
        content = f"cannot be read ({storage_reason(error)}); check the volume and its rights"
    return UsageError(f"{path}: {content}", restart_may_help=by_tensorflow and may_pass(error))


_OF_CONTENT = (tf.errors.InvalidArgumentError, tf.errors.DataLossError, tf.errors.OutOfRangeError)
_REMEDY = "give a directory, a file, or a pattern such as '/data/part-*.csv'; in a job, mount it in every pod"
