"""Checking a whole manifest offline: the schema's types and ranges first, then the rules, as the API server does.

What else an API server asks of pods, it is asked by a dry run: see :mod:`dtj.kube.gateway`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from pydantic import JsonValue

from dtj.api import schema
from dtj.api.form import Form
from dtj.api.job import form_of
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.names import namespace_problem
from dtj.api.rule import Violation


def validate(body: JsonObject) -> tuple[Violation, ...]:
    """Everything wrong with the manifest of a job, or of a TFJob, as the API server would say it; empty if it is
    valid."""
    form = form_of(body)
    identity = tuple(_identity(body, form))
    if identity:
        return identity
    whole = form.schema()
    known: JsonObject = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    found = schema.check(known, whole, "")
    if found:
        return tuple(found)
    stored = schema.as_stored(body, whole)
    return form.check(str(dig(body, "metadata", "name")), fields_of(dig(stored, "spec")))


def _identity(body: JsonObject, form: Form) -> Iterator[Violation]:
    """What must hold before the schema can be asked at all."""
    for key, wanted in (("apiVersion", form.api_version), ("kind", form.kind)):
        given = body.get(key)
        if given is None:
            yield Violation(key, f'Required value: write "{wanted}"')
        elif given != wanted:
            yield Violation(key, f'must be "{wanted}", not {json.dumps(given)}')
    given = body.get("metadata")
    if given is not None and not isinstance(given, dict):
        yield Violation("metadata", "must be a mapping with a name")
        return
    yield from _metadata(given or {})


def _metadata(metadata: JsonObject) -> Iterator[Violation]:
    """What is wrong with the name, the namespace, the labels and the annotations of a job."""
    yield from _metadata_name(metadata)
    namespace = metadata.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        yield Violation("metadata.namespace", _not_text(namespace))
    elif namespace and (problem := namespace_problem(namespace)):
        yield Violation("metadata.namespace", problem)
    for kind in ("labels", "annotations"):
        found = metadata.get(kind)
        if found is not None and not isinstance(found, dict):
            yield Violation(f"metadata.{kind}", "must be a mapping of names to texts")
        for key, value in fields_of(found).items():
            if value is not None and not isinstance(value, str):
                yield Violation(f"metadata.{kind}.{key}", _not_text(value))


def _metadata_name(metadata: JsonObject) -> Iterator[Violation]:
    name = metadata.get("name")
    if isinstance(name, str) and name:
        return
    if name is None and metadata.get("generateName") is not None:
        words = "Required value: write a name; only kubectl create can make one from generateName"
    elif name is None or name == "":
        words = "Required value: write a name"
    else:
        words = _not_text(name)
    yield Violation("metadata.name", words)


def _not_text(value: JsonValue) -> str:
    """That a value is no text, and how it becomes one."""
    if isinstance(value, dict | list):
        return f"must be text, not {'a mapping' if isinstance(value, dict) else 'a list'}"
    return f"must be text, but YAML reads {json.dumps(value)} here: put the value in quotes"
