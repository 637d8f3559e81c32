"""Text that others wrote, made safe to print: on a terminal, on a page, in a status that kubectl shows. Pure.

A program chooses its last words, a manifest the names of its fields, a server its error messages. A terminal that gets
them as they are obeys what stands in them: it writes the clipboard (OSC 52), moves the cursor and writes over what
stands above, takes a new title. What is shown of others' text goes through this module;
:mod:`dtj.cli.common.terminal` sees to it for all that the command line prints.
"""

from __future__ import annotations

import re
from typing import Final

MARK: Final = "\ufffd"
"""Replaces a character that must not be printed: a name with one must not look like the name without it."""

_SEQUENCE: Final = re.compile(
    r"""
    (?: \x1b\[ | \x9b ) [0-?]* [\ -/]* [@-~]                                  # CSI: colours, cursor, erasing
    | (?: \x1b[]PX^_] | [\x90\x98\x9d-\x9f] )                                 # OSC, DCS, SOS, PM, APC: title, clipboard
      [^\x00-\x1f\x7f-\x9f]* (?: \x07 | \x1b\\ | \x9c )
    | \x1b [\ -/]* [0-~]                                                      # all others, such as ESC c: reset
    """,
    re.VERBOSE,
)
"""Sequences that programs write for terminals (ECMA-48, section 5). A string without an end loses its beginning alone.
No repetition takes a character that begins a sequence, so that the time is linear in the length of the text."""

_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but for tab and line feed, DEL, C1
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # unseen, and those that turn the
    "\U000e0000-\U000e007f"  # direction of writing around; tags, which are unseen copies of ASCII
    "\ud800-\udfff]"  # halves of characters, which no output can encode
)
_BREAKS: Final = re.compile("[\t\n\x0b\x0c\r\x85\u2028\u2029]+")


def printable(text: str) -> str:
    """``text`` without what a terminal obeys or does not show; line breaks and tabs stay.

    Of the control characters nothing but line feed and tab is left, and all that is left can be written as UTF-8.
    """
    if _UNPRINTABLE.search(text) is None:
        return text
    return _UNPRINTABLE.sub(MARK, _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str, limit: int | None = None) -> str:
    """The same on one line: each run of line breaks and tabs is a space.

    With ``limit``, a longer text is cut to this number of characters, and a note gives the number left out.
    """
    line = printable(_BREAKS.sub(" ", _SEQUENCE.sub("", text)))
    if limit is None or len(line) <= limit:
        return line
    left_out = f"… ({len(line) - limit} more characters)"
    return line[:limit] + left_out
