"""Runs levels of tests, those that wait next to those that compute; says what passed and where the time went.

`scripts/test.sh LEVEL...` calls it. Two levels run side by side: while the end-to-end tests wait for pods, TensorFlow
computes. If several levels run, each line of output begins with its level.
No test is run a second time until it passes.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NO_TESTS = 5
"""pytest's exit status where no test was selected."""
WORTH_A_LINE_SECONDS = 5.0
"""What took less to make than this is not worth a line of the summary."""
RESULT_WORDS = ("passed", "failed", "skipped", "error", "no tests ran")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command of a level: pytest, or one that makes what the level needs."""

    title: str
    command: tuple[str, ...]
    tests: bool = True
    alone: bool = False
    """Whether it makes what another step makes too, so that the two must not run at the same time."""


def _pytest(title: str, environment: str, *arguments: str) -> Step:
    extra = shlex.split(os.environ.get("PYTEST_ARGS", ""))
    return Step(title=title, command=(f"{environment}/bin/python", "-m", "pytest", *arguments, *extra))


def _make(title: str, *targets: str, tests: bool = False) -> Step:
    return Step(title=title, command=("make", "--no-print-directory", *targets), tests=tests, alone=not tests)


PROGRAMS = Step(title="programs", command=("make", "--no-print-directory", "programs"), tests=False)
"""Kubernetes and etcd, built with a low priority: the level in the other lane goes first. The testbed has its own lock,
so the environments are made meanwhile."""


LEVELS: dict[str, tuple[Step, ...]] = {
    "lint": (_make("lint", "lint", tests=True),),
    "unit": (_pytest("unit", ".venv", "tests/unit", "tests/property", "-m", "unit or property", "-q", "-n", "auto"),),
    "browser": (_pytest("browser", ".venv", "tests/browser", "-m", "browser", "-q"),),
    "trainer": (
        _make("trainer", "trainer", "tfjs"),
        # By file: what the tests of a file share, such as the processes of test_parity.py, is made once.
        _pytest("trainer", ".venv-trainer", "tests/trainer", "-m", "trainer", "-q", "-n", "3", "--dist", "loadfile"),
    ),
    "local": (
        _make("local", "trainer"),
        _pytest("local", ".venv", "tests/local", "-m", "trainer", "-q"),
    ),
    "api": (
        PROGRAMS,
        _pytest(
            "api", ".venv", "tests/api", "-m", "api", "-q", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"
        ),
    ),
    # What it needs of other projects is not built here: a test whose component is missing is left out, by name.
    "neighbours": (
        PROGRAMS,
        _pytest("neighbours", ".venv", "tests/neighbours", "-m", "neighbours", "-q", "-n", "2", "--dist", "loadscope"),
    ),
    "campaigns": (PROGRAMS, _pytest("campaigns", ".venv", "tests/campaigns", "-m", "campaign", "-q", "-n", "2")),
    # One at a time: two jobs that train at the same time, next to another level, train at a tenth of the speed.
    "e2e": (PROGRAMS, _pytest("e2e", ".venv", "tests/e2e", "-m", "e2e", "-v")),
}

ORDER = ("e2e", "lint", "unit", "neighbours", "api", "campaigns", "browser", "trainer", "local")
"""The end-to-end tests first: on a machine without the programs, their build runs next to lint and unit. Then next to
levels that wait, too: pods that train next to the trainer's own tests starve."""

SIDE_BY_SIDE = 2
"""With three, two pods that train took minutes for the steps of seconds: collectives wait for each other."""

_MAKING = threading.Lock()
"""Two levels may need the same environment; one of them makes it."""


@dataclass
class Outcome:
    """What came of one step that runs tests."""

    title: str
    passed: bool
    result: str
    tests: bool = True
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


class Lane(threading.Thread):
    """Runs one level after another, as long as there are any."""

    def __init__(self, levels: deque[str], *, alone: bool, printing: threading.Lock) -> None:
        """Takes from ``levels``, as other lanes do. ``alone`` is whether there is but one level in all."""
        super().__init__()
        self._levels = levels
        self._alone = alone
        self._printing = printing
        self._process: subprocess.Popen[str] | None = None
        self._stopped = False
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        """All levels. If what a level needs cannot be made, the level has failed, and the next one follows."""
        while not self._stopped:
            try:
                level = self._levels.popleft()
            except IndexError:
                return
            for step in LEVELS[level]:
                if self._stopped:
                    return
                self.outcomes.append(self._make_or_test(step))
                if not step.tests and not self.outcomes[-1].passed:
                    break

    def stop(self) -> None:
        """End the command that runs and begin no other."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()

    def _make_or_test(self, step: Step) -> Outcome:
        if not step.alone:
            return self._run(step)
        with _MAKING:
            return self._run(step)

    def _run(self, step: Step) -> Outcome:
        if step.tests:
            self._print(f"\n== {step.title}" if self._alone else f"== {step.title} begins")
        lines: list[str] = []
        with tempfile.NamedTemporaryFile(prefix="dtj-level-") as report:
            measured = [sys.executable, "scripts/measured.py", report.name, *step.command]
            with subprocess.Popen(
                measured, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
            ) as process:
                self._process = process
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line.rstrip("\n"))
                    self._print(lines[-1] if self._alone else f"{step.title:<10}| {lines[-1]}")
            wall, cpu = map(float, Path(report.name).read_text().split() or (0, 0))
        code = process.returncode
        filtered = code == NO_TESTS and os.environ.get("PYTEST_ARGS", "") != ""  # a filter may leave a level empty
        return Outcome(
            title=step.title,
            passed=code == 0 or filtered,
            result=_result(lines) if code >= 0 else f"ended by signal {-code}",
            wall_seconds=wall,
            cpu_seconds=cpu,
            tests=step.tests,
            failures=[line for line in lines if line.startswith(("FAILED ", "ERROR "))],
            left_out=[line.removeprefix("SKIPPED ") for line in lines if line.startswith("SKIPPED ")],
        )

    def _print(self, line: str) -> None:
        with self._printing:
            print(line, flush=True)


def _result(lines: list[str]) -> str:
    """What pytest says in its last line of numbers."""
    results = [line.strip("= ") for line in lines if any(word in line for word in RESULT_WORDS)]
    return results[-1] if results else (lines[-1] if lines else "")


def main(levels: list[str]) -> int:
    """Run levels; return 1 where one has failed, 2 where there is none of a name."""
    unknown = [level for level in levels if level not in LEVELS]
    if unknown:
        print(f"unknown level: {' '.join(unknown)} ({', '.join(LEVELS)})", file=sys.stderr)
        return 2
    os.environ.setdefault("DTJ_TRAINER_PYTHON", str(ROOT / ".venv-trainer/bin/python"))
    start = time.monotonic()
    printing = threading.Lock()
    chosen = deque(sorted(set(levels), key=ORDER.index))
    lanes = [Lane(chosen, alone=len(chosen) == 1, printing=printing) for _ in range(min(SIDE_BY_SIDE, len(chosen)))]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for lane in lanes:
        lane.start()
    try:
        for lane in lanes:
            lane.join()
    except KeyboardInterrupt:
        for lane in lanes:
            lane.stop()
        for lane in lanes:
            lane.join()
        return 130
    outcomes = [outcome for lane in lanes for outcome in lane.outcomes]
    _summarize(outcomes, wall_seconds=time.monotonic() - start)
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _summarize(outcomes: list[Outcome], *, wall_seconds: float) -> None:
    print("\n== summary")
    print(f"{'level':<10} {'':<6} {'wall':>6} {'CPU':>6}")
    for outcome in outcomes:
        if not outcome.tests and outcome.passed and outcome.wall_seconds < WORTH_A_LINE_SECONDS:
            continue
        verdict = "ok" if outcome.passed else "FAILED"
        wall, cpu = f"{outcome.wall_seconds:.0f}s", f"{outcome.cpu_seconds:.0f}s"
        print(f"{outcome.title:<10} {verdict:<6} {wall:>6} {cpu:>6}  {outcome.result}")
        for line in outcome.failures:
            print(f"         {line}")
        for line in outcome.left_out:
            print(f"         left out: {line}")
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    cpu_seconds = sum(outcome.cpu_seconds for outcome in outcomes)
    busy = cpu_seconds / (wall_seconds * cores)
    print(
        f"{'all':<10} {'':<6} {wall_seconds:>5.0f}s {cpu_seconds:>5.0f}s  {busy:.0%} of {cores} processors were in use"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
