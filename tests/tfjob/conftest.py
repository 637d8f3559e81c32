"""Whoever serves TFJobs, and what other projects bring to judge that.

``DTJ_TFJOBS_SERVED_BY=training-operator`` runs the judges with training-operator itself: they are green there, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support import tfjob_operators
from support.tfjob_sdk import Sdk, sdk
from support.tfjob_world import TfJobWorld
from testbed import ControlPlane, sources
from testbed.binaries import TRAINING_OPERATOR


@pytest.fixture(scope="session")
def upstream() -> Path:
    """The module of training-operator."""
    return sources.source_of(TRAINING_OPERATOR)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of our operator, if it serves."""
    return tmp_path_factory.mktemp("operator") / "operator.log"


@pytest.fixture(scope="session")
def served(cluster: ControlPlane, log: Path) -> Iterator[ControlPlane]:
    """The control plane of the run. All its TFJobs are served."""
    with tfjob_operators.serving(cluster, log):
        yield cluster


@pytest.fixture
def world(served: ControlPlane, namespace: str, log: Path) -> Iterator[TfJobWorld]:
    """A namespace of the test's own."""
    yield TfJobWorld(served, namespace)
    if log.exists():
        print("\n".join(line for line in log.read_text().splitlines() if namespace in line))  # where the test fails


@pytest.fixture
def users(served: ControlPlane, tmp_path: Path) -> Iterator[Sdk]:
    """Users of the SDK."""
    with sdk(served, tmp_path) as programs:
        yield programs
