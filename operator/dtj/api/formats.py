"""Formats of names in Kubernetes, each with the words by which an API server refuses a text that has another one.

Source: apimachinery, pkg/util/validation/validation.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dtj.api.patterns import matches


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its regular expression, its longest text, and the server's description with examples."""

    pattern: str
    longest: int
    words: str

    def problem(self, text: str) -> str:
        """What is wrong with ``text``, in the server's words; empty if nothing is."""
        if len(text) > self.longest:
            return f"must be no more than {self.longest} characters"
        return "" if matches(self.pattern, text) else self.words


def _words(description: str, examples: tuple[str, ...], pattern: str) -> str:
    shown = ",  or ".join(f"'{example}'" for example in examples)
    return f"{description} (e.g. {shown}, regex used for validation is '{pattern}')"


_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_CONFIG_KEY: Final = "[-._a-zA-Z0-9]+"

DNS_LABEL: Final = Format(
    _LABEL,
    63,
    _words(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        "with an alphanumeric character",
        ("my-name", "123-abc"),
        _LABEL,
    ),
)
DNS_SUBDOMAIN: Final = Format(
    _SUBDOMAIN,
    253,
    _words(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        "and end with an alphanumeric character",
        ("example.com",),
        _SUBDOMAIN,
    ),
)
LABEL_VALUE: Final = Format(
    f"({_QUALIFIED})?",
    63,
    _words(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
        "and end with an alphanumeric character",
        ("MyValue", "my_value", "12345"),
        f"({_QUALIFIED})?",
    ),
)
_NAME_PART: Final = Format(
    _QUALIFIED,
    63,
    _words(
        "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
        "alphanumeric character",
        ("MyName", "my.name", "123-abc"),
        _QUALIFIED,
    ),
)
CONFIG_KEY: Final = Format(
    _CONFIG_KEY,
    253,
    _words(
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        ("key.name", "KEY_NAME", "key-name"),
        _CONFIG_KEY,
    ),
)


def qualified_name_problem(text: str) -> str:
    """What is wrong with the key of a label, an annotation or a resource; empty if nothing is."""
    prefix, slash, name = text.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (problem := DNS_SUBDOMAIN.problem(prefix)):
        return f"prefix part {problem}"
    if not name:
        return "name part must be non-empty"
    problem = _NAME_PART.problem(name)
    return f"name part {problem}" if problem.startswith("must be no more") else problem
