"""Small edits of manifests whose parts are shared between pods."""

from __future__ import annotations

from dtj.api.json import JsonObject


def present(fields: JsonObject) -> JsonObject:
    """``fields`` without those that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def add(parent: JsonObject, key: str, items: JsonObject) -> None:
    """Put more into the object at ``key``. Pods of a role share their parts: none is changed in place."""
    before = parent.get(key)
    parent[key] = {**(before if isinstance(before, dict) else {}), **items}
