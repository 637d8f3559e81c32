"""JSON as types, and the few helpers that every room needs to read it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from pydantic import JsonValue

JsonObject: TypeAlias = dict[str, JsonValue]


def dig(value: JsonValue | Mapping[str, JsonValue], *path: str | int) -> JsonValue:
    """The value at ``path`` below ``value``, or None if any step is missing or of another kind."""
    found: object = value
    for step in path:
        if isinstance(step, int):
            if not isinstance(found, Sequence) or isinstance(found, str) or not -len(found) <= step < len(found):
                return None
            found = found[step]
        elif isinstance(found, Mapping):
            found = found.get(step)
        else:
            return None
    return found  # type: ignore[return-value]  # every branch above came out of a JsonValue


def items_of(value: JsonValue) -> list[JsonValue]:
    """``value`` where it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []


def objects(value: JsonValue) -> list[JsonObject]:
    """The objects in a JSON list; empty where ``value`` is no list."""
    return [item for item in items_of(value) if isinstance(item, dict)]


def fields_of(value: object) -> JsonObject:
    """``value`` where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: JsonValue, default: str = "") -> str:
    """``value`` where it is a string, else ``default``."""
    return value if isinstance(value, str) else default


def whole_number(digits: str, *, most: int) -> int | None:
    """The number that ASCII digits stand for; None if they are none, or it is larger than ``most``.

    Python refuses to read a number of 5,000 digits, and others may write one wherever they write a text."""
    readable = digits.isascii() and digits.isdigit() and len(digits) <= len(str(most))
    return number if readable and (number := int(digits)) <= most else None


def name_of(body: JsonValue) -> str:
    """The name of an object of Kubernetes."""
    return text(dig(body, "metadata", "name"))


def condition_of(status: JsonValue, kind: str) -> JsonObject:
    """The condition of a type in the status of an object; empty if there is none."""
    return next((found for found in objects(dig(status, "conditions")) if found.get("type") == kind), {})


def picked(fields: JsonObject, wanted: Iterable[str]) -> JsonObject:
    """Those of ``fields`` that are wanted."""
    return {name: fields[name] for name in wanted if name in fields}


def digest_of(value: object) -> str:
    """Tells whether a value is another than before; short enough for an annotation."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def object_at(parent: JsonObject, key: str) -> JsonObject:
    """The object at ``key``, made where it is missing or of another kind."""
    value = parent.get(key)
    if not isinstance(value, dict):
        value = {}
        parent[key] = value
    return value


def extend(parent: JsonObject, key: str, items: Iterable[JsonObject]) -> None:
    """Append those items to the list at ``key`` that are not in it yet; the list itself is replaced, since others may
    share it."""
    merged = list(items_of(parent.get(key)))
    merged.extend(item for item in items if item not in merged)
    parent[key] = merged


def apply_merge_patch(body: JsonObject, patch: JsonObject) -> JsonObject:
    """The object after a JSON merge patch (RFC 7386). Neither argument is changed."""
    merged = dict(body)
    for key, value in patch.items():
        present = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = apply_merge_patch(fields_of(present), value)
        else:
            merged[key] = value
    return merged


def merge_patch_between(before: JsonObject, after: JsonObject) -> JsonObject:
    """The smallest patch from ``before`` to ``after``; what ``after`` lacks is removed. ``after`` has no nulls."""
    patch: JsonObject = {key: None for key in before if key not in after}
    for key, wanted in after.items():
        present = before.get(key)
        if isinstance(wanted, dict) and isinstance(present, dict):
            nested = merge_patch_between(present, wanted)
            if nested:
                patch[key] = nested
        elif key not in before or present != wanted:
            patch[key] = wanted
    return patch


def lacking(stored: JsonObject, wanted: JsonObject) -> JsonObject:
    """What of ``wanted`` is missing in ``stored`` or another there, as a merge patch without nulls."""

    def kept(patch: JsonObject) -> JsonObject:
        nested = {key: kept(value) if isinstance(value, dict) else value for key, value in patch.items()}
        return {key: value for key, value in nested.items() if value not in (None, {})}

    return kept(merge_patch_between(stored, wanted))


def paths(fields: JsonObject, within: str = "") -> list[str]:
    """The paths of all values in ``fields``, such as ``a.b``; a list is one value."""
    found: list[str] = []
    for key, value in fields.items():
        place = f"{within}.{key}" if within else key
        found += paths(value, place) if isinstance(value, dict) and value else [place]
    return found


def present(fields: JsonObject) -> JsonObject:
    """``fields`` without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def add(parent: JsonObject, key: str, items: JsonObject) -> None:
    """Put more into the object at ``key``. Pods of a role share their parts: none is changed in place."""
    parent[key] = {**fields_of(parent.get(key)), **items}
