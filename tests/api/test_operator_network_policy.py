"""The NetworkPolicy of each job, with a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.full_life import live_through_network_policies
from support.job_world import JobWorld
from support.operator_process import OperatorProcess

ACCESS = '{"statusFrom": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "dtj-operator"}}}]}'


@pytest.fixture
def operator(world: JobWorld, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that gives each job a policy."""
    arguments = (f"--network-policies={ACCESS}",)
    with OperatorProcess.serving(world.plane, [world.namespace], *arguments, log=tmp_path / "operator.log") as process:
        yield process
        print(process.log.read_text())


def test_it_comes_before_the_pods_is_kept_as_it_should_be_and_goes_with_the_job(
    world: JobWorld, operator: OperatorProcess
) -> None:
    live_through_network_policies(world)
