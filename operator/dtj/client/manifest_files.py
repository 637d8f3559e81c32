"""Manifests from files: YAML read as Kubernetes reads it, with one line for each thing that cannot be read.

Nothing here knows what a job is; :mod:`dtj.client.checks` looks at the documents.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from dtj.api.json import JsonObject, dig

STDIN: Final = "-"
_STDIN_NAME: Final = "standard input"


class UnreadableFile(Exception):
    """A file that gives no documents; the message says which, where in it, and why, in one line."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file; ``number`` counts from 1, ``alone`` where the file has no other.

    ``path`` is None where it came from no file; ``origin`` then says from where.
    """

    path: str | None
    number: int
    alone: bool
    body: JsonObject
    origin: str = _STDIN_NAME

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
        if self.alone:
            return f"{self.file}: {name}" if name else self.file
        return f"{self.file}: document {self.number}" + (f" ({name})" if name else "")


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
        values = list(_values(text))
    except yaml.MarkedYAMLError as error:
        raise UnreadableFile(f"{origin}: {_explain(error, text)}") from error
    except yaml.YAMLError as error:
        raise UnreadableFile(f"{origin}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UnreadableFile(f"{origin}: not a manifest: nested too deep") from error
    present = [(number, value) for number, value in enumerate(values, start=1) if value is not None]
    if not present:
        raise UnreadableFile(f"{origin}: empty: there is no document in it")
    return tuple(
        Document(path=path, number=number, alone=len(values) == 1, body=_mapping(value, origin, number), origin=origin)
        for number, value in present
    )


def _text(file: str, shown: str) -> str:
    try:
        content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise UnreadableFile(f"{shown}: there is no such file") from error
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
    if isinstance(error, _ManifestError):
        return f"{where}{error.problem}"
    lines = text.splitlines()
    if mark is not None and mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1]:
        return f"{where}not YAML: a tab where only spaces may indent"
    reason = ", ".join(part for part in (error.context, error.problem) if part)
    return f"{where}not YAML: {reason}"


# -- YAML as Kubernetes reads it -------------------------------------------------------------------------------


class _ManifestError(yaml.constructor.ConstructorError):
    """YAML, but no manifest."""


class _Loader(yaml.SafeLoader):
    """YAML whose values are JSON: keys are text and stand once, dates and clock times are text.

    PyYAML alone would take the last of two equal keys in silence, and read an argument 12:30 as the number 750.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base declares it

    def mapping(self, node: yaml.MappingNode) -> JsonObject:
        """The whole mapping at once, so that one which holds itself is found out. Raises ConstructorError."""
        first_line: dict[str, int] = {}
        for key, _ in node.value:
            name = self._key(key)
            if name in first_line and key.tag != "tag:yaml.org,2002:merge":
                problem = f'duplicate key "{name}": it stands in line {first_line[name]} already'
                raise _ManifestError(None, None, problem, key.start_mark)
            first_line[name] = key.start_mark.line + 1
        self.flatten_mapping(node)
        return {self._key(key): self.construct_object(value, deep=True) for key, value in node.value}

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise _ManifestError(None, None, "a key must be a word, not a list or a mapping", node.start_mark)
        return str(node.value)


def _whole_mapping(loader: _Loader, node: yaml.MappingNode) -> JsonObject:
    return loader.mapping(node)


def _whole_list(loader: _Loader, node: yaml.SequenceNode) -> list[object]:
    return loader.construct_sequence(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _whole_mapping)
_Loader.add_constructor("tag:yaml.org,2002:seq", _whole_list)
for _tag, _pattern, _first in (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", r"<<", "<"),
):
    _initials: Iterable[str] = ["" if letter == "\0" else letter for letter in _first]
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), list(_initials))


def _values(text: str) -> Iterator[object]:
    yield from yaml.load_all(text, Loader=_Loader)
