"""Runs levels of tests one after the other, and says what passed and where the time went.

`scripts/test.sh NAME...` calls it; `tests/levels.toml` has the levels, the gate and the parts. A name is a level, a
part, `gate`, `all`, or `for-change`, which takes the parts whose paths differ from a commit (DTJ_BASE, else
origin/main).
No two levels run at the same time, and no test is run a second time until it passes.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from dataclasses import dataclass, field
from datetime import date, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
TABLE: Final = ROOT / "tests" / "levels.toml"
OF_THE_TRAINER: Final = "tests/trainer/"
"""It has a pytest.ini of its own, so pytest's ids of its tests begin there."""
KNOWN_FAILURES: Final = ROOT / "tests" / "known_failures.toml"

FAILS_OVER: Final = 1.5
WARNS_OVER: Final = 1.2
"""Times its budget of CPU that a level of the gate may take."""
SECONDS_OF_ONE_TEST: Final = 40.0
"""CPU that one test of the gate may take, without its fixtures. Two processes that import TensorFlow, are killed and
come back take 20."""
CASES_THAT_MAY_GO: Final = 0.03
"""Part of the cases of a level that may go before the table has to follow: nothing is lost without a word."""
FREE_BYTES: Final = 3 * 10**9
TESTS_FAILED: Final = 1
"""pytest's exit status where tests have failed, and nothing else has."""
DAYS_KNOWN: Final = 7
"""For which a failure of a part may be known. Then it fails the part, and the release."""

OFFLINE: Final = {"PIP_NO_INDEX": "1", "GOPROXY": "off", "npm_config_offline": "true"}
"""A test installs nothing."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One entry of the table."""

    name: str
    command: tuple[str, ...] = ()
    python: str = ""
    """The environment whose pytest runs ``tests``, where there is no ``command``."""
    tests: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    """Beginnings of ids of tests that are left out."""
    arguments: tuple[str, ...] = ()
    workers: str | int = 0
    """Processes that test: a number, or "cores" for levels that compute."""
    needs: tuple[str, ...] = ()
    """Targets of make."""
    environment: dict[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Of a part: what it tests, as patterns of file names."""
    cpu_seconds: float = 0.0
    """The budget, in seconds of the machine that `YARDSTICK_SECONDS` was measured on."""
    cases: int = 0


@dataclass
class Outcome:
    """What came of one level, or of what it needs."""

    name: str
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    result: str = ""
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    speed: float = 1.0


class Table:
    """`tests/levels.toml`."""

    def __init__(self, text: str) -> None:
        """Raises TypeError where a level has a field that is none."""
        table = tomllib.loads(text)
        self.levels = {name: _level(name, fields) for name, fields in table["levels"].items()}
        self.gate: list[str] = table["gate"]

    @property
    def parts(self) -> list[str]:
        """The names of the levels that are not of the gate."""
        return [name for name in self.levels if name not in self.gate]

    def named(self, names: list[str]) -> list[str]:
        """The levels that these names stand for, each once. Raises ValueError where one stands for none."""
        chosen: list[str] = []
        for name in names:
            if name == "gate":
                chosen += self.gate
            elif name == "all":
                chosen += ["lint", "unit", *self.parts]  # the parts hold the other levels of the gate
            elif name == "for-change":
                chosen += self.for_change()
            elif name in self.levels:
                chosen.append(name)
            else:
                every = ", ".join(("gate", "all", "for-change", *self.levels))
                raise ValueError(f"no level or part has the name {name!r}: use {every}")
        return list(dict.fromkeys(chosen))

    def for_change(self) -> list[str]:
        """The gate, and the parts that test what differs from DTJ_BASE; prints why. Raises ValueError for no commit."""
        base = os.environ.get("DTJ_BASE") or "origin/main"
        differs = _git("diff", "--name-only", "--merge-base", base)
        if differs is None:
            raise ValueError(f"{base} is no commit of this repository: say which by BASE=COMMIT")
        changed = [*differs, *(_git("ls-files", "--others", "--exclude-standard") or ())]
        chosen = list(self.gate)
        for name in self.parts:
            touched = [path for path in changed if any(fnmatch(path, pattern) for pattern in self.levels[name].paths)]
            if touched:
                chosen.append(name)
                print(f"{name}: {touched[0]}" + (f" and {len(touched) - 1} more" if len(touched) > 1 else ""))
        return chosen


@dataclass(frozen=True, kw_only=True)
class KnownFailure:
    """A test of a part that fails: `tests/known_failures.toml`."""

    id: str
    since: date
    what: str

    def expired(self, today: date) -> bool:
        """Whether its time is over."""
        return today > self.since + timedelta(days=DAYS_KNOWN)


def known_failures() -> dict[str, KnownFailure]:
    """By id. Raises ValueError for one of the gate, which is repaired or leaves the gate."""
    found = [KnownFailure(**entry) for entry in tomllib.loads(KNOWN_FAILURES.read_text()).get("known", [])]
    table = Table(TABLE.read_text())
    gate = tuple(test for name in table.gate for test in table.levels[name].tests)
    for failure in found:
        if failure.id.startswith(gate):
            raise ValueError(
                f"{KNOWN_FAILURES.name}: {failure.id} is a test of the gate: repair it, or take it out there"
            )
    return {failure.id: failure for failure in found}


def check_known() -> int:
    """Print what is known to fail; 1 if the time of one is over."""
    known = known_failures().values()
    for failure in known:
        print(
            f"{'EXPIRED' if failure.expired(date.today()) else 'known'}: {failure.id} ({failure.since}): {failure.what}"
        )
    return int(any(failure.expired(date.today()) for failure in known))


def _level(name: str, fields: dict[str, Any]) -> Level:
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return Level(name=name, **given)


def _git(*arguments: str) -> list[str] | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else None


# -- how fast the machine is while a level runs -------------------------------------------------------------------

YARDSTICK_SECONDS: Final = 0.0100
"""CPU time of `_stick` on the machine that the budgets were measured on, while a level ran."""


def _stick() -> float:
    """The CPU time of a piece of work that is always the same."""
    start = time.thread_time()
    total = 0
    for number in range(200_000):
        total ^= number * number
    return time.thread_time() - start


class Yardstick(threading.Thread):
    """Measures the machine every few seconds.

    A processor that others use too needs up to twice the CPU time for the same work; budgets must not fail for it.
    """

    def __init__(self) -> None:
        """Not started yet."""
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._took: list[float] = []

    def run(self) -> None:
        """Measure until the end is asked for."""
        while not self._ended.is_set():
            self._took.append(_stick())
            self._ended.wait(3.0)

    def stop(self) -> float:
        """How many times the usual CPU time the machine needed; 1 at least."""
        self._ended.set()
        self.join()
        return max(1.0, statistics.median(self._took) / YARDSTICK_SECONDS) if self._took else 1.0


# -- running ------------------------------------------------------------------------------------------------------


class Command:
    """A command, measured with all that it starts. Its output is shown as it comes, or kept for `wait`."""

    running: Final[set[subprocess.Popen[str]]] = set()

    def __init__(self, command: tuple[str, ...], *, environment: dict[str, str], shown: bool = True) -> None:
        """Starts it."""
        self._report = tempfile.NamedTemporaryFile(prefix="dtj-level-")  # noqa: SIM115  # closed by wait
        self._output = None if shown else tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "scripts/measured.py", self._report.name, *command],
            cwd=ROOT,
            env=os.environ | environment,
            stdout=self._output,
            stderr=None if shown else subprocess.STDOUT,
            text=True,
        )
        self.running.add(self._process)

    def wait(self) -> tuple[int, float, float]:
        """The exit status, the seconds of wall clock and of CPU. Prints what was kept."""
        code = self._process.wait()
        self.running.discard(self._process)
        if self._output is not None:
            self._output.seek(0)
            print(self._output.read(), end="", flush=True)
            self._output.close()
        wall, cpu = map(float, Path(self._report.name).read_text().split() or (0, 0))
        self._report.close()
        return code, wall, cpu


class Needs:
    """What levels need: made once, the programs next to the first levels, which need none of them."""

    def __init__(self, targets: set[str]) -> None:
        """Begins with the programs, which take longest."""
        self._outcomes: dict[str, Outcome] = {}
        self._programs = self._begin("programs") if "programs" in targets else None

    def _begin(self, target: str) -> Command:
        return Command(("make", "--no-print-directory", target), environment={}, shown=target != "programs")

    def of(self, target: str) -> tuple[Outcome, bool]:
        """What came of making a target, and whether this call has made it."""
        if target in self._outcomes:
            return self._outcomes[target], False
        command = self._programs if target == "programs" and self._programs else self._begin(target)
        code, wall, cpu = command.wait()
        made = Outcome(f"make {target}", wall_seconds=wall, cpu_seconds=cpu, result="made")
        if code:
            made.problems.append(f"make {target} ended with {code}: its output says what is missing")
        self._outcomes[target] = made
        return made, True


def run_level(level: Level, *, strict: bool) -> Outcome:
    """Run it. ``strict`` is for the gate: no skips, no installs, within its budget, with all its cases."""
    print(f"\n== {level.name}", flush=True)
    with tempfile.NamedTemporaryFile(prefix="dtj-record-", suffix=".json") as record:
        command = level.command or _pytest(level, Path(record.name), strict=strict)
        yardstick = Yardstick()
        yardstick.start()
        environment = (OFFLINE if strict and not level.command else {}) | level.environment
        code, wall, cpu = Command(command, environment=environment).wait()
        outcome = Outcome(level.name, wall_seconds=wall, cpu_seconds=cpu, speed=yardstick.stop())
        text = Path(record.name).read_text()
    cases: dict[str, dict[str, Any]] = json.loads(text) if text else {}
    _judge(outcome, level, code, cases)
    if strict and not os.environ.get("PYTEST_ARGS"):
        _judge_budget(outcome, level, cases)
    return outcome


def _pytest(level: Level, record: Path, *, strict: bool) -> tuple[str, ...]:
    workers = len(os.sched_getaffinity(0)) if level.workers == "cores" else int(level.workers)
    return (
        f"{level.python}/bin/python",
        *("-m", "pytest", "-q", f"--record={record}"),
        *(["--no-skips"] if strict else []),
        *([f"--numprocesses={workers}"] if workers else []),
        *(f"--deselect={test.removeprefix(OF_THE_TRAINER)}" for test in level.without),
        *level.arguments,
        *shlex.split(os.environ.get("PYTEST_ARGS", "")),
        *level.tests,
    )


def _judge(outcome: Outcome, level: Level, code: int, cases: dict[str, dict[str, Any]]) -> None:
    counts: dict[str, int] = {}
    known = known_failures()
    for name, case in cases.items():
        counts[case["outcome"]] = counts.get(case["outcome"], 0) + 1
        if case["outcome"] == "failed" and name in known and not known[name].expired(date.today()):
            outcome.warnings.append(f"KNOWN {name} ({known[name].since}): {known[name].what}")
        elif case["outcome"] == "failed":
            outcome.problems.append(f"FAILED {name}: {case['reason']}")
            outcome.problems.append(f"  repeat: {level.python}/bin/python -m pytest '{name}'")
        elif case["outcome"] == "skipped":
            outcome.warnings.append(f"left out: {name}: {case['reason']}")
    outcome.result = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    failed_as_known = code == TESTS_FAILED and any(warning.startswith("KNOWN ") for warning in outcome.warnings)
    if code and not outcome.problems and not failed_as_known:
        outcome.problems.append(f"ended with {code}" if code > 0 else f"ended by signal {-code}")


def _judge_budget(outcome: Outcome, level: Level, cases: dict[str, dict[str, Any]]) -> None:
    used = outcome.cpu_seconds / outcome.speed
    words = f"{used:.0f} CPU seconds of {level.cpu_seconds:.0f} (tests/levels.toml)"
    if used > FAILS_OVER * level.cpu_seconds:
        outcome.problems.append(f"too dear: {words}")
    elif used > WARNS_OVER * level.cpu_seconds:
        outcome.warnings.append(f"nearly too dear: {words}")
    for name, case in cases.items():
        if case["cpu"] / outcome.speed > SECONDS_OF_ONE_TEST:
            outcome.problems.append(f"too dear for the gate: {name} took {case['cpu'] / outcome.speed:.0f} CPU seconds")
    if len(cases) < (1 - CASES_THAT_MAY_GO) * level.cases:
        outcome.problems.append(f"{len(cases)} cases of {level.cases} (tests/levels.toml): did a file lose its tests?")


def main(names: list[str]) -> int:
    """Run what the names stand for; return 1 where something failed, 2 for a name that stands for nothing."""
    if names == ["known-failures"]:
        return check_known()
    table = Table(TABLE.read_text())
    try:
        known_failures()
        chosen = [table.levels[name] for name in table.named(names)]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if (free := shutil.disk_usage(ROOT).free) < FREE_BYTES:
        print(
            f"error: {free / 1e9:.1f} GB are free on the disk of {ROOT}: the tests need {FREE_BYTES / 1e9:.0f}",
            file=sys.stderr,
        )
        return 2
    os.environ.setdefault("DTJ_TRAINER_PYTHON", str(ROOT / ".venv-trainer/bin/python"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    start = time.monotonic()
    outcomes: list[Outcome] = []
    try:
        needs = Needs({target for level in chosen for target in level.needs})
        for level in chosen:
            missing = False
            for target in level.needs:
                made, new = needs.of(target)
                outcomes += [made] if new and (made.problems or made.wall_seconds > 5) else []
                missing |= bool(made.problems)
            if missing:
                outcomes.append(Outcome(level.name, problems=["what it needs could not be made"]))
            else:
                outcomes.append(run_level(level, strict=level.name in table.gate))
    except KeyboardInterrupt:
        for process in Command.running:
            process.terminate()
            process.wait()
        return 130
    _summarize(outcomes, wall_seconds=time.monotonic() - start)
    return 1 if any(outcome.problems for outcome in outcomes) else 0


def _summarize(outcomes: list[Outcome], *, wall_seconds: float) -> None:
    print("\n== summary")
    print(f"{'level':<12} {'':<6} {'wall':>6} {'CPU':>6} {'slow':>5}")
    for outcome in outcomes:
        verdict = "FAILED" if outcome.problems else "ok"
        wall, cpu = f"{outcome.wall_seconds:.0f}s", f"{outcome.cpu_seconds:.0f}s"
        print(f"{outcome.name:<12} {verdict:<6} {wall:>6} {cpu:>6} {outcome.speed:>5.2f}  {outcome.result}")
        for line in (*outcome.problems, *outcome.warnings):
            print(f"         {line}")
    cpu_seconds = sum(outcome.cpu_seconds for outcome in outcomes)
    print(f"{'all':<12} {'':<6} {wall_seconds:>5.0f}s {cpu_seconds:>5.0f}s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
