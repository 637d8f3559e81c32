"""Reading manifests: YAML as Kubernetes reads it, and one line for whatever cannot be read."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dtj.client.manifest_files import UnreadableFile, read


def body_of(tmp_path: Path, text: str) -> object:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    (document,) = read(str(file))
    return document.body


def refusal(tmp_path: Path, text: str | bytes) -> str:
    """The one line with which a file with this content is refused, without its path."""
    file = tmp_path / "a.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UnreadableFile) as refused:
        read(str(file))
    line = str(refused.value)
    assert "\n" not in line
    assert line.startswith(f"{file}: ")
    return line.removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        pytest.param("a: ~\nb:\nc: null", {"a": None, "b": None, "c": None}, id="nothing is null"),
        pytest.param("a: '5'", {"a": "5"}, id="a quoted number is text"),
        pytest.param("1: a\ntrue: b", {"1": "a", "true": "b"}, id="keys are text"),
        pytest.param("a: &x {k: 1}\nb: *x", {"a": {"k": 1}, "b": {"k": 1}}, id="anchors"),
        pytest.param(
            "a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}", {"a": {"k": 1, "l": 2}, "b": {"k": 3, "l": 2}}, id="merge"
        ),
    ],
)
def test_values_are_read_as_kubernetes_reads_them(tmp_path: Path, text: str, wanted: object) -> None:
    """tests/api compares numbers, words and times with kubectl."""
    assert body_of(tmp_path, text) == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "empty: there is no document in it", id="nothing"),
        pytest.param("---\n# a comment\n---\n", "empty: there is no document in it", id="only separators"),
        pytest.param("a:\n\tb: 1\n", "line 2, column 1: not YAML: a tab where only spaces may indent", id="tab"),
        pytest.param(
            "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n",
            'line 5, column 3: b: duplicate key "c": it is already in line 3',
            id="duplicate key",
        ),
        pytest.param("a: [1\nb: 2\n", "line 2, column 2: not YAML: while parsing a flow sequence, ", id="bracket"),
        pytest.param("a: &x\n- *x\n", "line 1, column 4: not YAML: found unconstructable recursive node", id="loop"),
        pytest.param(
            "a: !!python/name:os.system\n",
            "line 1, column 4: a: the tag !!python/name:os.system has no meaning in a manifest: remove it",
            id="tag",
        ),
        pytest.param("a: !!set {b}", "line 1, column 4: a: the tag !!set has no meaning in a manifest", id="set"),
        pytest.param("a: !!int b", "line 1, column 4: a: the tag !!int does not fit the value: remove it", id="int"),
        pytest.param("a: !!map [b]", "line 1, column 4: a: the tag !!map does not fit the value", id="no map"),
        pytest.param("a: !!seq {b: 1}", "line 1, column 4: a: the tag !!seq does not fit the value", id="no list"),
        pytest.param(f"a: {{b: [{'9' * 5000}]}}", "line 1, column 9: a.b[0]: the tag !!int does not fit", id="digits"),
        pytest.param("a: 1e999", "line 1, column 4: a: JSON has no 1e999: put the value in quotes", id="infinity"),
        pytest.param('a: "\\ud800"', "line 1, column 4: a: half a character (a lone surrogate)", id="surrogate"),
        pytest.param("? [a]\n: 1\n", "line 1, column 3: a key must be a word, not a list or a mapping", id="key"),
        pytest.param("[" * 3000, "not a manifest: nested too deep", id="deep"),
        pytest.param("- a\n", "document 1: not a manifest: it is a list, not fields with values", id="list"),
        pytest.param("a: 1\n---\nhello\n", "document 2: not a manifest: it is a single value, not", id="word"),
        *(
            pytest.param(f"a: {{x: {value}}}", f"line 1, column 8: a.x: JSON has no {value}: put the value in quotes")
            for value in (".inf", "-.Inf", ".nan")
        ),
        pytest.param(b"a: \xff\xfe", "not YAML: byte 3 is not UTF-8 text", id="no text"),
        pytest.param("a: '\x01'", "not YAML: unacceptable character #x0001", id="control character"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_says_where_and_why(
    tmp_path: Path, text: str | bytes, message: str
) -> None:
    assert refusal(tmp_path, text).startswith(message)


@pytest.mark.parametrize("text", ["2.0", "1e3", "5.", "08", "-0.0", "1_0.0"])
def test_a_whole_number_is_an_integer_however_it_is_written(tmp_path: Path, text: str) -> None:
    body = body_of(tmp_path, f"a: {text}")
    assert isinstance(body, dict)
    assert type(body["a"]) is int


def test_parts_that_are_repeated_as_often_as_a_manifest_needs_are_read(tmp_path: Path) -> None:
    roles = "".join(f"r{number}: {{<<: *pod, name: r{number}}}\n" for number in range(200))
    body = body_of(tmp_path, "pod: &pod {args: [" + "word, " * 200 + "end]}\n" + roles)
    assert isinstance(body, dict)
    assert len(body["r199"]["args"]) == 201


def test_files_that_are_no_files_are_named(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none.yaml", "file not found"), (tmp_path, "is a directory; name the")):
        with pytest.raises(UnreadableFile, match=message):
            read(str(path))


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read(str(file))[0].body == {"a": 1}


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("---\n---\nmetadata: {name: x}\n---\nmetadata: {}\n", [": document 2 (x)", ": document 3"]),
        ("metadata: {name: x}", [": x"]),
    ],
    ids=["several", "one"],
)
def test_documents_keep_their_numbers_and_names(tmp_path: Path, text: str, titles: list[str]) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text)
    assert [document.title.removeprefix(str(file)) for document in read(str(file))] == titles


def test_a_dash_is_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"metadata: {name: x}")))
    (document,) = read("-")
    assert document.title == "standard input: x"
    assert document.path is None
