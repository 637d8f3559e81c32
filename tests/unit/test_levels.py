"""The runner of test levels and what it measures; real commands take the place of pytest."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.snippets import ROOT
from support.waiting import eventually

pytestmark = pytest.mark.unit

RUNNER = """
import sys
sys.path.insert(0, {scripts!r})
import levels
levels.LEVELS = {{
    name: tuple(
        levels.Step(
            title=title, command=(sys.executable, "-c", code), tests="make" not in title, alone="alone" in title
        )
        for title, code in steps
    )
    for name, steps in {steps!r}.items()
}}
levels.ORDER = tuple(levels.LEVELS)
levels.SIDE_BY_SIDE = {lanes}
sys.exit(levels.main(list(levels.LEVELS)))
"""

Steps = dict[str, list[tuple[str, str]]]


def runner(steps: Steps, lanes: int) -> list[str]:
    """The command that runs these levels, this many side by side; each step is a title and Python to run."""
    code = textwrap.dedent(RUNNER).format(scripts=str(ROOT / "scripts"), steps=steps, lanes=lanes)
    return [sys.executable, "-c", code]


def run(steps: Steps, lanes: int = 1) -> subprocess.CompletedProcess[str]:
    return subprocess.run(runner(steps, lanes), capture_output=True, text=True, check=False)


def test_a_test_that_fails_is_run_once_and_named_in_the_summary(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    fails = f"open({str(tally)!r}, 'a').write('x'); print('FAILED test_a.py::test_b'); print('1 failed'); exit(1)"
    done = run({"a": [("a", fails)]}, 1)
    assert done.returncode == 1
    assert tally.read_text() == "x"
    summary = done.stdout.partition("== summary")[2]
    assert "FAILED test_a.py::test_b" in summary
    assert "1 failed" in summary


def test_levels_after_one_that_failed_and_those_next_to_it_still_run() -> None:
    steps = {"a": [("a", "exit(1)")], "b": [("b", "print('2 passed')")], "c": [("c", "print('3 passed')")]}
    done = run(steps, 2)
    assert done.returncode == 1
    assert "b         | 2 passed" in done.stdout
    assert "c         | 3 passed" in done.stdout


def test_levels_run_side_by_side(tmp_path: Path) -> None:
    def meets(mine: str, other: str) -> str:
        return f"""
import pathlib, time
pathlib.Path({str(tmp_path)!r}, {mine!r}).touch()
while not pathlib.Path({str(tmp_path)!r}, {other!r}).exists(): time.sleep(0.01)
"""

    done = run({"a": [("a", meets("a", "b"))], "b": [("b", meets("b", "a"))]}, 2)
    assert done.returncode == 0


MEETS = """
import pathlib, time
pathlib.Path({folder!r}, {mine!r}).touch()
until = time.monotonic() + {seconds}
while not pathlib.Path({folder!r}, {other!r}).exists():
    if time.monotonic() > until: exit(1)
    time.sleep(0.01)
"""


@pytest.mark.parametrize(("title", "seconds", "together"), [("make", 60, True), ("make alone", 0.5, False)])
def test_only_steps_that_make_the_same_wait_for_each_other(
    tmp_path: Path, title: str, seconds: float, together: bool
) -> None:
    def meets(mine: str, other: str) -> str:
        return MEETS.format(folder=str(tmp_path), mine=mine, other=other, seconds=seconds)

    done = run({"a": [(title, meets("a", "b"))], "b": [(title, meets("b", "a"))]}, 2)
    assert (done.returncode == 0) is together


def test_a_level_whose_needs_cannot_be_made_has_failed_and_is_not_run() -> None:
    done = run({"a": [("make a", "print('no network'); exit(2)"), ("a", "print('1 passed')")]}, 1)
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "1 passed" not in done.stdout


def test_what_was_left_out_is_in_the_summary() -> None:
    done = run({"a": [("a", "print('SKIPPED [2] a.py: no root'); print('1 passed, 2 skipped')")]}, 1)
    assert done.returncode == 0
    assert "left out: [2] a.py: no root" in done.stdout


def test_ctrl_c_ends_what_runs_and_begins_nothing_else(tmp_path: Path) -> None:
    waits = f"import pathlib, time; pathlib.Path({str(tmp_path / 'runs')!r}).touch(); time.sleep(600)"
    touches = f"open({str(tmp_path / 'next')!r}, 'w')"
    command = runner({"a": [("a", waits)], "b": [("b", touches)]}, 1)
    with subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL) as process:

        def begun() -> None:
            assert (tmp_path / "runs").exists()

        eventually(begun)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait() == 130
    assert not (tmp_path / "next").exists()


def test_the_cpu_time_of_processes_that_lost_their_parent_counts(tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux hands such processes on")
    orphan = tmp_path / "orphan"
    computes = "import time\nwhile time.process_time() < 1: pass"
    parent = f"""
import os, pathlib, subprocess, sys, time
orphan = pathlib.Path({str(orphan)!r})
if os.fork() == 0:
    orphan.write_text(str(subprocess.Popen([sys.executable, "-c", {computes!r}]).pid))
    os._exit(0)
os.wait()
while os.path.exists("/proc/" + orphan.read_text()): time.sleep(0.01)
"""
    report = tmp_path / "report"
    subprocess.run(
        [sys.executable, str(ROOT / "scripts/measured.py"), report, sys.executable, "-c", parent], check=True
    )
    wall, cpu = map(float, report.read_text().split())
    assert wall > 0
    assert cpu > 0.9  # the kernel counts in hundredths of a second


def test_a_command_that_ends_by_a_signal_has_failed(tmp_path: Path) -> None:
    dies = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    command = [sys.executable, str(ROOT / "scripts/measured.py"), str(tmp_path / "report"), sys.executable, "-c", dies]
    assert subprocess.run(command, check=False).returncode == 137
