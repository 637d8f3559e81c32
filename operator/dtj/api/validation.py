"""Checking a whole manifest offline: the schema's types and ranges first, then the rules, as the API server does.

What else an API server asks of pods, it is asked by a dry run: see :mod:`dtj.kube.dry_run`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from dtj.api import metadata, names, rules, schema
from dtj.api.generated_schema import generated_job_schema
from dtj.api.json import JsonObject, dig
from dtj.api.violation import Violation


def validate(body: JsonObject) -> tuple[Violation, ...]:
    """Everything wrong with a manifest, as the API server would say it; empty if it is valid."""
    identity = tuple(_identity(body))
    if identity:
        return identity
    whole = generated_job_schema()
    known: JsonObject = {key: value for key, value in body.items() if key not in ("metadata", "status")}
    found = schema.check(known, whole, "")
    if found:
        return tuple(found)
    stored = schema.as_stored(body, whole)
    spec = dig(stored, "spec")
    assert isinstance(spec, dict)
    return rules.check(name=str(dig(body, "metadata", "name")), spec=spec)


def _identity(body: JsonObject) -> Iterator[Violation]:
    """What must hold before the schema can be asked at all."""
    for key, wanted in (("apiVersion", names.API_VERSION), ("kind", names.KIND)):
        given = body.get(key)
        if given is None:
            yield Violation(key, f'Required value: write "{wanted}"')
        elif given != wanted:
            yield Violation(key, f'must be "{wanted}", not {json.dumps(given)}')
    given = body.get("metadata")
    if given is not None and not isinstance(given, dict):
        yield Violation("metadata", "must be a mapping with a name")
        return
    yield from metadata.problems(given or {})
