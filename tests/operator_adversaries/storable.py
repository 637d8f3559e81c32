"""What of the values that are composed for a job an API server stores: its schema and rules refuse the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from dtj.api import schema
from dtj.api.form import DTJ
from dtj.api.json import JsonObject, dig
from dtj.api.tfjob.form import TFJOB
from dtj.api.validation import validate
from operator_adversaries.cluster import VICTIM, edited, job_body
from operator_adversaries.extremes import Deep, Number, Row, Taken, Told
from operator_adversaries.sample import Path
from operator_adversaries.schemas import resolved, schema_of
from operator_adversaries.wire import written

Edits = tuple[tuple[Path, Any], ...]

_DATE: Final = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$"

LARGEST: Final = 1_500_000
"""Bytes of JSON: etcd takes no more, and has jobs as JSON, in which ``<`` takes six."""


@cache
def _base(kind: str, shape: str) -> JsonObject:
    return job_body(TFJOB if kind == TFJOB.kind else DTJ, VICTIM, shape)


def completed(kind: str, shape: str, path: Path) -> Iterator[tuple[Path, Any]]:
    """What must stand beside this place of a job, with simple values; nothing where the job has it."""
    whole: Any = schema_of(kind)
    base, at = _base(kind, shape), whole
    for depth, key in enumerate(path):
        at = resolved(at, whole)
        above = path[:depth]
        for name in at.get("required", ()):
            if name != key and dig(base, *above, name) is None:
                yield (*above, name), _least(at["properties"][name])
        properties = at.get("properties", {})
        at = (
            properties[key]
            if key in properties
            else at.get("items" if isinstance(key, int) else "additionalProperties")
        )
        if not isinstance(at, dict):
            return


def _least(at: Any) -> Any:
    if "enum" in at:
        return at["enum"][0]
    match at.get("type"):
        case "object":
            return {name: _least(at["properties"][name]) for name in at.get("required", ())}
        case "array":
            return [_least(at["items"])]
        case "boolean":
            return True
        case "integer" | "number":
            return max(at.get("minimum", 1), 1)
        case "string" if at.get("format") == "date-time":
            return "2026-01-02T03:04:05Z"
        case "string":
            return next((text for text in ("x", "/x", "1", "True") if re.search(at.get("pattern", ""), text)), "x")
    return 1


def stored(kind: str, shape: str, edits: Edits) -> bool:
    """Whether an API server would store such a job with these values in it."""
    shallow = tuple((path, _shallow(value)) for path, value in edits)
    body = edited(_base(kind, shape), shallow)
    status = body.pop("status", None)
    if validate(body) or len(written(edited({}, shallow))) > LARGEST:
        return False
    return status is None or not schema.check(status, _status(kind), "status")


@cache
def _status(kind: str) -> JsonObject:
    whole: Any = schema_of(kind)
    dated: JsonObject = _with_dates(whole["properties"]["status"])
    return dated


def _with_dates(at: Any) -> Any:
    """A schema whose dates have a pattern: a server checks their format, and no manifest has one."""
    if isinstance(at, list):
        return [_with_dates(each) for each in at]
    if not isinstance(at, dict):
        return at
    date = {"pattern": _DATE} if at.get("format") == "date-time" else {}
    return {key: _with_dates(each) for key, each in at.items()} | date


def _shallow(value: Any) -> Any:
    """A value of the same kinds as another, of few levels."""
    match value:
        case Deep(opening=opening):
            return [1] if opening == "[" else {"a": 1}
        case Number():
            return 1
        case Row(of, times):
            return [_shallow(of)] * min(times, 4_000)
        case Taken():
            return "x"
        case Told():
            return "{}"
        case dict():
            return {key: _shallow(each) for key, each in value.items()}
        case list() | tuple():
            return [_shallow(each) for each in value]
    return value
