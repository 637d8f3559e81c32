"""Taking secrets out of what shall be shown to others: keys stay, values go. Pure.

Values of variables, arguments, annotations and data are left out, because only their owners know which are secrets;
but for those that can be none: the operator's own, and numbers and words of the trainer's options. Other text, such as
messages and logs, is shown without the values of telling names, wherever these stand.

What a program prints by itself cannot be known to be a secret; hence the advice to look through the logs. Every step
takes time that is linear in the length of a text, which may be a megabyte without a space: no pattern looks for its end
from more than one place, hence the possessive repetitions and the looks behind.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from pydantic import JsonValue

from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Env
from dtj.cli.report.evidence import Evidence

REDACTED: Final = "(redacted)"

_MAPS: Final = frozenset(
    {"annotations", "volumeAttributes", "options", "parameters", "data", "stringData", "binaryData"}
)
"""Fields whose keys people choose, and whose values are left out."""

_NOISE: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_WORDS: Final = frozenset({"args", "command"})
_OURS: Final = frozenset(value for names in (Env, Annotation) for name, value in vars(names).items() if name.isupper())
"""Variables and annotations that the operator sets: addresses, names and numbers."""

_TELLING: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CRED|AUTH|COOKIE|DSN|CONN|SIG|WEBHOOK|PEM|CERT|JWT|(?:^|[_-])PW$", re.IGNORECASE
)
"""Names whose values are looked for in all other places, too. A line without any has no telling name."""

_OPTION: Final = re.compile(r"(--?[\w.-]+)=(.*)", re.DOTALL)
_SHORTEST: Final = 4
"""Characters of the shortest value that is looked for in other places: "1" or "yes" would be everywhere."""

_LONG: Final = 6
"""Characters from which a value is looked for within words, and encoded; a shorter one as a word of its own."""


def without_secrets(evidence: Evidence) -> Evidence:
    """The same without the values that may be secrets."""
    values = {
        value
        for part in (*evidence.earlier, evidence)
        for item in (part.job, *part.pods, *(item for items in part.objects.values() for item in items))
        for value in _secrets(item)
    }
    anywhere = {form for value in values if len(value) >= _LONG for form in _forms(value)}
    words = sorted(value for value in values if _SHORTEST <= len(value) < _LONG)
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)") if words else None
    return _Cleaner(sorted(anywhere, key=len, reverse=True), pattern).evidence(evidence)


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


def _secrets(value: JsonValue, *, within: str = "") -> Iterator[str]:
    """The values that are secrets for their names' sake."""
    if isinstance(value, list):
        if within in _WORDS:
            yield from _secret_arguments([word for word in value if isinstance(word, str)])
        for item in value:
            yield from _secrets(item, within=within)
    elif isinstance(value, dict):
        named = [(value.get("name"), value.get("value")), *(value.items() if within in _MAPS else ())]
        for name, given in named:
            if isinstance(name, str) and isinstance(given, str) and _TELLING.search(name):
                yield given
        for key, item in value.items():
            yield from _secrets(item, within=key)


def _secret_arguments(words: list[str]) -> Iterator[str]:
    """Values of ``--token=…``, ``--token …``, ``-p …`` and ``-u user:…``."""
    for before, word in zip(["", *words], words, strict=False):
        option = _OPTION.fullmatch(word)
        if option is not None and _TELLING.search(option[1]):
            yield option[2]
        elif before.startswith("-") and not word.startswith("-") and _OPTION.fullmatch(before) is None:
            takes_user = before in ("-u", "--user") and ":" in word
            if takes_user or before == "-p" or _TELLING.search(before):
                yield word


@dataclass(frozen=True, slots=True)
class _Cleaner:
    """Looks for known secrets ``anywhere``, the longest first, and for shorter ones as ``words`` of their own."""

    anywhere: list[str]
    words: re.Pattern[str] | None

    def evidence(self, known: Evidence) -> Evidence:
        metrics = {name: self._text(name) for name in {each.name for each in known.scalars}}
        return replace(
            known,
            job=self._object(known.job),
            pods=tuple(map(self._object, known.pods)),
            events=tuple(map(self._object, known.events)),
            objects={name: tuple(map(self._object, items)) for name, items in known.objects.items()},
            texts={name: self._text(content) for name, content in known.texts.items()},
            scalars=tuple(replace(each, name=metrics[each.name]) for each in known.scalars),
            settings=tuple(replace(each, value=self._text(each.value)) for each in known.settings),
            logs=tuple(replace(each, text=self._text(each.text)) for each in known.logs),
            unread=tuple(replace(each, why=self._text(each.why)) for each in known.unread),
            earlier=tuple(map(self.evidence, known.earlier)),
        )

    def _object(self, item: JsonObject) -> JsonObject:
        cleaned = self._value(item, within="")
        assert isinstance(cleaned, dict)
        return cleaned

    def _text(self, content: str) -> str:
        for secret in self.anywhere:
            content = content.replace(secret, REDACTED)
        return without_telling(self.words.sub(REDACTED, content) if self.words is not None else content)

    def _value(self, value: JsonValue, *, within: str) -> JsonValue:
        """``within`` is the field that holds ``value``."""
        if isinstance(value, (str, list)) and within in _WORDS:
            return list(_public_arguments([value] if isinstance(value, str) else value))
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self._value(item, within=within) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: REDACTED if _is_left_out(key, value, within) else self._value(item, within=key)
            for key, item in value.items()
            if key not in _NOISE
        }


def _is_left_out(key: str, holder: JsonObject, within: str) -> bool:
    """Whether a field holds a value that may be a secret."""
    named = holder.get("name") if key == "value" else key if within in _MAPS else None
    return key == "valueFrom" or (named is not None and not (isinstance(named, str) and named in _OURS))


def _public_arguments(words: list[JsonValue]) -> Iterator[str]:
    """The arguments that cannot be secrets; one mark for each stretch of others."""
    given = [word if isinstance(word, str) else "" for word in words]
    place, hides = 0, False
    while place < len(given):
        option = _OPTION.fullmatch(given[place])
        is_one = option is not None and is_public(option[1], option[2])
        size = 1 if is_one else 2 if is_public(given[place], "".join(given[place + 1 : place + 2])) else 0
        yield from given[place : place + size] or ([] if hides else [REDACTED])
        place, hides = place + max(size, 1), size == 0


# -- text -------------------------------------------------------------------------------------------------------

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
      | dckr_pat_[\w-]{8,}+ | SG\.[\w-]{8,}+\.[\w-]{8,}+
    )""",
    re.VERBOSE,
)
"""Webhooks, and how well-known makers begin their keys."""

_URL: Final = re.compile(r"[^\s'\"<>]++")
_NAME: Final = re.compile(r"(?<![\w.-])([\w.-]++)(\\{0,3}[\"']?[ \t]{0,2}[=:][ \t]{0,2}|[ \t]{1,3}(?=[^\s]))")
"""A name, and what stands between it and its value; a blank does after an option alone."""

_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALONE: Final = frozenset(
    {"token", "secret", "password", "passwd", "passphrase", "pwd", "credential", "credentials"}
    | {"authorization", "cookie", "webhook", "jwt"}
)
_TOGETHER: Final = frozenset(
    {"key", "pass", "pw", "auth", "sig", "signature", "cert", "conn", "connection", "dsn", "pem"}
)
"""Words that tell a secret as a part of a name: db_pass, --api-key, AccountKey. Alone they are everyday words."""

_ENDS: Final = ("token", "secret", "password", "passwd", "pwd", "apikey", "accesskey", "secretkey", "privatekey")


def without_telling(content: str) -> str:
    """The text without keys of well-known makers, users in URLs, and what follows a telling name in its line."""
    content = _KEY.sub(REDACTED, _PRIVATE_KEY.sub(REDACTED, content))
    if "://" in content and "@" in content:
        content = _URL.sub(lambda word: _without_user(word[0]), content)
    return "".join(map(_without_named, content.splitlines(keepends=True)))


def _without_user(word: str) -> str:
    """``postgres://user:password@host`` without user and password, which may hold a slash."""
    scheme, found, rest = word.partition("://")
    user, at, host = rest.rpartition("@")
    is_path = "/" in user and ":" not in user
    return word if not found or not at or is_path else f"{scheme}://{REDACTED}@{host}"


def _without_named(line: str) -> str:
    """The line up to the first value of a telling name: ``token=…``, ``--token …``, ``"token": "…"``."""
    if _TELLING.search(line) is None:
        return line
    for name in _NAME.finditer(line):
        follows = not name[2].isspace() or name[1].startswith("-")
        in_query = line[name.start() - 1 : name.start()] in ("?", "&")
        if follows and is_telling(name[1], in_query=in_query) and line[name.end() :].strip():
            return line[: name.end()] + REDACTED + line[len(line.rstrip("\r\n")) :]
    return line


def is_telling(name: str, *, in_query: bool = False) -> bool:
    """Whether the words of this name mark its value as a secret; ``in_query`` if it is a parameter of a URL's query."""
    parts = [part.lower() for part in _PARTS.findall(name[-200:])]
    if not parts or parts[-1] in ("error", "exception"):  # KeyError: 'loss'
        return False
    compound = len(parts) > 1 or in_query or name.startswith("-")
    is_alone = not _ALONE.isdisjoint(parts) or name.lower().endswith(_ENDS)
    return is_alone or (compound and not _TOGETHER.isdisjoint(parts))


# -- arguments that are shown in every report -------------------------------------------------------------------

# Options of the trainer whose values are numbers or its own words: it refuses any other, so that none can be a secret.

NUMBERS: Final = frozenset({
    "--batch-size", "--checkpoint-every-seconds", "--checkpoint-every-steps", "--checkpoint-keep",
    "--epochs", "--learning-rate", "--logical-cpus", "--micro-batches",
    "--per-replica-batch-size", "--progress-every", "--seed",
    "--stall-timeout", "--start-timeout", "--steps-per-call", "--validate-every",
})  # fmt: skip
"""Options of the trainer that take a number, of epochs too."""

WORDS: Final = frozenset({
    "--data-format", "--keras-override", "--on-nan", "--optimizer", "--schedule", "--strategy", "--task",
})  # fmt: skip
"""Options of the trainer that take one of a few words."""

_NUMBER: Final = re.compile(r"[+-]?\d{0,12}\.?\d{1,12}(e[+-]?\d{1,3}|epochs?)?", re.IGNORECASE)
_WORD: Final = re.compile(r"[A-Za-z]{1,24}(-[A-Za-z]{1,24}){0,3}")


def is_public(option: str, value: str) -> bool:
    """Whether an option with this value is shown in every report."""
    if option in NUMBERS:
        return _NUMBER.fullmatch(value) is not None
    return option in WORDS and _WORD.fullmatch(value) is not None
