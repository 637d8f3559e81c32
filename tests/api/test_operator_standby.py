"""Two operators elect a leader by a lease; when it dies, the other one goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess

TAKE_OVER_SECONDS = 40.0


@pytest.fixture
def operators(world: JobWorld, tmp_path: Path) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:
    """The operator that leads, and the one that stands by."""
    election = ("--leader-elect", f"--lease-namespace={world.namespace}")
    leader, other = (
        OperatorProcess.serving(world.plane, [world.namespace], *election, log=tmp_path / name)
        for name in ("leader", "other")
    )
    with leader:
        leader.await_line("leads now")
        with other:
            other.await_line("stands by")
            yield leader, other


def test_an_operator_that_is_killed_is_followed_by_the_one_that_stands_by_and_nothing_is_created_twice(
    world: JobWorld, operators: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, other = operators
    mark = world.plane.audit.mark()
    world.begin()
    assert not [line for line in other.lines() if "created" in line]
    leader.kill()
    began = time.monotonic()
    world.run_pods()
    other.await_line("leads now")
    assert time.monotonic() - began < TAKE_OVER_SECONDS
    world.await_state("Running")
    writes = world.plane.audit.writes(since=mark, user=USER, namespace=world.namespace)
    created = [record.name for record in writes if record.verb == "create" and record.resource in ("pods", "services")]
    assert len(created) == 3
    assert other.stop()[0] == 0
    assert any("released lease" in line for line in other.lines()), "else another one waits until it runs out"
