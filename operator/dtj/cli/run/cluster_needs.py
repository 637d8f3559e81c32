"""What a job that ran on this machine needs on a cluster, so that the command that is suggested works as it stands."""

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
    """``code`` is whether the command names files of the current directory, which no pod has without ``--code``;
    ``objects`` are those that have to be there before the job: ``ConfigMap own-loop``."""

    code: bool = False
    objects: tuple[str, ...] = ()


NOTHING: Final = ClusterNeeds()


def cluster_needs(pods: Iterable[JsonObject], base: Path) -> ClusterNeeds:
    """What these pods need, which ran in ``base``. What the operator creates for the job is not part of it."""
    pods = tuple(pods)
    return ClusterNeeds(
        code=any(_uses_files(_spec(pod), base) for pod in pods),
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


def _uses_files(pod_spec: JsonObject, base: Path) -> bool:
    main = main_container(pod_spec)
    directory = text(main.get("workingDir"))
    mounts = (posixpath.normpath(text(mount.get("mountPath"))) for mount in objects(main.get("volumeMounts")))
    if directory and posixpath.normpath(directory) in mounts:  # a volume holds them
        return False
    return any(_exists(base, path) for path in _paths([*_words(main, "command"), *_words(main, "args")]))


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
