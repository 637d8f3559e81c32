"""What an API server asks of an object's metadata: name, namespace, labels and annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from pydantic import JsonValue

from dtj.api.formats import DNS_LABEL, LABEL_VALUE, qualified_name_problem
from dtj.api.json import JsonObject
from dtj.api.violation import Violation

_MAX_ANNOTATIONS: Final = 256 * 1024
"""Most bytes of all annotations of an object (apimachinery, TotalAnnotationSizeLimitB)."""


def name_problems(metadata: JsonObject) -> Iterator[Violation]:
    """What is wrong with the name, before any format is looked at: it is missing, or no text."""
    name = metadata.get("name")
    if isinstance(name, str) and name:
        return
    if name is None and metadata.get("generateName") is not None:
        words = "Required value: write a name; only kubectl create can make one from generateName"
    elif name is None or name == "":
        words = "Required value: name or generateName is required"
    else:
        words = not_text(name)
    yield Violation("metadata.name", words)


def not_text(value: JsonValue) -> str:
    """That a value is no text, and how it becomes one."""
    if isinstance(value, dict | list):
        return f"must be text, not {'a mapping' if isinstance(value, dict) else 'a list'}"
    return f"must be text, but YAML reads {json.dumps(value)} here: put the value in quotes"


def problems(metadata: JsonObject) -> Iterator[Violation]:
    """What is wrong with the namespace, the labels and the annotations of a job."""
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        yield Violation("metadata.namespace", not_text(namespace))
    elif namespace and (problem := DNS_LABEL.problem(namespace)):
        yield Violation("metadata.namespace", f"Invalid value: {json.dumps(namespace)}: {problem}")
    yield from label_problems(metadata, "metadata")


def label_problems(metadata: JsonObject, path: str) -> Iterator[Violation]:
    """What is wrong with the labels and annotations of ``metadata``, which is at ``path``."""
    for kind in ("labels", "annotations"):
        found = metadata.get(kind)
        if found is not None and not isinstance(found, dict):
            yield Violation(f"{path}.{kind}", "must be a mapping of names to texts")
        for key, value in found.items() if isinstance(found, dict) else ():
            yield from _entry(f"{path}.{kind}", key, value, label=kind == "labels")
        size = sum(len(f"{k}{v}".encode()) for k, v in found.items()) if isinstance(found, dict) else 0
        if kind == "annotations" and size > _MAX_ANNOTATIONS:
            yield Violation(f"{path}.{kind}", f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes")


def _entry(path: str, key: str, value: JsonValue, *, label: bool) -> Iterator[Violation]:
    # An API server takes upper-case letters in the prefix of an annotation, but in no other.
    if problem := qualified_name_problem(key if label else key.lower()):
        yield Violation(path, f"Invalid value: {json.dumps(key)}: {problem}")
    elif value is not None and not isinstance(value, str):
        yield Violation(f"{path}.{key}", not_text(value))
    elif label and (problem := LABEL_VALUE.problem(value or "")):
        yield Violation(path, f"Invalid value: {json.dumps(value)}: {problem}")
