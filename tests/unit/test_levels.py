"""The runner of test levels; a table of small levels takes the place of the real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import levels
import pytest

from support.snippets import ROOT


@pytest.fixture(autouse=True)
def free_of_the_callers_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(levels, "OFFLINE", {})
    monkeypatch.delenv("PYTEST_ARGS", raising=False)


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, *names: str) -> int:
    path = tmp_path / "levels.toml"
    path.write_text(table)
    monkeypatch.setattr(levels, "TABLE", path)
    return levels.main(list(names or ["gate"]))


def of_file(tmp_path: Path, test: str, fields: str = "cpu_seconds = 60") -> str:
    """A gate whose level "a" runs one file of tests."""
    file = tmp_path / "test_small.py"
    file.write_text(f"import pathlib, time, pytest\nHERE = pathlib.Path({str(tmp_path)!r})\n{test}\n")
    arguments = ["-p", "no:cacheprovider", f"--rootdir={tmp_path}", f"--confcutdir={tmp_path}", "-p", "report"]
    environment = f'environment = {{ PYTHONPATH = "{ROOT / "tests"}" }}'
    level = f'python = "{sys.prefix}"\ntests = ["{file}"]\narguments = {arguments}\n{environment}\n{fields}'
    return f'gate = ["a"]\n[levels.a]\n{level}'


def test_a_test_that_fails_is_run_once_and_named_with_the_command_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fails = "def test_b():\n    (HERE / 'tally').open('a').write('x')\n    assert 1 == 2"
    assert run(tmp_path, monkeypatch, of_file(tmp_path, fails)) == 1
    assert (tmp_path / "tally").read_text() == "x"
    summary = capfd.readouterr().out.partition("== summary")[2]
    assert "test_small.py::test_b: assert 1 == 2" in summary
    assert f"repeat: {sys.prefix}/bin/python -m pytest '" in summary


@pytest.mark.parametrize(
    ("test", "fields", "words"),
    [
        ("def test_b(): pytest.skip('no network')", "cpu_seconds = 60", "which no test of the gate may be: no network"),
        ("def test_b(): pass", "cpu_seconds = 60\ncases = 40", "1 cases of 40 (tests/levels.toml)"),
        ("def test_b(): pass", "cpu_seconds = 0.001", "too dear: "),
        ("def test_b(): assert HERE", "cpu_seconds = 60", ""),
    ],
    ids=["skip", "cases", "budget", "well"],
)
def test_a_level_of_the_gate_has_all_its_cases_within_its_budget_and_skips_none(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    test: str,
    fields: str,
    words: str,
) -> None:
    assert run(tmp_path, monkeypatch, of_file(tmp_path, test, fields)) == bool(words)
    assert words in capfd.readouterr().out


PART = """
gate = ["b"]
[levels.b]
command = ["true"]
tests = ["tests/b.py"]
"""


@pytest.mark.parametrize(("days", "code", "words"), [(0, 0, "KNOWN "), (8, 1, "FAILED ")], ids=["known", "expired"])
def test_a_failure_of_a_part_that_is_known_fails_nothing_for_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], days: int, code: int, words: str
) -> None:
    since = date.today() - timedelta(days=days)
    known = tmp_path / "known.toml"
    test = f"{os.path.relpath(tmp_path, ROOT)}/test_small.py::test_b"
    known.write_text(f'[[known]]\nid = "{test}"\nsince = {since}\nwhat = "a race"\n')
    monkeypatch.setattr(levels, "KNOWN_FAILURES", known)
    table = PART + of_file(tmp_path, "def test_b(): assert 1 == 2").partition("\n")[2]
    assert run(tmp_path, monkeypatch, table, "a") == code
    assert f"{words}{test}" in capfd.readouterr().out
    assert run(tmp_path, monkeypatch, table, "known-failures") == code


def test_what_is_left_out_of_a_level_of_the_trainer_is_named_as_its_own_pytest_names_it() -> None:
    """tests/trainer has a pytest.ini: ids that begin at the root of the project would leave out nothing."""
    table = 'gate = []\n[levels.trainer]\ntests = ["tests/trainer"]\nwithout = ["tests/trainer/test_a.py::test_b"]\n'
    words = levels._pytest(levels.Table(table).levels["trainer"], Path("record"), strict=True)
    assert [word for word in words if word.startswith("--deselect=")] == ["--deselect=test_a.py::test_b"]


def test_a_change_is_tested_by_the_gate_and_the_parts_whose_paths_it_touches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(levels, "ROOT", tmp_path)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "new.md").touch()
    monkeypatch.setenv("DTJ_BASE", "HEAD")
    table = levels.Table(levels.TABLE.read_text())
    assert table.named(["for-change"]) == [*table.gate, "docs"]
    monkeypatch.setenv("DTJ_BASE", "nowhere")
    with pytest.raises(ValueError, match="nowhere is no commit of this repository: say which by BASE=COMMIT"):
        table.for_change()


def test_the_table_names_files_that_are_there_and_a_target_for_each_part() -> None:
    table = levels.Table(levels.TABLE.read_text())
    named = {test.partition("::")[0] for level in table.levels.values() for test in (*level.tests, *level.without)}
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
    makefile = (ROOT / "Makefile").read_text()
    assert [name for name in table.parts if f"\ntest-{name}: ##" not in makefile] == []
