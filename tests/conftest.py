"""What every level shares. The trainer's environment, which runs tests/trainer, has no libraries of the test bed."""

import signal
from importlib.util import find_spec

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what it puts into the background, and what tests start would not hear their Ctrl-C either.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # So nohup starts what it is given.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

pytest_plugins = ["report"]
if find_spec("cryptography") and find_spec("yaml"):
    pytest_plugins.append("cluster_fixtures")
if find_spec("hypothesis"):
    pytest_plugins.append("hypothesis_profile")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse ids that hold compressed bytes, whose header has a time: workers would collect different tests."""
    for item in items:
        if r"\x1f\x8b" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: give this parameter an id, which is the same in each process")
