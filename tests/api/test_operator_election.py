"""Several operators stand by for each other: one leads, and another takes over when it is gone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.job_world import JobWorld
from support.operator_process import OperatorProcess


@pytest.fixture
def candidates(world: JobWorld, tmp_path: Path) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:
    """Two operators for the same namespace; the first leads."""
    election = ("--leader-elect", f"--lease-namespace={world.namespace}")
    first, second = (
        OperatorProcess.serving(world.plane, [world.namespace], *election, log=tmp_path / name)
        for name in ("first", "second")
    )
    with first:
        first.await_line("leads now")
        with second:
            second.await_line("stands by")
            yield first, second


def test_a_leader_that_is_asked_to_stop_hands_over_at_once(
    world: JobWorld, candidates: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, standby = candidates
    code, _ = leader.stop()
    assert code == 0
    assert any("released lease" in line for line in leader.lines()), "else the other waits until it runs out"
    standby.await_line("leads now")
    world.begin()
