"""A PersistentVolumeClaim that holds the code of jobs: where it is there, and claims that cannot hold it. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Self

from dtj.api.json import JsonObject, dig, text
from dtj.client.errors import CodeError

FOLDER: Final = "dtj-code"
"""The directory of the claim that has the archives, each with its digest as the name."""

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_NAME: Final = 253
_LONGEST_DIRECTORY: Final = 1024


@dataclass(frozen=True, slots=True)
class CodeClaim:
    """A claim by name, and a directory of it, without ``/`` at either end; empty is the claim's root."""

    name: str
    directory: str = ""

    @classmethod
    def parse(cls, words: str) -> Self:
        """``NAME`` or ``NAME/DIRECTORY``. Raises CodeError."""
        name, _, directory = words.partition("/")
        if not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
            raise CodeError(f'"{words}": "{name}" cannot be the name of a PersistentVolumeClaim: use NAME or NAME/DIR')
        parts = directory.removesuffix("/").split("/") if directory else []
        if any(part in ("", ".", "..") or not part.isprintable() for part in parts) or (
            len(directory) > _LONGEST_DIRECTORY
        ):
            raise CodeError(f'"{words}": "{directory}" cannot be a directory of the claim: use NAME or NAME/DIR')
        return cls(name, "/".join(parts))

    def __str__(self) -> str:
        return f"{self.name}/{self.directory}" if self.directory else self.name

    def path_of(self, digest: str) -> str:
        """The path of an archive, below the claim's root."""
        return "/".join(filter(None, (self.directory, FOLDER, f"{digest}.tar.gz")))


def check(body: JsonObject, *, pods: int) -> str:
    """Whether a claim can bring code into a number of pods. Returns a warning, or an empty text.

    Raises CodeError if it cannot.
    """
    name, namespace = text(dig(body, "metadata", "name")), text(dig(body, "metadata", "namespace"))
    claim = f"PersistentVolumeClaim {name} in namespace {namespace}"
    modes = dig(body, "spec", "accessModes")
    modes = modes if isinstance(modes, list) else []
    if dig(body, "metadata", "deletionTimestamp") is not None:
        raise CodeError(f"{claim} is being deleted: name another claim")
    if dig(body, "status", "phase") == "Lost":
        raise CodeError(f"{claim} is Lost, its volume is gone: delete the claim, create it again, or name another one")
    if dig(body, "spec", "volumeMode") == "Block":
        raise CodeError(f"{claim} is a block device (volumeMode: Block): name a claim with volumeMode: Filesystem")
    if "ReadWriteMany" in modes:
        return ""
    if "ReadWriteOnce" in modes:
        return _warning_of_one_node(claim) if pods > 1 else ""
    if "ReadWriteOncePod" in modes and pods > 0:
        raise CodeError(f"{claim} is for one pod alone (ReadWriteOncePod): name a claim with ReadWriteMany")
    raise CodeError(f"{claim} cannot be written ({', '.join(map(str, modes))}): name a claim with ReadWriteMany")


def _warning_of_one_node(claim: str) -> str:
    return (
        f"{claim} is ReadWriteOnce: pods on other nodes than the first cannot start; a claim with ReadWriteMany has no "
        "such limit"
    )
