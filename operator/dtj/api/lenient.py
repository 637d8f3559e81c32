"""Models of what is stored or what pods say: they are read forgivingly, field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from dtj.api.json import fields_of
from dtj.api.printable import one_line, printable

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""A moment as metav1.Time writes it (RFC 3339)."""

MAX_INTEGER: Final = 2**53
"""The largest number that a pod is believed: the API server, like JSON at large, knows no larger whole ones exactly."""

_MAX_MESSAGE_LENGTH: Final = 12 * 1024
"""Most characters of a termination message that are looked at; a kubelet passes on 12 KiB of a pod's at most."""


class LenientModel(BaseModel):
    """A frozen value in camelCase, whose unknown fields are left out."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class PodWords(LenientModel):
    """What a pod says. It is made printable before it is stored: kubectl, a dashboard and a mail show a status too, and
    kubectl escapes ESC and CR alone."""

    @model_validator(mode="before")
    @classmethod
    def _make_printable(cls, raw: object) -> object:
        return {key: _printable(value, field=key) for key, value in raw.items()} if isinstance(raw, dict) else raw


_LEVELS: Final = 3
"""Levels of a field that are read: no field of such a model has more. What lies deeper is read as null."""


def _printable(value: object, *, field: str, levels: int = _LEVELS) -> object:
    """The value, with each text in it on one line; the end of a log keeps its lines."""
    if isinstance(value, str):
        return printable(value) if field in ("logTail", "log_tail") else one_line(value)
    if isinstance(value, dict | list | tuple) and levels == 0:
        return None
    if isinstance(value, dict):
        return {
            one_line(key) if isinstance(key, str) else key: _printable(item, field=field, levels=levels - 1)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_printable(item, field=field, levels=levels - 1) for item in value]
    return value


def readable(
    model: type[BaseModel], raw: Mapping[str, object], items: Mapping[str, type[BaseModel]] | None = None
) -> dict[str, object]:
    """Those fields of ``raw`` that ``model`` can read. ``items`` has the model of the items of a list by its field: of
    such a list, the items that can be read."""
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        if key not in raw:
            continue
        value, item = raw[key], (items or {}).get(name)
        if item is not None:
            value = [each for each in value if _validates(item, each)] if isinstance(value, list) else []
        if _validates(model, {key: value}):
            found[key] = value
    return found


def _validates(model: type[BaseModel], value: object) -> bool:
    try:
        model.model_validate(value)
    except ValidationError:
        return False
    return True


def part_of_message(message: str, name: str) -> object:
    """The part of this name in a termination message that is a JSON object; None of any other message."""
    if len(message) > _MAX_MESSAGE_LENGTH:
        return None
    try:
        content = json.loads(message)
    except (ValueError, RecursionError):  # the latter of brackets in brackets
        return None
    return fields_of(content).get(name)
