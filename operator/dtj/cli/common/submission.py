"""A job that a command submits, with or without code, and the files of this directory that it names."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dtj.api.json import JsonObject, items_of, objects, text
from dtj.cli.common.connection import Typed, commands_in, format_api_error
from dtj.cli.common.options import CODE
from dtj.cli.common.terminal import say
from dtj.core.pod_state import main_container_of

if TYPE_CHECKING:
    from dtj.client import ApiError, AsyncClient, Job
    from dtj.client.checks import Manifest


def with_code_of(placed: Iterable[tuple[Manifest, str]], code: str | None) -> list[tuple[Manifest, str]]:
    """Jobs, each with its namespace, with the files of the directory ``code``, which is packed once; what was packed is
    printed on standard error.

    Without one, a job whose command names files of the current directory gets a warning there: it is submitted, since
    its image may have them. Raises CodeError and InvalidManifest.
    """
    if code is None:
        found = list(placed)
        for manifest, _ in found:
            _warn_of_missing_files(manifest)
        return found
    from dtj.client import CodeError
    from dtj.client.code_manifest import with_code
    from dtj.client.code_pack import pack

    try:
        packed = pack(code)
    except CodeError as error:
        raise CodeError(f"{CODE}: {error}") from error
    found = [(with_code(manifest, packed), namespace) for manifest, namespace in placed]
    say(f"Code of {code}: {packed.summary}", err=True)
    if packed.warning:
        say(f"Code of {code}: {packed.warning}", err=True)
    return found


async def create_or_report(manifest: Manifest, client: AsyncClient, *, namespace: str) -> Job | None:
    """The job that was created; None if the cluster refuses it, which is printed on standard error. Raises
    Unavailable."""
    from dtj.client import ApiError, Unavailable

    try:
        return await client.create(manifest, namespace=namespace)
    except Unavailable:
        raise
    except ApiError as error:
        say(_refusal(manifest, error, commands_in(namespace, usual=client.namespace)), err=True)
        return None


def _refusal(manifest: Manifest, error: ApiError, again: Typed) -> str:
    """Why the cluster did not take a manifest, in one line."""
    from dtj.client import AlreadyExists

    what = f"{manifest.document.title}: {format_api_error(error)}"
    if isinstance(error, AlreadyExists):
        name = manifest.job.name
        return f"{what}: choose another metadata.name, or delete that job first ({again(('dtj', 'delete', name))})"
    return what


def _warn_of_missing_files(manifest: Manifest) -> None:
    from dtj.cli.common.formatting import listed
    from dtj.core.manifests.pod import first_pods
    from dtj.core.platform import Platform

    pods = first_pods(manifest.job, manifest.spec, platform=Platform())
    files = files_named(pods, Path.cwd())
    if files:
        say(
            f"{manifest.document.title}: the command names {listed(files)} of this directory: add {CODE} . to send "
            "the directory along, unless the image has it",
            err=True,
        )


# -- the files of a job that no pod has by itself --------------------------------------------------------------

_ENTRY_POINT: Final = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")
_MODULE: Final = re.compile(r"[A-Za-z_][\w.]*")
_TAKES_MODULE: Final = ("-m", "--script")


def files_named(pods: Iterable[JsonObject], base: Path) -> tuple[str, ...]:
    """The files of ``base``, the current directory, that commands of pods name, and that need ``--code``."""
    return tuple(dict.fromkeys(path for pod in pods for path in _files(main_container_of(pod), base)))


def _files(main: JsonObject, base: Path) -> Iterator[str]:
    directory = text(main.get("workingDir"))
    mounts = (posixpath.normpath(text(mount.get("mountPath"))) for mount in objects(main.get("volumeMounts")))
    if directory and posixpath.normpath(directory) in mounts:  # a volume holds them
        return
    words = [str(word) for field in ("command", "args") for word in items_of(main.get(field))]
    yield from (path for path in _paths(words) if _exists(base, path))


def _paths(words: list[str]) -> Iterator[str]:
    """The paths that words of a command may mean: ``train.py``, ``--script=train.py``, ``--model=package.train:build``,
    ``-m package.train``."""
    for before, word in zip(["", *words], words, strict=False):
        option, _, value = word.partition("=") if word.startswith("-") else (before, "", word)
        entry_point = _ENTRY_POINT.fullmatch(value)
        if entry_point is not None:
            yield from _module(entry_point[1])
        elif value:
            yield value
            if option in _TAKES_MODULE and _MODULE.fullmatch(value):
                yield from _module(value)


def _module(name: str) -> tuple[str, str]:
    path = name.replace(".", "/")
    return f"{path}.py", f"{path}/__init__.py"


def _exists(base: Path, path: str) -> bool:
    try:
        return not path.startswith("/") and (base / path).is_file()
    except (OSError, ValueError):  # a program text is no path: it is too long, or has a NUL
        return False
