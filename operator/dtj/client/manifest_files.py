"""Manifests from files: YAML read as Kubernetes reads it, with one line for each thing that cannot be read.

What comes out is JSON: PyYAML alone would take the last of two equal keys in silence, read an argument 12:30 as the
number 750, and make sets and dates, which JSON has not. Nothing here knows what a job holds; :mod:`dtj.client.checks`
looks at the documents.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import yaml
from pydantic import JsonValue

from dtj.api import names
from dtj.api.json import JsonObject, fields_of, items_of, name_of

STDIN: Final = "-"
_STDIN_NAME: Final = "standard input"
_LISTS: Final = ("List", f"{names.KIND}List", "TFJobList")


class UnreadableFile(Exception):
    """A file that gives no documents; the message says which, where in it, and why, in one line."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a file; ``number`` counts from 1, ``alone`` where the file has no other.

    ``path`` is None where it came from no file; ``file`` is how messages name it in any case. ``item`` is its place in
    a list, as ``kubectl get -o yaml`` prints one; None if it is a document of its own.
    """

    path: str | None
    number: int
    alone: bool
    body: JsonObject
    file: str = _STDIN_NAME
    item: int | None = None

    @property
    def name(self) -> str:
        """``metadata.name``, or nothing where there is none."""
        return name_of(self.body)

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
        found = enumerate(items_of(self.body.get("items")))
        return tuple(replace(self, body=fields_of(item), item=number) for number, item in found)


def read(file: str) -> tuple[Document, ...]:
    """The documents of ``file`` (``-`` is standard input), in order; empty ones are skipped.

    Raises UnreadableFile.
    """
    path, shown = (None, _STDIN_NAME) if file == STDIN else (file, file)
    return parse(_text(file, shown), path=path, file=shown)


def parse(text: str, *, path: str | None = None, file: str) -> tuple[Document, ...]:
    """The documents of a YAML text, which messages call ``file``; empty ones are skipped. Raises UnreadableFile."""
    try:
        found = list(values(text))
    except yaml.MarkedYAMLError as error:
        raise UnreadableFile(f"{file}: {_explain(error, text)}") from error
    except yaml.YAMLError as error:
        raise UnreadableFile(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise UnreadableFile(f"{file}: not a manifest: nested too deep") from error
    present = [(number, value) for number, value in enumerate(found, start=1) if value is not None]
    if not present:
        raise UnreadableFile(f"{file}: empty: there is no document in it")
    return tuple(
        Document(path=path, number=number, alone=len(found) == 1, body=_mapping(value, file, number), file=file)
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


_SHORTEST_EXPONENT: Final = 1e21
"""Numbers from here on are written with an exponent (Go, encoding/json)."""

_TAG: Final = "tag:yaml.org,2002:"


def values(text: str) -> Iterator[object]:
    """The documents of a YAML text. Raises yaml.YAMLError and RecursionError."""
    yield from yaml.load_all(text, Loader=_Loader)


class ManifestError(yaml.constructor.ConstructorError):
    """Valid YAML that is not a manifest. ``path`` is the field that shows it, if there is one."""

    def __init__(self, problem: str, node: yaml.Node) -> None:
        super().__init__(None, None, problem, node.start_mark)
        self.path = ""

    @property
    def words(self) -> str:
        """The field, and what is wrong with it."""
        return f"{self.path}: {self.problem}" if self.path else str(self.problem)


class _Loader(yaml.SafeLoader):
    """A loader whose values are JSON: keys are text and stand once, dates and clock times are text."""

    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012 - as the base declares it
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - as the base declares it

    def mapping(self, node: yaml.MappingNode) -> JsonObject:
        """The whole mapping at once, so that one which holds itself is found out. Raises ConstructorError."""
        if not isinstance(node, yaml.MappingNode):
            raise ManifestError("the tag !!map does not fit the value: remove it", node)
        first_line: dict[str, int] = {}
        for key, _ in node.value:
            name = self._key(key)
            if name in first_line and key.tag != f"{_TAG}merge":
                raise ManifestError(f'duplicate key "{name}": it is already in line {first_line[name]}', key)
            first_line[name] = key.start_mark.line + 1
        self.flatten_mapping(node)
        return {(name := self._key(key)): self._value(value, below=name) for key, value in node.value}

    def items(self, node: yaml.SequenceNode) -> list[JsonValue]:
        """The whole list at once."""
        if not isinstance(node, yaml.SequenceNode):
            raise ManifestError("the tag !!seq does not fit the value: remove it", node)
        return [self._value(value, below=f"[{index}]") for index, value in enumerate(node.value)]

    def text(self, node: yaml.ScalarNode) -> str:
        """Text that can be written as UTF-8. Raises ManifestError."""
        value = str(self.construct_scalar(node))
        if re.search("[\ud800-\udfff]", value) is not None:
            raise ManifestError("half a character (a lone surrogate): write the whole one", node)
        return value

    def whole_number(self, node: yaml.ScalarNode) -> int:
        """A whole number. Raises ManifestError."""
        return int(self._plain(self.construct_yaml_int, node))

    def truth(self, node: yaml.ScalarNode) -> bool:
        """true or false. Raises ManifestError."""
        return bool(self._plain(self.construct_yaml_bool, node))

    def number(self, node: yaml.ScalarNode) -> float:
        """A number that JSON can hold, which knows no infinity: 2.0 is 2, as for kubectl. Raises ManifestError."""
        value = float(self._plain(self.construct_yaml_float, node))
        if math.isfinite(value):
            return int(value) if value.is_integer() and abs(value) < _SHORTEST_EXPONENT else value
        raise ManifestError(f"JSON has no {node.value}: put the value in quotes", node)

    def other(self, node: yaml.Node) -> object:
        """What JSON has not. Raises ManifestError."""
        tag = node.tag.replace(_TAG, "!!")
        raise ManifestError(f"the tag {tag} has no meaning in a manifest: remove it", node)

    def _plain(self, construct: Callable[[yaml.ScalarNode], float], node: yaml.ScalarNode) -> float:
        """What PyYAML makes of a value; its own errors, of ``!!int abc``, are no YAMLError."""
        try:
            return construct(node)
        except (ValueError, KeyError, IndexError) as error:
            tag = node.tag.replace(_TAG, "!!")
            raise ManifestError(f"the tag {tag} does not fit the value: remove it", node) from error

    def _value(self, node: yaml.Node, *, below: str) -> JsonValue:
        try:
            value: JsonValue = self.construct_object(node, deep=True)
        except ManifestError as error:
            dot = "." if error.path and not error.path.startswith("[") else ""
            error.path = f"{below}{dot}{error.path}"
            raise
        return value

    def _key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise ManifestError("a key must be a word, not a list or a mapping", node)
        return self.text(node)


# Nothing is taken over from SafeLoader: its sets, dates and bytes are no JSON.
_Loader.yaml_constructors = {}
for _name, _constructor in (
    ("null", _Loader.construct_yaml_null),
    ("bool", _Loader.truth),
    ("int", _Loader.whole_number),
    ("float", _Loader.number),
    ("str", _Loader.text),
    ("map", _Loader.mapping),
    ("seq", _Loader.items),
):
    _Loader.add_constructor(f"{_TAG}{_name}", _constructor)
_Loader.add_constructor(None, _Loader.other)
for _name, _pattern, _first in (
    ("bool", r"y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)", "-+0123456789"),
    (
        "float",
        r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", r"<<", "<"),
):
    _initials: Iterable[str] = ["" if letter == "\0" else letter for letter in _first]
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"^(?:{_pattern})$"), list(_initials))
