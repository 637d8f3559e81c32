"""A directory of code as one archive that fits into a ConfigMap: what is packed, what is refused.

The archive is a tar, compressed by gzip. The same files give the same tar on every machine: entries are sorted, and
owners and times are left out. The digest is that of the tar, since two versions of zlib may compress differently.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtj.client.errors import CodeError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE: Final = ".dtjignore"


MAX_PACKED: Final = 2**20
"""Bytes of the archive: what the values of a ConfigMap may have together. Source: Kubernetes, pkg/apis/core/types.go,
MaxSecretSize."""

MAX_SIZE: Final = 2**26
"""Bytes of the files together. It bounds the disk of each pod: a gigabyte of zeros would fit into a ConfigMap."""

MAX_ENTRIES: Final = 20_000
"""Files, directories and links. More are no code: somebody has named a home directory, or a folder of data."""

MAX_LINKS: Final = 40
"""How many links a path may go through. Source: Linux, MAXSYMLINKS."""

ALWAYS_IGNORED: Final = (
    f"/{IGNORE_FILE}",
    ".git/",
    ".hg/",
    ".svn/",
    "__pycache__/",
    "*.py[cod]",
    ".ipynb_checkpoints/",
    ".venv/",
    "venv/",
    ".mypy_cache/",
    ".pytest_cache/",
    ".ruff_cache/",
    ".DS_Store",
    "dtj-runs/",
    ".env",
    ".netrc",
    ".git-credentials",
    ".pypirc",
    "credentials.json",
    "application_default_credentials.json",
    "*.pem",
    "*.p12",
    "id_rsa",
    "id_ed25519",
    ".aws/",
    ".kube/",
    ".ssh/",
)
"""What no job needs, or what does not belong into a ConfigMap, which more people may read than a Secret.
A line ``!name`` of a ``.dtjignore`` packs it."""

_MTIME: Final = 315_619_200
"""2 January 1980 for each file: earlier times cannot be written to a zip file, and so to a wheel."""

_NAMED: Final = 3
"""How many of the largest files a refusal names."""


@dataclass(frozen=True, slots=True)
class CodePack:
    """The files of a directory.

    ``archive`` is a tar, compressed by gzip; ``digest`` the SHA-256 of the tar, in hexadecimal; ``files`` the number of
    files and links; ``size`` the bytes of the files.
    """

    archive: bytes
    digest: str
    files: int
    size: int

    @property
    def summary(self) -> str:
        """``12 files, 34.5 KiB, packed 9.8 KiB``."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{files}, {shown(self.size)}, packed {shown(len(self.archive))}"


def pack(directory: str | os.PathLike[str]) -> CodePack:
    """Pack the files of a directory, apart from those that its ``.dtjignore`` names.

    Raises CodeError: the directory or a file of it cannot be read, there is nothing to pack, a link points to what is
    not packed, or there is more than a ConfigMap or a pod can hold.
    """
    if not os.fspath(directory):
        raise CodeError("the name of the directory is empty: name the directory that holds the code, such as .")
    root = Path(directory)
    entries = _entries(root)
    if all(entry.is_directory for entry in entries):
        raise CodeError(f"{root}: there is no file to pack; files that {IGNORE_FILE} excludes do not count")
    return _packed(entries, root, {})


def pack_with(name: str, content: str, directory: str | os.PathLike[str] | None) -> CodePack:
    """Pack a file that exists nowhere yet, and the files of a directory if one is given; see :func:`pack`.

    Raises CodeError, also if the directory has a file of that name.
    """
    root = Path(directory) if directory is not None else Path()
    entries = _entries(root) if directory is not None else []
    if any(entry.path == name for entry in entries):
        raise CodeError(f"{root / name}: the name is needed for the function: rename this file")
    return _packed(entries, root, {name: content.encode()})


def _packed(entries: list[_Entry], root: Path, extra: Mapping[str, bytes]) -> CodePack:
    """``extra`` are files by name that come after those of ``root``. Raises CodeError."""
    _check_links(entries, root)
    files = [entry for entry in entries if not entry.is_directory]
    size = sum(entry.size for entry in files) + sum(map(len, extra.values()))
    remedy = _remedy(files)
    if size > MAX_SIZE:
        raise CodeError(f"{root}: {shown(size)} of code are too much, at most {shown(MAX_SIZE)}: {remedy}")
    content = _tar(entries, root, extra)
    found = CodePack(
        archive=gzip.compress(content, mtime=0),
        digest=hashlib.sha256(content).hexdigest(),
        files=len(files) + len(extra),
        size=size,
    )
    if len(found.archive) > MAX_PACKED:
        raise CodeError(f"{root}: {found.summary}, is too much: a ConfigMap holds {shown(MAX_PACKED)}: {remedy}")
    return found


def digest_of(archive: bytes) -> str:
    """The digest of an archive of a ConfigMap. Empty if it is none, or is longer than one can be."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
            content = packed.read(2 * MAX_SIZE)  # each entry has a header, too
    except (OSError, EOFError):
        return ""
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, slots=True)
class _Entry:
    """A file, a directory or a link. ``path`` is below the directory that is packed, with ``/`` in it."""

    path: str
    mode: int
    size: int = 0
    target: str = ""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.mode)


def _entries(root: Path) -> list[_Entry]:
    """What is to be packed, sorted by path. Raises CodeError."""
    if not root.exists():
        raise CodeError(f"{root}: directory not found")
    if not root.is_dir():
        raise CodeError(f"{root}: is not a directory: name the directory that holds the code")
    found = []
    for entry in _walk(root, "", _ignored(root)):
        found.append(entry)
        if len(found) > MAX_ENTRIES:
            raise CodeError(
                f"{root}: more than {MAX_ENTRIES:,} files: name the directory of the code alone, or exclude the "
                f"others in {root / IGNORE_FILE}"
            )
    return sorted(found, key=lambda entry: entry.path)


def _walk(root: Path, below: str, ignored: _Ignored) -> Iterator[_Entry]:
    """The entries of a directory and of those in it. What is excluded is not opened, as by git. Raises CodeError."""
    directory = root / below
    try:
        with os.scandir(directory) as listing:
            children = [(child.name, child.stat(follow_symlinks=False)) for child in listing]
    except OSError as error:
        raise _unreadable(directory, error) from error
    for name, status in children:
        path = f"{below}{name}"
        is_directory = stat.S_ISDIR(status.st_mode)
        if ignored.match(path, is_directory=is_directory):
            continue
        if not _is_text(name):
            raise CodeError(f"{root / path!r}: the name is not UTF-8 text: rename it, or exclude it in {IGNORE_FILE}")
        yield _entry(root, path, status)
        if is_directory:
            yield from _walk(root, f"{path}/", ignored)


def _entry(root: Path, path: str, status: os.stat_result) -> _Entry:
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        try:
            return _Entry(path, mode, target=os.readlink(root / path))
        except OSError as error:
            raise _unreadable(root / path, error) from error
    if stat.S_ISREG(mode):
        return _Entry(path, mode, size=status.st_size)
    if stat.S_ISDIR(mode):
        return _Entry(path, mode)
    raise CodeError(f"{root / path}: is neither a file nor a directory: exclude it in {root / IGNORE_FILE}")


def _check_links(entries: Iterable[_Entry], root: Path) -> None:
    """Raise CodeError if a link would point to nothing in a pod."""
    packed = {entry.path: entry for entry in entries}
    for link in filter(lambda entry: entry.is_link, packed.values()):
        if not _leads_somewhere(link.path, packed):
            raise CodeError(
                f"{root / link.path}: is a link to {link.target}, which is not packed: replace it by a copy or by a "
                f"relative link within {root}, or exclude it in {root / IGNORE_FILE}"
            )


def _leads_somewhere(path: str, packed: Mapping[str, _Entry]) -> bool:
    """Whether a path leads to a file or directory that is packed, through links that are packed too."""
    for _ in range(MAX_LINKS):
        parts = path.split("/")
        prefixes = ("/".join(parts[:length]) for length in range(1, len(parts) + 1))
        link = next((prefix for prefix in prefixes if prefix in packed and packed[prefix].is_link), None)
        if link is None:
            return path == "." or path in packed
        target = packed[link].target
        path = os.path.normpath(os.path.join(os.path.dirname(link), target + path.removeprefix(link)))
        if os.path.isabs(target):
            return False
    return False


def _tar(entries: Iterable[_Entry], root: Path, extra: Mapping[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            if entry.is_link:
                archive.addfile(_header(entry.path, kind=tarfile.SYMTYPE, target=entry.target))
            elif entry.is_directory:
                archive.addfile(_header(entry.path, kind=tarfile.DIRTYPE, executable=True))
            else:
                data = _read(root / entry.path)
                executable = bool(entry.mode & stat.S_IXUSR)
                archive.addfile(_header(entry.path, size=len(data), executable=executable), io.BytesIO(data))
        for name, data in extra.items():
            archive.addfile(_header(name, size=len(data)), io.BytesIO(data))
    return content.getvalue()


def _header(
    path: str, *, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = "", executable: bool = False
) -> tarfile.TarInfo:
    header = tarfile.TarInfo(path)
    header.type, header.size, header.linkname, header.mtime = kind, size, target, _MTIME
    header.mode = 0o755 if executable else 0o644
    return header


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(path: Path, error: OSError) -> CodeError:
    return CodeError(
        f"{path}: cannot be read: {error.strerror}; change its permissions, or exclude it in {IGNORE_FILE}"
    )


@dataclass(frozen=True, slots=True)
class _Ignored:
    """The rules of a directory, for entries whose parents are not excluded.

    pathspec decides about files alone, and of two rules it prefers the one that does not end in ``/``. A directory is
    therefore given to it as a file, by rules without the ``/``.
    """

    of_files: GitIgnoreSpec
    of_directories: GitIgnoreSpec

    def match(self, path: str, *, is_directory: bool) -> bool:
        return (self.of_directories if is_directory else self.of_files).match_file(path)


def _ignored(root: Path) -> _Ignored:
    """The rules of the directory. Raises CodeError."""
    from pathspec import GitIgnoreSpec

    file = root / IGNORE_FILE
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    except OSError as error:
        raise CodeError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CodeError(f"{file}: byte {error.start} is not UTF-8 text") from error
    for number, line in enumerate(lines, start=1):
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError as error:
            raise CodeError(f'{file}: line {number}: "{line}" is not a pattern as git reads it') from error
    lines = [*ALWAYS_IGNORED, *lines]
    return _Ignored(
        GitIgnoreSpec.from_lines(lines), GitIgnoreSpec.from_lines(re.sub(r"/\s*$", "", line) for line in lines)
    )


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _remedy(files: Iterable[_Entry]) -> str:
    largest = sorted(files, key=lambda entry: (-entry.size, entry.path))[:_NAMED]
    named = ", ".join(f"{entry.path} {shown(entry.size)}" for entry in largest)
    return (
        f"exclude data in {IGNORE_FILE} (the largest files: {named}), or put the "
        "files into the image or onto a volume that the job mounts"
    )


def shown(size: int) -> str:
    """``34.5 KiB``."""
    if size < 2**10:
        return f"{size} bytes"
    return f"{size / 2**10:.1f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
