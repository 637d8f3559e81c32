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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from dtj.api.printable import one_line
from dtj.client.errors import CodeError
from dtj.client.secret_files import SECRET_FILES

IGNORE_FILE: Final = ".dtjignore"

MAX_PACKED: Final = 2**20
"""Bytes of the archive: what the values of a ConfigMap may have together. Source: Kubernetes, pkg/apis/core/types.go,
MaxSecretSize."""

MAX_SIZE: Final = 2**26
"""Bytes of the files together. It bounds the disk of each pod: a gigabyte of zeros would fit into a ConfigMap."""

MAX_ENTRIES: Final = 20_000
"""Files, directories and links. More are no code: somebody has named a home directory, or a folder of data."""

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
)
"""What no job needs. A line ``!name`` of a ``.dtjignore`` packs it, and one of :data:`SECRET_FILES`."""

_MTIME: Final = 315_619_200
"""2 January 1980 for each file: earlier times cannot be written to a zip file, and so to a wheel."""

_NAMED: Final = 3
"""How many of the largest files a refusal names."""

_NAMED_SECRETS: Final = 10
"""How many of the files a warning names that usually hold secrets."""


@dataclass(frozen=True, slots=True)
class CodePack:
    """The files of a directory.

    ``archive`` is a tar, compressed by gzip; ``digest`` the SHA-256 of the tar, in hexadecimal; ``files`` the number of
    files and links; ``size`` the bytes of the files; ``withheld`` are the files and directories that were left out
    because such usually hold secrets.
    """

    archive: bytes
    digest: str
    files: int
    size: int
    withheld: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """What was left out because it usually holds secrets, and how to send it; empty if nothing was."""
        return _warning(self.withheld)

    @property
    def summary(self) -> str:
        """``12 files, 34.5 KiB, packed 9.8 KiB``."""
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return f"{files}, {shown(self.size)}, packed {shown(len(self.archive))}"


def pack(directory: str | os.PathLike[str] | None, *, extra: Mapping[str, str] | None = None) -> CodePack:
    """Pack the files of a directory, if one is given, apart from those that its ``.dtjignore`` names, and ``extra``:
    texts of files that exist nowhere yet, by name.

    Raises CodeError: the directory or a file of it cannot be read, there is nothing to pack, a link points to what is
    not packed, a name is taken, or there is more than a ConfigMap or a pod can hold.
    """
    if directory is not None and not os.fspath(directory):
        raise CodeError("the name of the directory is empty: name the directory that holds the code, such as .")
    root = Path(directory or ".")
    texts = {name: text.encode() for name, text in (extra or {}).items()}
    try:
        entries, withheld = _entries(root) if directory is not None else ([], ())
        for taken in (entry.name for entry in entries if entry.name in texts):
            raise CodeError(f"{root / taken}: the name is needed for the function: rename this file")
        if not texts and all(entry.isdir() for entry in entries):
            words = f"{root}: there is no file to pack; files that {IGNORE_FILE} excludes do not count"
            raise CodeError("; ".join(filter(None, (words, _warning(withheld)))))
        return replace(_packed(entries, root, texts), withheld=withheld)
    except OSError as error:
        raise CodeError(
            f"{error.filename or root}: cannot be read: {error.strerror}; change its permissions, or exclude it in "
            f"{IGNORE_FILE}"
        ) from error


def _packed(entries: list[tarfile.TarInfo], root: Path, texts: Mapping[str, bytes]) -> CodePack:
    """Raises CodeError and OSError."""
    _check_links(entries, root)
    files = [entry for entry in entries if not entry.isdir()]
    size = sum(entry.size for entry in files) + sum(map(len, texts.values()))
    remedy = _remedy(files)
    if size > MAX_SIZE:
        raise CodeError(f"{root}: {shown(size)} of code are too much, at most {shown(MAX_SIZE)}: {remedy}")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            data = (root / entry.name).read_bytes() if entry.isreg() else b""
            entry.size = len(data)  # it may have changed by now
            archive.addfile(entry, io.BytesIO(data))
        for name, data in texts.items():
            archive.addfile(_header(name, stat.S_IFREG, len(data)), io.BytesIO(data))
    found = CodePack(
        archive=gzip.compress(content.getvalue(), mtime=0),
        digest=hashlib.sha256(content.getvalue()).hexdigest(),
        files=len(files) + len(texts),
        size=size,
    )
    if len(found.archive) > MAX_PACKED:
        raise CodeError(f"{root}: {found.summary}, is too much: a ConfigMap holds {shown(MAX_PACKED)}: {remedy}")
    return found


def _warning(withheld: Sequence[str]) -> str:
    if not withheld:
        return ""
    named = ", ".join(withheld[:_NAMED_SECRETS])
    more = len(withheld) - _NAMED_SECRETS
    return one_line(
        f"left out, because such files usually hold secrets: {named}{f' and {more} more' if more > 0 else ''}; to send "
        f'one nevertheless, write "!{withheld[0]}" into {IGNORE_FILE}'
    )


def _entries(root: Path) -> tuple[list[tarfile.TarInfo], tuple[str, ...]]:
    """What is to be packed, sorted by path, and what is left out because it usually holds secrets. Raises CodeError and
    OSError."""
    if not root.exists():
        raise CodeError(f"{root}: directory not found")
    if not root.is_dir():
        raise CodeError(f"{root}: is not a directory: name the directory that holds the code")
    found: list[tarfile.TarInfo] = []
    withheld: list[str] = []
    for entry in _walk(root, "", _exclusions(root), withheld):
        found.append(entry)
        if len(found) > MAX_ENTRIES:
            raise CodeError(
                f"{root}: more than {MAX_ENTRIES:,} files: name the directory of the code alone, or exclude the "
                f"others in {root / IGNORE_FILE}"
            )
    return sorted(found, key=lambda entry: entry.name), tuple(sorted(withheld))


def _walk(root: Path, below: str, exclusions: _Exclusions, withheld: list[str]) -> Iterator[tarfile.TarInfo]:
    """The entries of a directory and of those in it. What is excluded is not opened, as by git; if it is because it
    usually holds secrets, it is added to ``withheld``.

    Raises CodeError and OSError.
    """
    with os.scandir(root / below) as listing:
        children = [(f"{below}{child.name}", child.stat(follow_symlinks=False)) for child in listing]
    excluded, not_needed = exclusions
    for path, status in children:
        mode = status.st_mode
        is_directory = stat.S_ISDIR(mode)
        if excluded(path, is_directory):
            if not not_needed(path, is_directory):
                withheld.append(f"{path}/" if is_directory else path)
            continue
        if stat.S_ISLNK(mode):
            yield _header(path, mode, target=os.readlink(root / path))
        elif stat.S_ISREG(mode):
            yield _header(path, mode, status.st_size)
        elif is_directory:
            yield _header(path, mode)
            yield from _walk(root, f"{path}/", exclusions, withheld)
        else:
            raise CodeError(f"{root / path}: is neither a file nor a directory: exclude it in {root / IGNORE_FILE}")


_KINDS: Final = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE}


def _header(path: str, mode: int, size: int = 0, target: str = "") -> tarfile.TarInfo:
    """An entry without owner and time; of its mode, only whether it is a program counts."""
    header = tarfile.TarInfo(path)
    header.type, header.size, header.linkname, header.mtime = _KINDS[stat.S_IFMT(mode)], size, target, _MTIME
    header.mode = 0o755 if header.isdir() or (header.isreg() and mode & stat.S_IXUSR) else 0o644
    return header


def _check_links(entries: Sequence[tarfile.TarInfo], root: Path) -> None:
    """Raise CodeError if a link leads out of the directory, or to what is not packed."""
    real, packed = os.path.realpath(root), {entry.name for entry in entries if not entry.issym()}
    for link in filter(tarfile.TarInfo.issym, entries):
        target = os.path.relpath(os.path.realpath(root / link.name), real)
        out = os.path.normpath(os.path.join(os.path.dirname(link.name), link.linkname))
        if out.startswith(("/", "..")) or target not in (".", *packed):
            raise CodeError(
                f"{root / link.name}: is a link to {link.linkname}, which is not packed: replace it by a copy or by a "
                f"relative link within {root}, or exclude it in {root / IGNORE_FILE}"
            )


_Matcher: TypeAlias = Callable[[str, bool], bool]
"""Whether rules exclude an entry: its path, and whether it is a directory. No parent of it is excluded."""

_Exclusions: TypeAlias = tuple[_Matcher, _Matcher]
"""All rules, and those without the names of secrets."""


def _exclusions(root: Path) -> _Exclusions:
    """The rules of the directory. Raises CodeError and OSError.

    pathspec decides about files alone, and of two rules it prefers the one that does not end in ``/``. A directory is
    therefore given to it as a file, by rules without the ``/``.
    """
    from pathspec import GitIgnoreSpec

    file = root / IGNORE_FILE
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    except UnicodeDecodeError as error:
        raise CodeError(f"{file}: byte {error.start} is not UTF-8 text") from error
    for number, line in enumerate(lines, start=1):
        try:
            GitIgnoreSpec.from_lines([line, _without_slash(line)])
        except (ValueError, re.error) as error:  # pathspec lets those of the expression that it writes pass
            raise CodeError(f'{file}: line {number}: "{line}" is not a pattern as git reads it') from error

    def matcher(lines: Sequence[str]) -> _Matcher:
        of_files = GitIgnoreSpec.from_lines(lines)
        of_directories = GitIgnoreSpec.from_lines(map(_without_slash, lines))
        return lambda path, is_directory: (of_directories if is_directory else of_files).match_file(path)

    return matcher([*ALWAYS_IGNORED, *SECRET_FILES, *lines]), matcher([*ALWAYS_IGNORED, *lines])


def _without_slash(rule: str) -> str:
    """A rule about directories as one about files."""
    return re.sub(r"/\s*$", "", rule)


def _remedy(files: Iterable[tarfile.TarInfo]) -> str:
    largest = sorted(files, key=lambda entry: (-entry.size, entry.name))[:_NAMED]
    named = ", ".join(f"{entry.name} {shown(entry.size)}" for entry in largest)
    return (
        f"exclude data in {IGNORE_FILE} (the largest files: {named}), or put the "
        "files into the image or onto a volume that the job mounts"
    )


def shown(size: int) -> str:
    """``34.5 KiB``."""
    if size < 2**10:
        return f"{size} bytes"
    return f"{size / 2**10:.1f} KiB" if size < 2**20 else f"{size / 2**20:.1f} MiB"
