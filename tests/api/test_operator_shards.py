"""Two operators share the shards of a cluster; one that dies is followed by the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj.app.shard_leases import shard_of
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess, grant

TAKE_OVER_SECONDS = 40.0


@pytest.fixture
def operators(world: JobWorld, tmp_path: Path) -> Iterator[tuple[OperatorProcess, OperatorProcess]]:
    """The operator that runs the shard of the namespace, and another one that runs the other shard."""
    sharing = ("--leader-elect", f"--lease-namespace={world.namespace}", "--shards=2")
    spare = world.plane.new_namespace("spare")
    grant(world.plane, spare)
    first, second = (
        OperatorProcess.serving(world.plane, [world.namespace, spare], *sharing, log=tmp_path / name)
        for name in ("first", "second")
    )
    ours = lease_name(shard_of(world.namespace, 2))
    try:
        with first:
            first.await_line("leads now", times=2)
            with second:
                taken = second.await_line("leads now")
                yield (second, first) if f"/{ours} as" in taken else (first, second)
    finally:
        world.plane.delete_namespace(spare)


def lease_name(shard: int) -> str:
    return "dtj-operator" if shard == 0 else f"dtj-operator-{shard}"


def test_the_shard_of_an_operator_that_is_killed_is_taken_over_and_nothing_is_created_twice(
    world: JobWorld, operators: tuple[OperatorProcess, OperatorProcess]
) -> None:
    leader, other = operators
    before = len([line for line in other.lines() if "leads now" in line])
    mark = world.plane.audit.mark()
    world.begin()
    assert not [line for line in other.lines() if "created" in line], "the job is of a shard of the other operator"
    leader.kill()
    began = time.monotonic()
    world.run_pods()
    other.await_line("leads now", times=before + 1)
    assert time.monotonic() - began < TAKE_OVER_SECONDS
    world.await_state("Running")
    writes = world.plane.audit.writes(since=mark, user=USER, namespace=world.namespace)
    created = [record.name for record in writes if record.verb == "create" and record.resource in ("pods", "services")]
    assert len(created) == 3
    assert other.stop()[0] == 0
    assert any("released lease" in line for line in other.lines()), "else another one waits until it runs out"
