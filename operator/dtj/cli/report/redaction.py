"""Taking secrets out of what shall be shown to others: values of telling names, and these values wherever else they
stand. Pure.

What a program prints by itself cannot be known to be a secret; hence the advice to look through the logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from pydantic import JsonValue

from dtj.api.json import JsonObject
from dtj.cli.report.evidence import Evidence

REDACTED: Final = "(redacted)"

_TELLING: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORI[SZ]ATION|COOKIE", re.IGNORECASE)
_OPTION: Final = re.compile(r"(--?[\w.-]+)=(.*)", re.DOTALL)
_USER_IN_URL: Final = re.compile(r"(\w[\w+.-]*://)[^\s/@'\"]+@")
_FREE_MAPS: Final = frozenset({"annotations", "volumeAttributes", "options", "parameters"})
"""Fields whose keys people choose; in all others a key such as topologyKey is Kubernetes' own word."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SHORTEST: Final = 6
"""Characters of the shortest value that is looked for in other places: "1" or "yes" would be everywhere."""


def without_secrets(evidence: Evidence) -> Evidence:
    """The same, with nothing in it that a name or its place tells to be a secret."""
    stored = (evidence.job, *evidence.pods, *(item for items in evidence.objects.values() for item in items))
    secrets = sorted({value for item in stored for value in _secrets(item)}, key=len, reverse=True)

    def clean(items: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
        return tuple(_object(item, secrets) for item in items)

    return replace(
        evidence,
        job=_object(evidence.job, secrets),
        pods=clean(evidence.pods),
        events=clean(evidence.events),
        objects={name: clean(items) for name, items in evidence.objects.items()},
        texts={name: _text(said, secrets) for name, said in evidence.texts.items()},
        logs=tuple(replace(log, text=_text(log.text, secrets)) for log in evidence.logs),
        unread=tuple(replace(item, why=_text(item.why, secrets)) for item in evidence.unread),
    )


def _object(item: JsonObject, secrets: list[str]) -> JsonObject:
    cleaned = _value(item, secrets, within="")
    assert isinstance(cleaned, dict)
    return cleaned


def _value(value: JsonValue, secrets: list[str], *, within: str) -> JsonValue:
    """``within`` is the field that holds ``value``."""
    if isinstance(value, str):
        return _text(value, secrets)
    if isinstance(value, list):
        cleaned = [_value(item, secrets, within=within) for item in value]
        return _arguments(cleaned) if within in ("args", "command") else cleaned
    if not isinstance(value, dict):
        return value
    named = _is_telling(value.get("name")) and "value" in value
    return {
        key: REDACTED
        if key == "valueFrom" or (named and key == "value") or (within in _FREE_MAPS and _is_telling(key))
        else _value(item, secrets, within=key)
        for key, item in value.items()
        if key not in ("managedFields", _LAST_APPLIED)
    }


def _arguments(words: list[JsonValue]) -> list[JsonValue]:
    """Arguments without the values of ``--token=…`` and ``--token …``."""
    cleaned: list[JsonValue] = []
    follows = False
    for word in words:
        option = _OPTION.fullmatch(word) if isinstance(word, str) else None
        if follows and isinstance(word, str) and not word.startswith("-"):
            cleaned.append(REDACTED)
        elif option is not None and _is_telling(option[1]):
            cleaned.append(f"{option[1]}={REDACTED}")
        else:
            cleaned.append(word)
        follows = option is None and isinstance(word, str) and word.startswith("-") and _is_telling(word)
    return cleaned


def _text(content: str, secrets: list[str]) -> str:
    for secret in secrets:
        content = content.replace(secret, REDACTED)
    return _USER_IN_URL.sub(rf"\1{REDACTED}@", content)


def _secrets(value: JsonValue, *, within: str = "") -> Iterator[str]:
    """The values that are taken out for their names' sake, where they are long enough to be told from other words."""
    if isinstance(value, list):
        for item in value:
            yield from _secrets(item, within=within)
        if within in ("args", "command"):
            yield from filter(_is_long, _secret_arguments(value))
    elif isinstance(value, dict):
        given = value.get("value")
        if _is_telling(value.get("name")) and isinstance(given, str) and _is_long(given):
            yield given
        for key, item in value.items():
            if within in _FREE_MAPS and _is_telling(key) and isinstance(item, str) and _is_long(item):
                yield item
            else:
                yield from _secrets(item, within=key)


def _secret_arguments(words: list[JsonValue]) -> Iterator[str]:
    for word, cleaned in zip(words, _arguments(words), strict=True):
        if isinstance(word, str) and word != cleaned:
            option = _OPTION.fullmatch(word)
            yield option[2] if option is not None else word


def _is_long(value: str) -> bool:
    return len(value) >= _SHORTEST


def _is_telling(name: JsonValue) -> bool:
    return isinstance(name, str) and _TELLING.search(name) is not None
