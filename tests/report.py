"""Options and reports that the tests of all levels share.

A test that tries many things says a line for the end of pytest's output by `record_property("report", line)`; xdist
hands properties on. With --record, the outcome and the CPU time of each test are written to a file, for
`scripts/levels.py`.
"""

import json
import os
import resource
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

CPU_AT_START = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --plan, --record and --no-skips."""
    parser.addoption(
        "--plan",
        action="append",
        default=[],
        metavar="PLAN",
        help="of a campaign or of the kill enumeration try this plan alone, as a failure names it, such as "
        "suspend-and-resume:7:before; repeatable",
    )
    parser.addoption("--record", type=Path, metavar="FILE", help="write outcome and CPU time of each test as JSON")
    parser.addoption("--no-skips", action="store_true", help="a test that is skipped has failed")


def pytest_configure(config: pytest.Config) -> None:
    """Record in the main process alone, which hears of all tests."""
    if config.option.record is not None and not hasattr(config, "workerinput"):
        inside = os.path.relpath(config.rootpath, config.invocation_params.dir)
        config.pluginmanager.register(Record(config.option.record, prefix="" if inside == "." else f"{inside}/"))


def _cpu_seconds() -> float:
    """Of this process, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Begin to count, after the setup: the first test that uses a fixture of many does not pay for it."""
    item.stash[CPU_AT_START] = _cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the CPU time, and turn a skip into a failure where none may be."""
    report = yield
    if call.when == "call":
        report.cpu = _cpu_seconds() - item.stash[CPU_AT_START]  # type: ignore[attr-defined]
    if report.skipped and item.config.option.no_skips and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped, which no test of the gate may be: {_reason(report)}"
    return report


class Record:
    """What came of each test."""

    def __init__(self, path: Path, *, prefix: str) -> None:
        """Writes to ``path`` when the run ends. ``prefix`` makes ids of tests those of the command line."""
        self._path = path
        self._prefix = prefix
        self._cases: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called for setup, call and teardown of each test, whichever process ran it."""
        case = self._cases.setdefault(self._prefix + report.nodeid, {"outcome": "passed", "reason": "", "cpu": 0.0})
        case["cpu"] = max(case["cpu"], getattr(report, "cpu", 0.0))
        if report.failed or (report.skipped and case["outcome"] == "passed"):
            case |= {"outcome": report.outcome, "reason": _reason(report)}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported."""
        if report.failed:
            self._cases[self._prefix + report.nodeid] = {"outcome": "failed", "reason": _reason(report), "cpu": 0.0}

    def pytest_sessionfinish(self) -> None:
        """Write it down."""
        self._path.write_text(json.dumps(self._cases))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """One line."""
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2]).removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    return lines[0][:300] if lines else ""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have reported."""
    reports = [report for found in terminalreporter.stats.values() for report in found]
    lines = [
        str(line)
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, line in report.user_properties
        if name == "report"
    ]
    if lines:
        terminalreporter.section("what was tried")
        for line in lines:
            terminalreporter.line(line)
