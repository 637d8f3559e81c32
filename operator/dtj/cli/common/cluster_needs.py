"""What a job needs on a cluster that it finds on this machine by itself: files, and objects that are there first."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.names import CHECKPOINT_VOLUME
from dtj.core.pod_state import main_container

_VOLUMES: Final = (
    ("ConfigMap", "configMap", "name"),
    ("Secret", "secret", "secretName"),
    ("PersistentVolumeClaim", "persistentVolumeClaim", "claimName"),
)
_ENTRY_POINT: Final = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")
_MODULE: Final = re.compile(r"[A-Za-z_][\w.]*")
_TAKES_MODULE: Final = ("-m", "--script")


@dataclass(frozen=True, slots=True)
class ClusterNeeds:
    """``files`` are those of the current directory that the command names, which no pod has without ``--code``;
    ``objects`` have to be there before the job: ``ConfigMap own-loop``."""

    files: tuple[str, ...] = ()
    objects: tuple[str, ...] = ()


NOTHING: Final = ClusterNeeds()


def cluster_needs(pods: Iterable[JsonObject], base: Path) -> ClusterNeeds:
    """What these pods need, whose files are in ``base``. What the operator creates for the job is not part of it."""
    pods = tuple(pods)
    return ClusterNeeds(
        files=tuple(dict.fromkeys(path for pod in pods for path in _files(_spec(pod), base))),
        objects=tuple(dict.fromkeys(name for pod in pods for name in _objects(_spec(pod)))),
    )


def _spec(pod: JsonObject) -> JsonObject:
    spec = dig(pod, "spec")
    return spec if isinstance(spec, dict) else {}


def _objects(pod_spec: JsonObject) -> Iterator[str]:
    for volume in objects(pod_spec.get("volumes")):
        for kind, field, name in _VOLUMES:
            found = text(dig(volume, field, name))
            if found and volume.get("name") != CHECKPOINT_VOLUME and dig(volume, field, "optional") is not True:
                yield f"{kind} {found}"


def _files(pod_spec: JsonObject, base: Path) -> Iterator[str]:
    main = main_container(pod_spec)
    directory = text(main.get("workingDir"))
    mounts = (posixpath.normpath(text(mount.get("mountPath"))) for mount in objects(main.get("volumeMounts")))
    if directory and posixpath.normpath(directory) in mounts:  # a volume holds them
        return
    words = [*_words(main, "command"), *_words(main, "args")]
    yield from (path for path in _paths(words) if _exists(base, path))


def _words(container: JsonObject, field: str) -> list[str]:
    words = container.get(field)
    return [str(word) for word in words] if isinstance(words, list) else []


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
