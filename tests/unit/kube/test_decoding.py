"""Where bytes of others become typed values."""

from __future__ import annotations

import pytest

from dtj.kube.decoding import DEEPEST, Once, Unreadable, decode_object, without_depths


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "raw",
    [b"", b"null", b"[]", b"no", b'{"a":', b'{"a":"\xff"}', b'{"a":"\\ud800"}', b'{"a":' + b"9" * 5000 + b"}", b"["],
    ids=lambda raw: raw[:12].decode(errors="replace"),
)
def test_what_is_no_object_is_unreadable_and_nothing_else(raw: bytes) -> None:
    with pytest.raises(Unreadable):
        decode_object(raw)


@pytest.mark.parametrize("levels", [DEEPEST - 1, DEEPEST, 1_000, 100_000])
def test_what_lies_too_deep_is_read_as_null_and_the_rest_as_it_is(levels: int) -> None:
    raw = f'{{"before": "[[{{", "a": {deep(levels)}, "after": [1, {{"b": "\\\\\\""}}]}}'.encode()
    read = decode_object(raw)
    assert (read["before"], read["after"]) == ("[[{", [1, {"b": '\\"'}])
    depth = 0
    inner: object = read["a"]
    while isinstance(inner, list) and inner:
        inner, depth = inner[0], depth + 1
    assert depth <= 990


def test_what_is_not_too_deep_is_left_as_it_is() -> None:
    raw = b'{"a": [[1], {"b": "]]]"}], "c": {}}'
    assert without_depths(raw, 3) == raw
    assert without_depths(raw, 2) == b'{"a": [null, null], "c": {}}'
    assert without_depths(raw, 1) == b'{"a": null, "c": null}'


def test_each_thing_is_new_once_and_a_thousand_are_remembered() -> None:
    once = Once()
    assert [once.is_new("a"), once.is_new("a")] == [True, False]
    for number in range(1000):
        once.is_new(number)
    assert once.is_new("a")
