"""Other people's text in a document of ours. Pure."""

from __future__ import annotations

from html import escape

from dtj.api.printable import printable


def safe(content: str) -> str:
    """Text that stands for itself in HTML, in a text or in an attribute, whatever it holds."""
    return escape(printable(content))
