"""Nothing that others wrote acts on the terminal of whoever uses ``dtj``: every command is fed every escape."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue
from rich.table import Table

from bad_tfjobs import tfjob
from builders import manifest
from dtj.api.json import JsonObject
from dtj.api.printable import printable
from dtj.cli.common import options
from dtj.cli.common.console import Console, Text, coloured
from dtj.cli.common.formatting import as_json, as_yaml
from dtj.cli.common.terminal import MAX_LINE, SafeHandler, say
from dtj.cli.completion import answer_kubectl
from dtj.cli.main import cli, main
from support.hostile_server import PAYLOAD, hostile_server, poisoned
from support.kubeconfigs import kubeconfig

LAYOUT = re.compile(r"\x1b\[(?:[0-9;]{0,12}m|2K|1A|\?25[lh])|\r(?=\x1b\[2K)")
"""What rich writes by itself: colours, and how a screen is drawn again. The payload has none of these."""


def acted(output: str) -> str:
    """What of an output would act on a terminal, or pretend to be a line of ours; nothing where it is well."""
    rest = LAYOUT.sub("", output)
    bad = {character for character in rest if character not in "\n\t" and printable(character) != character}
    forged = [line for line in rest.splitlines() if line.startswith("FORGED")]
    return f"{sorted(bad)} {forged}" if bad or forged else ""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output goes to a terminal that is so wide that no line is broken."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "20000")


def run(command: str) -> int:
    """As ``main`` does: the exit code."""
    arguments, sys.argv = sys.argv, ["dtj", *shlex.split(command)]
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = arguments


ON_A_CLUSTER = (
    "list",
    "list -A -o wide",
    "status digits",
    "status going",
    "status digits --watch",
    "wait digits",
    "wait going --for ready --timeout 1s",
    "logs digits --first-error",
    "logs digits --index 0 --role worker -p",
    "doctor",
    "suspend digits",
    "resume digits",
    "scale digits --replicas 2",
    "delete digits",
    "explain digits",
    "tensorboard going --no-browser --timeout 1s",
    "submit {manifest}",
    "run --cluster {manifest}",
    "report digits -o {folder}/report.tar.gz",
)
HERE = (
    "validate {hostile}",
    "explain {hostile}",
    "explain {manifest}",
    "explain {manifest} -o json",
    "explain {manifest} -o yaml",
    "submit {hostile}",
    "convert {tfjob}",
    "convert {hostile}",
    "run {hostile}",
    "run --output-dir {word} {manifest} --trainer-python {word}",
    "init --name {word} {folder}/new",
    "report --run {word}",
    "completion bash",
    "completion {word}",
    "status {word}/x",
    "logs digits --since {word}",
    "{word}",
    "wait --{word}",
)


SILENT = {
    *("logs digits --index 0 --role worker -p", "submit {manifest}", "delete digits"),
    *(
        "report digits -o {folder}/report.tar.gz",
        "explain digits",
        "submit {hostile}",
        "convert {hostile}",
        "init --name {word} {folder}/new",
    ),
    *("completion bash", "wait --{word}"),
    "tensorboard going --no-browser --timeout 1s",  # it waits for a pod whose reasons it does not know
}
"""Commands that show nothing of what others wrote where all goes well, or tell another fault first."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Words and files that somebody else has chosen."""
    good = manifest(roles={"worker": 2})
    words: list[JsonValue] = ["sh", "-c", f"a{PAYLOAD}"]
    container: JsonObject = {"name": "trainer", "image": "i", "command": words, "args": [PAYLOAD]}
    spec = {**good["spec"], "template": {"spec": {"containers": [container]}}}  # type: ignore[dict-item]
    evil: JsonObject = {f"evil{PAYLOAD}": 1, "strategy": f"x{PAYLOAD}"}
    hostile: list[JsonObject] = [
        {**good, "metadata": {"name": f"x{PAYLOAD}"}, "spec": poisoned(good["spec"])},
        {**good, "spec": evil},
    ]
    role: JsonObject = {
        "replicas": 1,
        "template": {"spec": {"containers": [{"name": "tensorflow", "image": f"i{PAYLOAD}"}]}},
    }
    tfjob = {
        "apiVersion": f"kubeflow.org/v1{PAYLOAD}",
        "kind": "TFJob",
        "metadata": {"name": "x", "annotations": {f"a{PAYLOAD}": PAYLOAD}},
        "spec": {"runPolicy": {f"foo{PAYLOAD}": 1}, "tfReplicaSpecs": {"Worker": {**role, f"bar{PAYLOAD}": 1}}},
    }
    (tmp_path / "good.yaml").write_text(json.dumps({**good, "spec": spec}))
    # PyYAML refuses control characters that are not escaped, and JSON escapes them.
    (tmp_path / "hostile.yaml").write_text("---\n".join(f"{json.dumps(body)}\n" for body in hostile))
    (tmp_path / "tfjob.yaml").write_text(json.dumps(tfjob))
    return {
        "manifest": str(tmp_path / "good.yaml"),
        "hostile": str(tmp_path / "hostile.yaml"),
        "tfjob": str(tmp_path / "tfjob.yaml"),
        "folder": str(tmp_path),
        "word": shlex.quote(f"x{PAYLOAD}"),
    }


def test_every_command_is_fed_with_escapes_below() -> None:
    fed = {command.partition(" ")[0] for command in (*ON_A_CLUSTER, *HERE)}
    assert fed >= set(cli.commands)


@pytest.mark.parametrize(("mode", "terminal"), [("answers", "1"), ("answers", "0"), ("refuses", "1"), ("fails", "1")])
@pytest.mark.parametrize("command", ON_A_CLUSTER)
def test_no_word_of_a_cluster_acts_on_a_terminal(
    command: str,
    mode: str,
    terminal: str,
    tmp_path: Path,
    files: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    with hostile_server(mode) as server:
        code = run(f"{command.format(**files)} --kubeconfig {kubeconfig(tmp_path, server)}")
    shown = capfd.readouterr()
    assert code in (0, 1, 2, 3, 4)
    assert (mode == "answers" and command in SILENT) or "abc" in shown.out + shown.err, "else nothing hostile was shown"
    assert acted(shown.out) == ""
    assert acted(shown.err) == ""


@pytest.mark.parametrize("command", HERE)
def test_no_word_of_a_manifest_or_an_argument_acts_on_a_terminal(
    command: str, files: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    code = run(command.format(**files))
    shown = capfd.readouterr()
    assert code in (0, 2)
    assert command in SILENT or "abc" in shown.out + shown.err, "else nothing hostile was shown"
    assert acted(shown.out) == ""
    assert acted(shown.err) == ""


def test_logs_for_a_terminal_are_cleaned_and_those_for_a_program_are_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with hostile_server("answers") as server:
        place = kubeconfig(tmp_path, server)
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        assert run(f"logs digits --kubeconfig {place}") == 0
        seen = capfd.readouterr().out
        monkeypatch.setenv("TTY_COMPATIBLE", "0")
        assert run(f"logs digits --kubeconfig {place}") == 0
        read = capfd.readouterr().out
    assert acted(seen) == ""
    assert "Traceback" in seen
    assert PAYLOAD.partition("\n")[0] in read


def test_names_that_a_shell_would_take_for_more_are_not_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with hostile_server("answers") as server:
        words = ["kubectl_complete-dtj", "status", "--kubeconfig", str(kubeconfig(tmp_path, server)), ""]
        monkeypatch.setattr(sys, "argv", words)
        monkeypatch.setattr(options, "PATIENCE", 60.0)
        answer_kubectl()
    assert capfd.readouterr().out == "digits\n:4\n"


@given(st.text(), st.text())
def test_whatever_is_drawn_has_no_control_characters_but_those_of_the_layout(foreign: str, line: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system="truecolor", highlight=False)
    table = Table()
    table.add_column(foreign)
    table.add_row(Text(foreign), Text.assemble("a", (foreign, "bold")), coloured(line))
    console.print(Text(foreign), coloured(f"\x1b[31m{line}"), table, foreign, markup=False)
    assert isinstance(console.file, io.StringIO)
    assert acted(console.file.getvalue().replace("FORGED", "")) == ""


def test_a_line_of_a_log_keeps_its_colours_and_its_last_version() -> None:
    line = coloured("10%\r\x1b[31m20%\x1b[0m\x1b]8;;http://x\x07\x9b2Jdone\x1b[999999999999m\n")
    assert line.plain == "20%done"
    assert [(span.start, span.end, str(span.style)) for span in line.spans] == [(0, 3, "color(1)")]


def test_words_of_any_length_take_a_bounded_part_of_a_screen(capfd: pytest.CaptureFixture[str]) -> None:
    say("x" * 40_000)
    assert capfd.readouterr().out == f"{'x' * MAX_LINE}… (38000 more characters)\n"
    assert len(Text("x" * 40_000)) == len(Text.assemble("x" * 40_000)) < MAX_LINE + 40
    assert len(Text("x" * 40_000, limit=None)) == 40_000


JSON = st.recursive(
    st.one_of(st.text(), st.sampled_from([PAYLOAD, "a\nb\u202e", "\x7f", "é\tü", "yes", "\ufeff"]), st.integers()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=8,
)


@given(JSON)
def test_what_programs_read_is_printable_and_loses_nothing(value: JsonValue) -> None:
    body: JsonObject = {"a": value}
    for document, parse in (
        (as_json([body]), lambda text: json.loads(text)["items"][0]),
        (as_yaml([body]), yaml.safe_load),
    ):
        assert printable(document) == document
        if "\ud800" not in document:
            assert parse(document) == body


def test_a_note_of_a_conversion_stays_a_comment(files: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(f"convert {files['tfjob']}") in (0, 2)
    documents = [body for body in yaml.safe_load_all(capfd.readouterr().out) if body is not None]
    assert all(set(body) <= {"apiVersion", "kind", "metadata", "spec"} for body in documents)


def test_a_warning_of_a_library_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("x")
    log.addHandler(SafeHandler())
    log.warning("the server says %s", PAYLOAD)
    shown = capfd.readouterr().err
    assert acted(shown) == ""
    assert shown.count("\n") == 1


@pytest.mark.parametrize("encoding", ["latin-1", "cp437"])
def test_a_terminal_that_lacks_a_character_gets_a_question_mark_for_it(encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dtj", "logs", "--help"],
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
    )
    assert b"chief, worker, ps, ?" in done.stdout
    assert done.stderr == b""


def test_a_line_of_a_log_goes_to_a_file_as_it_was_written() -> None:
    line = "Zähler → 日本 \x1b[1mbold\x1b[0m"
    done = subprocess.run(
        [sys.executable, "-c", f"from dtj.cli.common.terminal import copy_line; copy_line({line!r})"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1:replace"},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == f"{line}\n"


MODEL = "Zähler → 日本"
"""Half of it is in Latin-1."""


@pytest.mark.parametrize("command", ["convert {tfjob}", "submit -o yaml {job}"])
def test_what_a_program_reads_is_in_utf_8_whatever_the_language_of_the_terminal(tmp_path: Path, command: str) -> None:
    labelled = {"metadata": {"name": "digits", "annotations": {"model": MODEL}}}
    files = {"tfjob": {**tfjob(), **labelled}, "job": {**manifest(), **labelled}}
    paths = {name: tmp_path / f"{name}.yaml" for name in files}
    for name, body in files.items():
        paths[name].write_text(yaml.safe_dump(body, allow_unicode=True), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "dtj", *command.format(**paths).split()],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert MODEL in done.stdout.decode()
