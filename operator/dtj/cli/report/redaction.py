"""Taking secrets out of what shall be shown to others: keys stay, values go. Pure.

Values of variables, arguments, annotations and data are left out, because only their owners know which are secrets;
but for those that can be none: the operator's own, numbers, and words that the trainer knows. Other text, such as
messages and logs, is shown without the values of telling names, wherever these stand.

What a program prints by itself cannot be known to be a secret; hence the advice to look through the logs. Every step
takes time that is linear in the length of a text, which may be a megabyte without a space: a pattern begins at a mark
that it does not repeat, and what it takes from there has a bound, or gives nothing back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from dtj.api.names import Annotation, Env
from dtj.cli.report.evidence import Evidence

REDACTED: Final = "(redacted)"

_MAPS: Final = frozenset(
    {"annotations", "volumeAttributes", "options", "parameters", "data", "stringData", "binaryData"}
)
"""Fields whose keys people choose, and whose values are left out."""

_NOISE: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_COMMANDS: Final = frozenset({"args", "command"})
_OURS: Final = frozenset(value for names in (Env, Annotation) for name, value in vars(names).items() if name.isupper())
"""Variables and annotations that the operator sets: addresses, names and numbers."""

WORDS: Final = frozenset({"--keras-override", "--on-nan", "--optimizer", "--schedule", "--strategy", "--task"})
"""Options of the trainer that take one of a few words: it refuses any other, so that none can be a secret."""

NAMES: Final = frozenset({"--model", "--data"})
"""Options that name code or data, the trainer's as well as those of scripts: a model without its name says little."""

_NUMBER: Final = re.compile(r"[+-]?\d{0,9}\.?\d{1,9}(?:[eE][+-]?\d{1,3}|epochs?)?")
_WORD: Final = re.compile(r"[A-Za-z]{1,24}(?:-[A-Za-z]{1,24}){0,3}")
_PLACE: Final = re.compile(r"[\w./:-]{1,200}")
_OPTION: Final = re.compile(r"--[a-z][a-z-]{1,40}")
_SHORTEST: Final = 4
"""Characters of the shortest value that is looked for in other places: "1" or "yes" would be everywhere."""

_FLAGS: Final = frozenset({"true", "false", "none", "null"})
"""Values that are no secret, whatever their variable is called, and stand in each condition."""

_LONG: Final = 6
"""Characters from which a value is looked for within words; a shorter one as a word of its own."""


def without_secrets(evidence: Evidence) -> Evidence:
    """The same without the values that may be secrets."""
    known = msgspec.to_builtins(evidence, builtin_types=(datetime,))
    found = (value for value in _secrets(known) if value.lower() not in _FLAGS)
    values = {form for value in found for form in (value, quote(value, safe=""))}
    longest_first = sorted((re.escape(value) for value in values if len(value) >= _LONG), key=len, reverse=True)
    words = (rf"(?<!\w){re.escape(value)}(?!\w)" for value in sorted(values) if _SHORTEST <= len(value) < _LONG)
    secrets = "|".join((*longest_first, *words))

    @cache
    def text(content: str) -> str:
        return without_telling(re.sub(secrets, REDACTED, content) if secrets else content)

    def clean(value: Any, within: str = "") -> Any:
        """``within`` is the field that holds ``value``."""
        if within in _COMMANDS:
            return [text(word) for word in _arguments([value] if isinstance(value, str) else value)]
        if isinstance(value, str):
            return text(value)
        if isinstance(value, (list, tuple)):
            return [clean(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: REDACTED if _is_left_out(key, value, within) else clean(item, key)
            for key, item in value.items()
            if key not in _NOISE
        }

    return msgspec.convert(clean(known), Evidence, builtin_types=(datetime,))


def _is_left_out(key: str, holder: dict[str, Any], within: str) -> bool:
    """Whether a field holds a value that may be a secret."""
    named = holder.get("name") if key == "value" else key if within in _MAPS else None
    return key == "valueFrom" or (named is not None and not (isinstance(named, str) and named in _OURS))


def _arguments(words: Any) -> Iterator[str]:
    """The names of options, and the values that cannot be secrets."""
    before = ""
    for word in words if isinstance(words, (list, tuple)) else ():
        name, equals, value = word.partition("=") if isinstance(word, str) else ("", "", "")
        if _OPTION.fullmatch(name) is None:
            yield word if _is_public(before, word) else REDACTED
        elif equals:
            yield f"{name}={value if _is_public(name, value) else REDACTED}"
        else:
            yield name
        before = name if not equals else ""


def _is_public(option: str, value: Any) -> bool:
    """Whether this is a number, a word of the trainer's own, or the name of a model or of data."""
    if not option or not isinstance(value, str) or is_telling(option):
        return False
    if option in NAMES and _PLACE.fullmatch(value) is not None and without_telling(value) == value:
        return True
    return _NUMBER.fullmatch(value) is not None or (option in WORDS and _WORD.fullmatch(value) is not None)


def _secrets(value: Any, within: str = "") -> Iterator[str]:
    """The values that are secrets for their names' sake: ``--token=…``, ``--token …``, variables and annotations."""
    if isinstance(value, (list, tuple)):
        words = [word for word in value if isinstance(word, str)] if within in _COMMANDS else []
        for before, word in zip(["", *words], words, strict=False):
            name, equals, given = word.partition("=")
            if equals and is_telling(name):
                yield given
            elif before.startswith("-") and "=" not in before and not word.startswith("-") and is_telling(before):
                yield word
        for item in value:
            yield from _secrets(item)
    elif isinstance(value, dict):
        named = [(value.get("name"), value.get("value")), *(value.items() if within in _MAPS else ())]
        yield from (
            given for name, given in named if isinstance(name, str) and isinstance(given, str) and is_telling(name)
        )
        for key, item in value.items():
            yield from _secrets(item, key)


# -- text -------------------------------------------------------------------------------------------------------

_TELLING: Final = r"""(?:token|secret|passw(?:or)?d|passphrase|pwd|credentials?|authorization|cookie|webhook|jwt
    |(?:api|access|private|secret|account)[_-]?key
    |(?<=[_.?&-])(?:key|pass|pw|auth|sig|signature|cert|conn|connection|dsn|pem))(?![a-z])"""
"""Words of a name that tell a secret; the last ones are everyday words if they stand alone: db_pass, --auth, ?sig="""

_NAME: Final = re.compile(_TELLING, re.IGNORECASE | re.VERBOSE)
_NAMED: Final = re.compile(
    rf"""({_TELLING}[\w.-]{{0,40}}+\\{{0,3}}["']?[ \t]{{0,2}}[=:][ \t]{{0,2}}
        |(?<![\w.-])--?[\w.-]{{0,40}}?{_TELLING}[\w.-]{{0,40}}+[ \t]{{1,3}})(?=\S)[^\r\n]++""",
    re.IGNORECASE | re.VERBOSE,
)
"""``token=…``, ``--token …``, ``"token": "…"``, each with the rest of its line."""

_USER: Final = re.compile(r"(?<=://)[^\s/'\"<>]*@")
_PRIVATE_KEY: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}?PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}?PRIVATE KEY-----|\Z)", re.DOTALL
)
"""A key that was cut ends with the text."""

_KEY: Final = re.compile(
    r"""(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/[^\s"']++
    | (?<![A-Za-z0-9_-])(?:
        eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?     # JSON web tokens
      | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}                                 # AWS
      | (?:gh[pousr]|hf|npm)_[A-Za-z0-9]{16,}+ | (?:github_pat|dop_v1)_\w{16,}+ | (?:glpat|pypi)-[\w-]{16,}+
      | (?:sk|xox[abeoprs]|GOCSPX)-[\w-]{8,}+ | (?:sk|rk)_live_\w{8,}+ | AIza[\w-]{20,}+ | ya29\.[\w-]{8,}+
    )""",
    re.VERBOSE,
)
"""Webhooks, and how well-known makers begin their keys."""


def without_telling(content: str) -> str:
    """The text without keys of well-known makers, users in URLs, and what follows a telling name in its line."""
    content = _USER.sub(f"{REDACTED}@", _KEY.sub(REDACTED, _PRIVATE_KEY.sub(REDACTED, content)))
    return _NAMED.sub(rf"\1{REDACTED}", content)


def is_telling(name: str) -> bool:
    """Whether the words of this name mark its value as a secret."""
    return _NAME.search(name) is not None
