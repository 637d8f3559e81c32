"""Text of others made safe for terminals: no control character is left, in time that is linear in its length."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtj.api.printable import MARK, one_line, printable

PIECES = (
    *("\x1b", "[", "]", "2J", "0;", "\x07", "\x1b\\", "\x9b", "\x9d", "\x9c", "\x90", "P", "m", "31", "(", "c", "?25l"),
    *"\r\n\t\x00\x7f\x85\u2028\u202e\u2066\u200b\ud800\udc00",
    *("\r\n", "a "),
)
HOSTILE = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3))).map("".join)


def is_obeyed(character: str) -> bool:
    """Whether a terminal does something else with it than to show it."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in (
        *("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"),
    )


@given(HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    assert not any(is_obeyed(character) for character in printable(text) if character not in "\n\t")
    assert not any(is_obeyed(character) for character in one_line(text))


@given(HOSTILE)
def test_what_is_clean_stays_as_it_is(text: str) -> None:
    assert printable(printable(text)) == printable(text)
    assert one_line(one_line(text)) == one_line(text)
    printable(text).encode()


def test_each_character_that_a_terminal_obeys_is_marked() -> None:
    obeyed = [c for c in map(chr, range(sys.maxunicode + 1)) if is_obeyed(c) and c not in "\n\t\r"]
    assert len(obeyed) > 2048 + 60
    assert {printable(f"a{character} ") for character in obeyed} == {f"a{MARK} "}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, with ümläuts, 你好, 🙂 and\ttabs\nand lines", "plain, with ümläuts, 你好, 🙂 and\ttabs\nand lines"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x9b31mred", "red"),
        ("a\x1b]52;c;Y3VybA==\x1b\\b", "ab"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x9d0;title\x9cb", "ab"),
        ("a\x1bPdevice control\x1b\\b", "ab"),
        ("a\x1b(Bb\x1bcc", "abc"),
        ("a\x1b]0;no end\nb", "a0;no end\nb"),
        ("a\x1b\x1b[m[2Jb", f"a{MARK}[2Jb"),
        ("one\r\ntwo\rthree", "one\ntwo\nthree"),
        ("dig\u200bits", f"dig{MARK}its"),
    ],
)
def test_sequences_are_left_out_whole_and_single_characters_are_marked(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_line_has_no_breaks_and_no_tabs() -> None:
    assert one_line("a\nb\r\n\tc\u2028d\x85e\x0bf\x0cg") == "a b c d e f g"


def test_a_line_that_is_too_long_says_how_much_is_left_out() -> None:
    assert one_line("a" * 12, limit=10) == "aaaaaaaaaa… (2 more characters)"
    assert one_line("a" * 10, limit=10) == "a" * 10


@pytest.mark.parametrize(
    "begin", ["\x1b]", "\x9d", "\x1b[", "\x9b", "\x1b", "\x1b(", "\x1b]0;a", "\x9b1 ", "\r", "\u202e"]
)
def test_a_text_of_beginnings_alone_is_cleaned_at_once(begin: str) -> None:
    """Where each beginning looked for its end up to the end of the text, this would take hours."""
    assert "\x1b" not in printable(begin * 500_000)
