"""Checking a manifest against the CRD's own schema, without a server.

The messages are the API server's, so that ``dtj validate`` and ``kubectl apply`` say the same of the same
mistake. Only what our schema uses is implemented; it is no general JSON Schema validator.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from dtj.api import pod_limits, quantities
from dtj.api.json import JsonObject, dig, fields_of, items_of
from dtj.api.names import CONFIG_KEY, DNS_LABEL, matches
from dtj.api.rule import Violation
from dtj.api.storage import AUTO, AUTO_PATTERN

_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}


def check(value: JsonValue, schema: JsonObject, path: str) -> list[Violation]:
    """All the places at and below ``path`` where ``value`` breaks ``schema``."""
    return list(_check(value, schema, path))


def as_stored(value: JsonValue, schema: JsonObject) -> JsonValue:
    """``value`` as the API server stores it: nulls are dropped where the schema does not allow them, and a whole number
    such as 2.0 becomes an integer where the schema wants one."""
    if isinstance(value, list):
        items = fields_of(schema.get("items"))
        return [as_stored(item, items) for item in value]
    if isinstance(value, float) and schema.get("type") == "integer" and value.is_integer():
        return int(value)
    if not isinstance(value, dict):
        return value
    kept: JsonObject = {}
    for key, item in value.items():
        inner = _field(schema, key)
        if item is not None or (inner is not None and inner.get("nullable") is True):
            kept[key] = as_stored(item, inner or {})
    return kept


def _check(value: JsonValue, schema: JsonObject, path: str) -> Iterator[Violation]:
    if value is None and schema.get("nullable") is True:
        return
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else []
    if schema.get("x-kubernetes-int-or-string"):
        kinds = ["integer", "string"]
    if kinds and not any(_has_type(value, kind) for kind in kinds):
        seen = _show(_type_name(value))
        words = f"Invalid value: {seen}: {path} in body must be of type {','.join(kinds)}: {seen}"
        yield Violation(path, f"{words}; {_type_hint(value, kinds)}")
        return
    yield from _check_limits(value, schema, path)
    if isinstance(value, dict):
        yield from _check_object(value, schema, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _check(item, fields_of(schema.get("items")), f"{path}[{index}]")
        yield from _check_unique(value, schema, path)


def _check_unique(value: list[JsonValue], schema: JsonObject, path: str) -> Iterator[Violation]:
    """Items of a list of type map, such as containers by their names, and of a set must differ."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not isinstance(keys, list) and schema.get("x-kubernetes-list-type") != "set":
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        identity = item
        if isinstance(keys, list) and isinstance(item, dict):
            fields = fields_of(dig(schema, "items", "properties"))
            identity = {key: item.get(key, dig(fields, key, "default")) for key in sorted(map(str, keys))}
        shown = json.dumps(identity, separators=(",", ":"))
        if shown in seen:
            yield Violation(f"{path}[{index}]", f"Duplicate value: {shown}")
        seen.add(shown)


def _check_limits(value: JsonValue, schema: JsonObject, path: str) -> Iterator[Violation]:
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        words = f"Unsupported value: {_show(value)}: supported values: {', '.join(_show(v) for v in allowed)}"
        remedy = _REMEDIES.get(f"{path}={value}")
        yield Violation(path, f"{words}; {remedy}" if remedy else words)
    pattern = schema.get("pattern")
    hint = f"; {_PATTERN_HINTS[pattern]}" if pattern in _PATTERN_HINTS else ""
    size, keywords = _size(value)
    for keyword in keywords:
        limit = schema.get(keyword)
        if isinstance(limit, int) and (size < limit if keyword.startswith("min") else size > limit):
            plural = "" if limit == 1 else "s"
            words = _LIMITS[keyword].format(value=_show(value), path=path, limit=limit, size=size, s=plural)
            if limit == 0 and isinstance(value, list | dict):
                words += hint
            elif isinstance(value, dict) and value:
                words += f"; it has {', '.join(value)}"
            yield Violation(path, words)
            return  # the server stops at the first, too
    if isinstance(pattern, str) and isinstance(value, str) and not matches(pattern, value):
        yield Violation(path, f"Invalid value: {_show(value)}: {path} in body should match '{pattern}'{hint}")


_PATTERN_HINTS: Final = {
    quantities.FIELD_PATTERN: f"write a quantity such as {quantities.EXAMPLES}",
    DNS_LABEL: "use lower-case letters, digits and '-', and begin and end with a letter or a digit",
    CONFIG_KEY: "use letters, digits, '-', '_' and '.'",
    pod_limits.PORT_NAME_PATTERN: "use lower-case letters, digits and '-', with at least one letter",
    AUTO_PATTERN: f"write a whole number without quotes, or {AUTO}",
    pod_limits.VARIABLE_PATTERN: "use printable ASCII characters other than '='",
}
"""What the server does not say: nobody should have to read a pattern."""


_REMEDIES: Final = {
    # Templates of other kinds often have one. It has no effect there, either.
    ".template.metadata.name": "remove it: the pods are named after the job",
    "spec.runPolicy.scheduling.topologyKey": "it is gone: set the annotation kueue.x-k8s.io/podset-required-topology "
    "of the template, or a podAffinity in it",
    "spec.runPolicy.onNaN=Rollback": "Rollback is gone: Skip leaves out each update that is not finite",
}
"""What to do about a field, by the end of its path, or about a value."""


def _type_hint(value: JsonValue, kinds: list[str]) -> str:
    """What the server does not say either: the value, and how it is written as what is wanted."""
    if kinds == ["string"] and isinstance(value, int | float):
        return "put the value in quotes"
    if "integer" in kinds and isinstance(value, int | float) and not _fits_int64(value):
        return f"the largest integer is {_MAX_INT64}"
    if isinstance(value, str) and any(matches(_WRITTEN[kind], value) for kind in kinds if kind in _WRITTEN):
        return f"remove the quotes around the value: {value}"
    shown = _show(value)
    return f"it is {shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + '…'}"


_WRITTEN: Final = {"integer": "^-?[0-9]+$", "number": "^-?[0-9]+([.][0-9]+)?$", "boolean": "^(true|false)$"}
_LONGEST_SHOWN: Final = 60


_LIMITS: Final = {
    "minimum": "Invalid value: {value}: {path} in body should be greater than or equal to {limit}",
    "maximum": "Invalid value: {value}: {path} in body should be less than or equal to {limit}",
    "minLength": "Invalid value: {value}: {path} in body should be at least {limit} chars long",
    "maxLength": "Too long: may not be more than {limit} bytes",
    "minItems": "Invalid value: {size}: {path} in body should have at least {limit} items",
    "maxItems": "Too many: {size}: must have at most {limit} item{s}",
    "minProperties": "Invalid value: {size}: {path} in body should have at least {limit} properties",
    "maxProperties": "Too many: {size}: must have at most {limit} item{s}",
}
"""The server's words for a value beyond a limit, by the keyword of the limit."""


def _size(value: JsonValue) -> tuple[float, tuple[str, ...]]:
    """The size of a value, and the keywords of the limits that apply to it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value, ("minimum", "maximum")
    if isinstance(value, str):
        return len(value), ("minLength", "maxLength")
    if isinstance(value, list):
        return len(value), ("minItems", "maxItems")
    if isinstance(value, dict):
        return len(value), ("minProperties", "maxProperties")
    return 0, ()


def _check_object(value: JsonObject, schema: JsonObject, path: str) -> Iterator[Violation]:
    for name in items_of(schema.get("required")):
        if value.get(str(name)) is None:
            yield Violation(_below(path, str(name)), "Required value")
    for key, item in value.items():
        inner = _field(schema, key)
        if inner is not None:
            if item is not None or inner.get("nullable") is True:
                yield from _check(item, inner, _below(path, key))
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            field = _below(path, key)
            known = next((f"; {words}" for place, words in _REMEDIES.items() if field.endswith(place)), "")
            remedy = known or suggestion(key, schema)
            yield Violation(field, f'unknown field "{field}"{remedy}')


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _field(schema: JsonObject, key: str) -> JsonObject | None:
    """The schema of a field, or None if the field is not known."""
    for found in (dig(schema, "properties", key), schema.get("additionalProperties")):
        if isinstance(found, dict):
            return found
    return None


def suggestion(key: str, schema: JsonObject) -> str:
    """A field that may be meant by ``key``, as the end of a message; empty if none is similar."""
    close = difflib.get_close_matches(key, list(fields_of(schema.get("properties"))), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""


def _has_type(value: JsonValue, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, int | float):
        return _fits_int64(value) and value == int(value)
    return isinstance(value, _PYTHON_TYPES[kind])


_MAX_INT64: Final = 2**63 - 1


def _fits_int64(value: float) -> bool:
    """The API server reads a larger whole number as a floating point number."""
    return -_MAX_INT64 <= value <= _MAX_INT64


def _type_name(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, float) or (isinstance(value, int) and not _fits_int64(value)):
        return "number"
    return next(kind for kind, types in _PYTHON_TYPES.items() if _has_type(value, kind) and isinstance(value, types))


def _show(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


GENERATED_FILE: Final = Path(__file__).with_name("job_schema.json")
"""``scripts/generate_crds.py`` writes it."""


@cache
def generated_job_schema() -> JsonObject:
    """What :func:`dtj.api.crd.job_schema` builds. Shared: do not change it."""
    loaded: JsonObject = json.loads(GENERATED_FILE.read_text(encoding="utf-8"))
    return loaded
