"""Real components of other projects next to a control plane of the run, and our operator between them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.job_world import JobWorld
from support.kueue_queues import Queues
from support.operator_process import OperatorProcess, grant_flavors
from testbed import ControlPlane, binaries, runs
from testbed.kueue import Kueue, Limits


@pytest.fixture(scope="session")
def kueue(cluster: ControlPlane) -> Kueue:
    """Kueue's manager, one for the run."""
    kueue = Kueue(cluster)
    with runs.launching():
        if not kueue.running():
            kueue.install()
            kueue.start(Limits())
    return kueue


@pytest.fixture
def queues(kueue: Kueue, world: JobWorld) -> Iterator[Queues]:
    """Queues and quota of the test's own."""
    queues = Queues(world, f"test-{uuid.uuid4().hex[:8]}")
    yield queues
    queues.delete()


@pytest.fixture
def operator(world: JobWorld, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator for that namespace, which may read ResourceFlavors too. It may not have logged an error."""
    grant_flavors(world.plane, world.namespace)
    process = OperatorProcess.serving(world.plane, [world.namespace], log=tmp_path / "operator.log")
    with process:
        yield process
        print(process.log.read_text())  # shown where the test fails
        assert not process.defects, process.log.read_text()


@pytest.fixture(scope="session")
def waiters() -> Path:
    """The program that asks the libraries of tools that wait: `tests/testbed/go/waiters`."""
    return binaries.path_of("waiters")
