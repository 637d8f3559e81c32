"""Campaigns try each of their plans in exactly one shard."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.campaigns.shards import SHARDS, chosen, part
from support.campaigns.stale_plans import Mode, Plan, plans, run

pytestmark = pytest.mark.unit


def test_all_shards_together_are_all_plans_and_each_plan_is_in_one() -> None:
    tried = plans("ttl", run("ttl"))
    parts = [part(tried, shard) for shard in range(SHARDS)]
    assert sorted(str(plan) for found in parts for plan in found) == sorted(map(str, tried))
    assert all(parts)


def test_the_variable_chooses_one_shard_or_all() -> None:
    assert chosen({"DTJ_SHARD": "3"}) == [3]
    assert chosen({"DTJ_SHARD": "all"}) == list(range(SHARDS))


@pytest.mark.parametrize("given", ["none", "-1", str(SHARDS)])
def test_a_shard_that_does_not_exist_is_an_error(given: str) -> None:
    with pytest.raises(ValueError, match=f"DTJ_SHARD={given}: use all, or a number"):
        chosen({"DTJ_SHARD": given})


def test_without_the_variable_the_commit_chooses() -> None:
    here = Path(__file__).parent
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, check=False).stdout
    assert chosen({}, directory=here) == [int(head[:8] or "0", 16) % SHARDS]


def test_outside_a_repository_it_is_the_first_shard(tmp_path: Path) -> None:
    assert chosen({}, directory=tmp_path) == [0]


def test_a_plan_is_found_again_by_its_name() -> None:
    plan = Plan("suspend-and-resume", Mode.LAG, "pods", 7, 3)
    assert str(plan) == "suspend-and-resume:lag:pods:7:3"
    assert Plan.parse(str(plan)) == plan


def test_the_same_plan_is_the_same_run() -> None:
    plan = Plan("worker-fails", Mode.SKIP, "all", 2, 8)
    assert run("worker-fails", plan) == run("worker-fails", plan)
