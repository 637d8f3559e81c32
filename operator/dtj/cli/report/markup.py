"""Other people's text in a document of ours. Pure."""

from __future__ import annotations

import re
from html import escape
from typing import Final

_TERMINAL: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""Colours, cursor moves and titles that programs write for terminals."""

_UNSEEN: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, such as those that turn the direction of writing around, and halves of characters."""


def safe(content: str) -> str:
    """Text that stands for itself in HTML, in a text or in an attribute, whatever it holds."""
    return escape(_UNSEEN.sub("\ufffd", _TERMINAL.sub("", content)))
