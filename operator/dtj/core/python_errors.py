"""The line that names a Python error, from the last words of a pod. Pure.

The last words are what the trainer left, which begins with that line, or the end of a log with a traceback in it.
"""

from __future__ import annotations

import re
from typing import Final

_LOCATED: Final = re.compile(r"^\S+\.py:\d+: [A-Za-z_][\w.]*(: |$)")
"""What ``dtj_trainer.process.ending`` writes: ``train.py:12: ValueError: ...``."""

_FRAME: Final = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ERROR: Final = re.compile(r"^[A-Za-z_][\w.]*(: |$)")
_LIBRARY: Final = re.compile(r"^<|/(site|dist)-packages/|/lib/python\d|/__autograph_generated_file")
"""Frames that are not the user's."""


def error_line(words: str) -> str:
    """``train.py:12: ValueError: shapes do not match``; the last line if no Python error is in the words.

    The place is the innermost frame outside libraries. It is left out if the words have none.
    """
    lines = words.splitlines()
    if not lines or _LOCATED.match(lines[0]):
        return lines[0] if lines else ""
    last = max((number for number, line in enumerate(lines) if _FRAME.match(line)), default=None)
    if last is None:
        return lines[-1]
    after = (line for line in lines[last + 1 :] if line and not line.startswith(" "))
    error = next(after, "")
    if not _ERROR.match(error):
        return lines[-1]
    return f"{_place(lines[: last + 1])}{error}"


def _place(lines: list[str]) -> str:
    frames = [found for found in map(_FRAME.match, lines) if found and not _LIBRARY.search(found["file"])]
    return f"{frames[-1]['file'].rpartition('/')[2]}:{frames[-1]['line']}: " if frames else ""
