"""What a job's metadata must be for our own programs: they read its labels, and its namespace goes into host names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from dtj.api.json import JsonObject
from dtj.api.patterns import DNS_LABEL, matches
from dtj.api.violation import Violation

_MAX_NAMESPACE: Final = 63


def problems(metadata: JsonObject) -> Iterator[Violation]:
    """What is wrong with the name, the namespace, the labels and the annotations of a job."""
    yield from _name(metadata)
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        yield Violation("metadata.namespace", _not_text(namespace))
    elif namespace and (problem := namespace_problem(namespace)):
        yield Violation("metadata.namespace", problem)
    for kind in ("labels", "annotations"):
        found = metadata.get(kind)
        if found is not None and not isinstance(found, dict):
            yield Violation(f"metadata.{kind}", "must be a mapping of names to texts")
        for key, value in found.items() if isinstance(found, dict) else ():
            if value is not None and not isinstance(value, str):
                yield Violation(f"metadata.{kind}.{key}", _not_text(value))


def namespace_problem(name: str) -> str:
    """Why a text is not the name of a namespace; empty if it is one."""
    if len(name) <= _MAX_NAMESPACE and matches(DNS_LABEL, name):
        return ""
    return (
        f"\"{name}\" is not the name of a namespace: write up to {_MAX_NAMESPACE} lower-case letters, digits and '-', "
        "with a letter or digit at both ends"
    )


def _name(metadata: JsonObject) -> Iterator[Violation]:
    name = metadata.get("name")
    if isinstance(name, str) and name:
        return
    if name is None and metadata.get("generateName") is not None:
        words = "Required value: write a name; only kubectl create can make one from generateName"
    elif name is None or name == "":
        words = "Required value: name or generateName is required"
    else:
        words = _not_text(name)
    yield Violation("metadata.name", words)


def _not_text(value: JsonValue) -> str:
    """That a value is no text, and how it becomes one."""
    if isinstance(value, dict | list):
        return f"must be text, not {'a mapping' if isinstance(value, dict) else 'a list'}"
    return f"must be text, but YAML reads {json.dumps(value)} here: put the value in quotes"
