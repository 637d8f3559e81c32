"""Secrets that show by their shape in any text: keys of known makers, values after telling names, users in URLs. Pure.

A text may hold anything, such as a megabyte without a space: every step takes time that is linear in its length. No
pattern can look for its end from more than one place, hence the possessive repetitions and the looks behind.
"""

from __future__ import annotations

import re
from typing import Final

REDACTED: Final = "(redacted)"

_KNOWN: Final = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
      eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{4,}+(?:\.[A-Za-z0-9_-]*+)?     # JSON web tokens
    | (?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}                                 # AWS
    | gh[pousr]_[A-Za-z0-9]{16,}+ | github_pat_\w{16,}+ | glpat-[\w-]{16,}+
    | hf_[A-Za-z0-9]{16,}+ | sk-[\w-]{8,}+ | sk_live_\w{8,}+ | rk_live_\w{8,}+
    | xox[abeoprs]-[\w-]{8,}+ | AIza[\w-]{20,}+ | ya29\.[\w-]{8,}+ | GOCSPX-[\w-]{8,}+
    | npm_[A-Za-z0-9]{16,}+ | pypi-[\w-]{16,}+ | dckr_pat_[\w-]{8,}+ | dop_v1_\w{16,}+ | SG\.[\w-]{8,}+\.[\w-]{8,}+
    )""",
    re.VERBOSE,
)
"""How well-known makers begin their keys."""

_WEBHOOK: Final = re.compile(r"(hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/[^\s\"']++")
_PEM: Final = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}?PRIVATE KEY-----")
_PEM_BODY: Final = re.compile(r"[A-Za-z0-9+/=\s\\]*+")
_WORD: Final = re.compile(r"[^\s'\"<>]++")
"""A part of a text in which a URL would be."""

_TELLING_LINE: Final = re.compile(
    r"token|secret|pass|pwd|key|auth|cred|cookie|dsn|conn|sig|webhook|pem|cert|jwt", re.IGNORECASE
)
"""A line without any of these has no telling name."""

_NAME: Final = re.compile(r"(?<![\w.-])([\w.-]++)(\\{0,3}[\"']?[ \t]{0,2}[=:][ \t]{0,2}|[ \t]{1,3}(?=[^\s]))")
"""A name, and what stands between it and its value; a blank does after an option alone."""

_QUOTE: Final = re.compile(r"(\\{0,3})([\"'])")
_IN_QUOTES: Final = {
    ('"', False): re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL),
    ("'", False): re.compile(r"(?:[^'\\]|\\.)*+", re.DOTALL),
    ('"', True): re.compile(r'[^"\\]*+'),
    ("'", True): re.compile(r"[^'\\]*+"),
}
"""By the quote, and whether it is itself escaped, as in JSON within JSON."""

_PLAIN: Final = re.compile(r"(?:(?:bearer|basic|digest|token|negotiate)[ \t]{1,3})?[^\s\"'\\]++", re.IGNORECASE)
_HEADER: Final = re.compile(r"[^\r\n\"'\\]++")
_SHORT_OPTION: Final = re.compile(r"(?<![^\s\"'])(-p|-u|--user)([ =]{1,3})([^\s\"']++)")

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
_HEADERS: Final = frozenset({"authorization", "cookie"})
"""Their values have blanks."""


def without_shapes(text: str, *, command: bool = False) -> str:
    """``text`` with what looks like a secret left out. In a ``command``, the options -p and -u take one, too."""
    text = _without_private_keys(text)
    text = _KNOWN.sub(REDACTED, text)
    text = _WEBHOOK.sub(rf"\1/{REDACTED}", text)
    if "://" in text and "@" in text:
        text = _WORD.sub(lambda word: _without_user(word[0]), text)
    if command:
        text = _SHORT_OPTION.sub(_without_option, text)
    return "".join(map(_without_named, text.splitlines(keepends=True)))


def is_telling(name: str, *, in_query: bool = False) -> bool:
    """Whether the words of this name mark its value as a secret; ``in_query`` if it is a parameter of a URL's query."""
    parts = [part.lower() for part in _PARTS.findall(name[-200:])]
    if not parts or parts[-1] in ("error", "exception"):  # KeyError: 'loss'
        return False
    if not _ALONE.isdisjoint(parts) or name.lower().endswith(_ENDS):
        return True
    compound = len(parts) > 1 or in_query or name.startswith("-")
    return compound and not _TOGETHER.isdisjoint(parts)


def _without_private_keys(text: str) -> str:
    """A key that has both ends is left out with all between them; of one that was cut, what looks like its body."""
    if "PRIVATE KEY-----" not in text:
        return text
    marks = [*_PEM.finditer(text)]
    kept, place = [], 0
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        if mark[1] == "END" or mark.start() < place:
            continue
        whole = after is not None and after[1] == "END"
        body = _PEM_BODY.match(text, mark.end())
        assert body is not None, "it may be empty"
        kept += [text[place : mark.start()], REDACTED]
        place = after.end() if whole and after is not None else body.end()
    return "".join([*kept, text[place:]])


def _without_user(word: str) -> str:
    """``postgres://user:password@host`` without user and password, which may hold a slash."""
    scheme, found, rest = word.partition("://")
    user, at, host = rest.rpartition("@")
    if not found or not at or ("/" in user and ":" not in user):
        return word
    return f"{scheme}://{REDACTED}@{host}"


def _without_option(option: re.Match[str]) -> str:
    if option[1] != "-p" and ":" not in option[3]:
        return option[0]  # a user without a password
    return f"{option[1]}{option[2]}{REDACTED}"


def _without_named(line: str) -> str:
    """The line without the values of telling names: ``token=…``, ``--token …``, ``"token": "…"``, ``X-Token: …``."""
    if _TELLING_LINE.search(line) is None:
        return line
    kept, place, begin = [], 0, 0
    while (name := _NAME.search(line, begin)) is not None:
        begin = name.end()
        in_query = name.start() > 0 and line[name.start() - 1] in "?&"
        if (name[2].isspace() and not name[1].startswith("-")) or not is_telling(name[1], in_query=in_query):
            continue
        start, end = _value(line, begin, header=not _HEADERS.isdisjoint(name[1].lower().split("-")))
        if end > start and not line.startswith(REDACTED, start):
            kept += [line[place:start], REDACTED]
            place = begin = end
    return "".join([*kept, line[place:]])


def _value(line: str, begin: int, *, header: bool) -> tuple[int, int]:
    """Where the value that begins there stands."""
    quote = _QUOTE.match(line, begin)
    if quote is not None:
        found = _IN_QUOTES[quote[2], bool(quote[1])].match(line, quote.end())
    else:
        found = (_HEADER if header else _PLAIN).match(line, begin)
    return found.span() if found is not None else (begin, begin)
