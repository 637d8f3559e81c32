"""Regular expressions as the API server reads them."""

from __future__ import annotations

import re


def matches(pattern: str, value: object) -> bool:
    """Whether the whole text matches; ``pattern`` begins with ``^`` and ends with ``$``.

    To Python ``$`` is also the place before a last line break, to RE2 it is the end of the text.
    """
    return re.fullmatch(pattern.removeprefix("^").removesuffix("$"), str(value)) is not None
