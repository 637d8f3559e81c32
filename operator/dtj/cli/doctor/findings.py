"""What comes of the checks of ``dtj doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "not checked"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check, in a sentence, and what to do where it is not well."""

    verdict: Verdict
    title: str
    words: str
    remedy: str = ""
