"""The difference between a stored status and the one it should be, as a JSON merge patch (RFC 7386)."""

from __future__ import annotations

from dtj.api.json import JsonObject
from dtj.api.status import JobStatus

_OURS = frozenset(field.alias or name for name, field in JobStatus.model_fields.items())


def status_patch(stored: JsonObject, wanted: JobStatus) -> JsonObject:
    """What makes ``wanted`` of ``stored``; empty if nothing does. Fields that are not ours are left alone."""
    ours = {key: value for key, value in stored.items() if key in _OURS}
    return merge_patch_between(ours, wanted.to_object())


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
