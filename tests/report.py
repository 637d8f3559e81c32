"""Options and the report of tests that try many things in one: which to try, and how many were tried.

A test says a line for the end of pytest's output by `record_property("report", line)`; xdist hands properties on.
"""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --plan."""
    parser.addoption(
        "--plan",
        action="append",
        default=[],
        metavar="PLAN",
        help="of a campaign or of the kill enumeration try this plan alone, as a failure names it, such as "
        "suspend-and-resume:7:before; repeatable",
    )


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
