"""The operator, and the world in which it works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.job_world import JobWorld
from support.operator_process import GRACE_SECONDS, OperatorProcess, grant
from testbed import ControlPlane


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest module comes first: last, all workers but one would wait for its end."""
    items.sort(key=lambda item: "test_restart_safety" not in item.nodeid)


@pytest.fixture
def world(cluster: ControlPlane, namespace: str) -> JobWorld:
    """A namespace of the test's own in which the operator may work."""
    grant(cluster, namespace)
    return JobWorld(cluster, namespace)


@pytest.fixture
def operator(world: JobWorld, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator for that namespace. It must stop in time and in peace, and may not have logged an error."""
    process = OperatorProcess.serving(world.plane, [world.namespace], log=tmp_path / "operator.log")
    with process:
        yield process
        print(process.log.read_text())  # shown where the test fails
        if process.running:
            process.await_line("runs jobs")  # a short test may be over before the operator is up
            code, seconds = process.stop()
            assert code == 0, process.log.read_text()
            assert seconds < GRACE_SECONDS
        defects = [line for line in process.lines() if " ERROR " in line or "Traceback" in line]
        assert not defects, process.log.read_text()
