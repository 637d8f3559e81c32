"""Taking secrets out of what shall be shown to others. Pure.

Values of environment variables and arguments are left out as a whole unless they are asked for: too many names and
shapes of secrets are known to nobody but their owners. Then go the values of telling names, these values wherever else
they stand, and whatever looks like a secret in any text (:mod:`~dtj.cli.report.secret_shapes`).

What a program prints by itself cannot be known to be a secret; hence the advice to look through the logs.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue

from dtj.api.json import JsonObject
from dtj.api.names import Env
from dtj.cli.report.evidence import Evidence
from dtj.cli.report.public_options import is_public
from dtj.cli.report.secret_shapes import REDACTED, without_shapes

LEFT_OUT: Final = "(left out; dtj report --include-env shows it)"

_TELLING: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|COOKIE|DSN|CONN|SIG|WEBHOOK|PEM|CERT|JWT|(?:^|[_-])PW$", re.IGNORECASE
)
"""Names of variables, annotations and attributes. A word too many costs a value that nobody misses."""

_OPTION: Final = re.compile(r"(--?[\w.-]+)=(.*)", re.DOTALL)
_FREE_MAPS: Final = frozenset({"annotations", "volumeAttributes", "options", "parameters"})
"""Fields whose keys people choose; in all others a key such as topologyKey is Kubernetes' own word."""

_WORDS: Final = frozenset({"args", "command"})
_OURS: Final = frozenset(value for name, value in vars(Env).items() if name.isupper())
"""Variables that the operator sets, such as TF_CONFIG: addresses and numbers."""

_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_SHORTEST: Final = 4
"""Characters of the shortest value that is looked for in other places: "1" or "yes" would be everywhere."""

_LONG: Final = 6
"""Characters from which a value is looked for within words, and encoded; a shorter one as a word of its own."""


def without_secrets(evidence: Evidence, *, include_env: bool = False) -> Evidence:
    """The same text without the values whose name, place or shape marks them as secrets."""
    stored = (
        evidence.job,
        *evidence.pods,
        *(item for items in evidence.objects.values() for item in items),
        *(item for part in evidence.earlier for item in (part.job, *part.pods)),
    )
    cleaner = _Cleaner(_known({value for item in stored for value in _secrets(item)}), include_env)

    def clean(items: Iterable[JsonObject]) -> tuple[JsonObject, ...]:
        return tuple(map(cleaner.object, items))

    return replace(
        evidence,
        job=cleaner.object(evidence.job),
        pods=clean(evidence.pods),
        events=clean(evidence.events),
        objects={name: clean(items) for name, items in evidence.objects.items()},
        texts={name: cleaner.text(content) for name, content in evidence.texts.items()},
        settings=tuple(replace(setting, value=cleaner.text(setting.value)) for setting in evidence.settings),
        earlier=tuple(
            replace(part, job=cleaner.object(part.job), pods=clean(part.pods), events=clean(part.events))
            for part in evidence.earlier
        ),
        logs=tuple(replace(log, text=cleaner.text(log.text)) for log in evidence.logs),
        unread=tuple(replace(item, why=cleaner.text(item.why)) for item in evidence.unread),
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """Secrets that are looked for: ``anywhere``, the longest first, and as ``words`` of their own."""

    anywhere: tuple[str, ...]
    words: re.Pattern[str] | None


def _known(values: set[str]) -> _Known:
    anywhere = {form for value in values if len(value) >= _LONG for form in _forms(value)}
    words = sorted(value for value in values if _SHORTEST <= len(value) < _LONG)
    pattern = rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)"
    return _Known(tuple(sorted(anywhere, key=len, reverse=True)), re.compile(pattern) if words else None)


def _forms(value: str) -> Iterator[str]:
    """The value, as in a URL, and as base64 has it within a longer text: at three places of its groups of three."""
    yield value
    yield quote(value, safe="")
    content = value.encode(errors="replace")
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).decode()
        whole = encoded[(0, 2, 3)[before] : (before + len(content)) * 8 // 6]
        yield whole
        yield whole.replace("+", "-").replace("/", "_")


@dataclass(frozen=True, slots=True)
class _Cleaner:
    known: _Known
    include_env: bool

    def object(self, item: JsonObject) -> JsonObject:
        """The object without secrets."""
        cleaned = self._value(item, within="")
        assert isinstance(cleaned, dict)
        return cleaned

    def text(self, content: str, *, command: bool = False) -> str:
        """The text without secrets, those that are known first."""
        for secret in self.known.anywhere:
            content = content.replace(secret, REDACTED)
        if self.known.words is not None:
            content = self.known.words.sub(REDACTED, content)
        return without_shapes(content, command=command)

    def _value(self, value: JsonValue, *, within: str) -> JsonValue:
        """``within`` is the field that holds ``value``."""
        if isinstance(value, str):
            return self.text(value, command=within in _WORDS)
        if isinstance(value, list):
            if within in _WORDS and value:
                return self._command(value)
            return [self._value(item, within=within) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self._field(key, item, of=value, within=within)
            for key, item in value.items()
            if key not in ("managedFields", _LAST_APPLIED)
        }

    def _field(self, key: str, item: JsonValue, *, of: JsonObject, within: str) -> JsonValue:
        named = "name" in of and key == "value"
        if key == "valueFrom" or (named and _is_telling(of["name"])) or (within in _FREE_MAPS and _is_telling(key)):
            return REDACTED
        if named and within == "env" and not self.include_env and of["name"] not in _OURS:
            return LEFT_OUT
        return self._value(item, within=key)

    def _command(self, words: list[JsonValue]) -> list[JsonValue]:
        if not self.include_env:
            return list(without_values(words))
        return _arguments([self._value(word, within="args") for word in words])


def without_values(words: list[JsonValue]) -> Iterator[str]:
    """The arguments that cannot be secrets; one mark for each stretch of others."""
    shown = [False] * len(words)
    for place, word in enumerate(words):
        option = _OPTION.fullmatch(word) if isinstance(word, str) else None
        following = words[place + 1] if place + 1 < len(words) else None
        if option is not None and is_public(option[1], option[2]):
            shown[place] = True
        elif isinstance(word, str) and isinstance(following, str) and is_public(word, following):
            shown[place] = shown[place + 1] = True
    for place, word in enumerate(words):
        if shown[place]:
            yield str(word)
        elif place == 0 or shown[place - 1]:
            yield LEFT_OUT


def _arguments(words: list[JsonValue]) -> list[JsonValue]:
    """Arguments without the values of ``--token=…``, ``--token …``, ``-p …`` and ``-u user:…``."""
    cleaned: list[JsonValue] = []
    before = ""
    for word in words:
        option = _OPTION.fullmatch(word) if isinstance(word, str) else None
        if isinstance(word, str) and not word.startswith("-") and _takes_secret(before, word):
            cleaned.append(REDACTED)
        elif option is not None and _is_telling(option[1]):
            cleaned.append(f"{option[1]}={REDACTED}")
        else:
            cleaned.append(word)
        before = word if isinstance(word, str) and option is None else ""
    return cleaned


def _takes_secret(option: str, value: str) -> bool:
    """Whether ``value`` after ``option`` is a secret."""
    if option in ("-u", "--user"):
        return ":" in value
    return option == "-p" or (option.startswith("-") and _is_telling(option))


def _secrets(value: JsonValue, *, within: str = "") -> Iterator[str]:
    """The values that are taken out for their names' sake."""
    if isinstance(value, list):
        for item in value:
            yield from _secrets(item, within=within)
        if within in _WORDS:
            yield from _secret_arguments(value)
    elif isinstance(value, dict):
        given = value.get("value")
        if _is_telling(value.get("name")) and isinstance(given, str):
            yield given
        for key, item in value.items():
            if within in _FREE_MAPS and _is_telling(key) and isinstance(item, str):
                yield item
            else:
                yield from _secrets(item, within=key)


def _secret_arguments(words: list[JsonValue]) -> Iterator[str]:
    for word, cleaned in zip(words, _arguments(words), strict=True):
        if isinstance(word, str) and word != cleaned:
            option = _OPTION.fullmatch(word)
            yield option[2] if option is not None else word


def _is_telling(name: JsonValue) -> bool:
    return isinstance(name, str) and _TELLING.search(name) is not None
