"""Manifests from files: YAML read as Kubernetes reads it, with one line for each thing that cannot be read.

Nothing here knows what a job holds; :mod:`dtj.client.checks` looks at the documents.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml

from dtj.api import names
from dtj.api.json import JsonObject, dig
from dtj.client.manifest_yaml import ManifestError, values

STDIN: Final = "-"
_STDIN_NAME: Final = "standard input"
_LISTS: Final = ("List", f"{names.KIND}List", "TFJobList")


class UnreadableFile(Exception):
    """A file that gives no documents; the message says which, where in it, and why, in one line."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file; ``number`` counts from 1, ``alone`` where the file has no other.

    ``path`` is None where it came from no file; ``origin`` then says from where. ``item`` is its place in a list, as
    ``kubectl get -o yaml`` prints one; None if it is a document of its own.
    """

    path: str | None
    number: int
    alone: bool
    body: JsonObject
    origin: str = _STDIN_NAME
    item: int | None = None

    @property
    def file(self) -> str:
        """How messages name the file."""
        return self.path if self.path is not None else self.origin

    @property
    def name(self) -> str:
        """``metadata.name``, or nothing where there is none."""
        name = dig(self.body, "metadata", "name")
        return name if isinstance(name, str) else ""

    @property
    def title(self) -> str:
        """How messages name it: ``digits.yaml: digits``, or ``jobs.yaml: document 2 (digits)``."""
        name = self.name if self.name.isprintable() else repr(self.name)
        if self.alone and self.item is None:
            return f"{self.file}: {name}" if name else self.file
        places = [] if self.alone else [f"document {self.number}"]
        places += [] if self.item is None else [f"items[{self.item}]"]
        return f"{self.file}: {': '.join(places)}" + (f" ({name})" if name else "")

    def items(self) -> tuple[Document, ...]:
        """The objects in it: those of a list, as ``kubectl get -o yaml`` prints it, or itself."""
        if self.body.get("kind") not in _LISTS:
            return (self,)
        found = self.body.get("items")
        return tuple(
            replace(self, body=item if isinstance(item, dict) else {}, item=number)
            for number, item in enumerate(found if isinstance(found, list) else ())
        )


def read(file: str) -> tuple[Document, ...]:
    """The documents of ``file`` (``-`` is standard input), in order; empty ones are skipped.

    Raises UnreadableFile.
    """
    path = None if file == STDIN else file
    shown = path if path is not None else _STDIN_NAME
    return parse(_text(file, shown), path=path, origin=shown)


def parse(text: str, *, path: str | None = None, origin: str) -> tuple[Document, ...]:
    """The documents of a YAML text, which messages call ``origin``; empty ones are skipped. Raises UnreadableFile."""
    try:
        found = list(values(text))
    except yaml.MarkedYAMLError as error:
        raise UnreadableFile(f"{origin}: {_explain(error, text)}") from error
    except yaml.YAMLError as error:
        raise UnreadableFile(f"{origin}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UnreadableFile(f"{origin}: not a manifest: nested too deep") from error
    present = [(number, value) for number, value in enumerate(found, start=1) if value is not None]
    if not present:
        raise UnreadableFile(f"{origin}: empty: there is no document in it")
    return tuple(
        Document(path=path, number=number, alone=len(found) == 1, body=_mapping(value, origin, number), origin=origin)
        for number, value in present
    )


def _text(file: str, shown: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UnreadableFile(f"{shown}: file not found") from error
    except IsADirectoryError as error:
        raise UnreadableFile(f"{shown}: is a directory; name the files in it") from error
    except OSError as error:
        raise UnreadableFile(f"{shown}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{shown}: not YAML: byte {error.start} is not UTF-8 text") from error


def _mapping(value: object, file: str, number: int) -> JsonObject:
    if not isinstance(value, dict):
        kind = "list" if isinstance(value, list) else "single value"
        raise UnreadableFile(f"{file}: document {number}: not a manifest: it is a {kind}, not fields with values")
    return value


def _explain(error: yaml.MarkedYAMLError, text: str) -> str:
    """One line for a mistake in the YAML: where it is, and what is wrong."""
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    if isinstance(error, ManifestError):
        return f"{where}{error.words}"
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]:
        return f"{where}not YAML: a tab where only spaces may indent"
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{where}not YAML: {reason}"
