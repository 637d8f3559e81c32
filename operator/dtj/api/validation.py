"""Checking a whole manifest offline: the schema's types and ranges first, then the rules, as the API server does."""

from __future__ import annotations

from dtj.api import names, rules, schema
from dtj.api.crd import job_schema
from dtj.api.json import JsonObject, dig
from dtj.api.rules import Violation


def validate(body: JsonObject) -> tuple[Violation, ...]:
    """Everything wrong with a manifest, as the API server would say it; empty if it is valid."""
    identity = tuple(_identity(body))
    if identity:
        return identity
    whole = job_schema()
    known: JsonObject = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    found = schema.check(known, whole, "")
    if found:
        return tuple(found)
    stored = schema.as_stored(body, whole)
    spec = dig(stored, "spec")
    assert isinstance(spec, dict)
    return rules.check(name=str(dig(body, "metadata", "name")), spec=spec)


def _identity(body: JsonObject) -> list[Violation]:
    """What must hold before the schema can be asked at all."""
    found = []
    for key, wanted in (("apiVersion", names.API_VERSION), ("kind", names.KIND)):
        if body.get(key) != wanted:
            found.append(Violation(key, f'must be "{wanted}", not {_show(body.get(key))}'))
    name = dig(body, "metadata", "name")
    if not isinstance(name, str) or not name:
        found.append(Violation("metadata.name", "Required value: name or generateName is required"))
    return found


def _show(value: object) -> str:
    return f'"{value}"' if value is not None else "empty"
