"""Which plans of a campaign are tried, and trying those of one story.

Always the same part of the plans is tried, on each commit and machine, or with ``DTJ_SHARD=all`` all of them.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Final, TypeVar

import pytest

P = TypeVar("P")

SHARDS: Final = 16
VARIABLE: Final = "DTJ_SHARD"


def chosen(environment: Mapping[str, str] = os.environ) -> list[int]:
    """The shards to be tried: a number from 0, which is the default, or all. Raises ValueError for anything else."""
    given = environment.get(VARIABLE) or "0"
    if given == "all":
        return list(range(SHARDS))
    if not given.isdecimal() or int(given) >= SHARDS:
        raise ValueError(f"{VARIABLE}={given}: use all, or a number from 0 to {SHARDS - 1}")
    return [int(given)]


def part(plans: Iterable[P], shard: int) -> list[P]:
    """The plans of a shard. Which one a plan is in depends on its text alone."""
    return [plan for plan in plans if zlib.crc32(str(plan).encode()) % SHARDS == shard]


def check_plans(
    story: str,
    shard: int,
    *,
    campaign: ModuleType,
    config: pytest.Config,
    record_property: Callable[[str, object], None],
    what: str,
) -> None:
    """Play the story undisturbed, and then once for each plan of the shard, or for those that ``--plan`` names.

    ``campaign`` is a module with Plan, run, plans and differences. Skips the test if ``--plan`` names other stories.
    """
    wanted = [campaign.Plan.parse(text) for text in config.getoption("--plan")]
    if wanted and story not in {plan.story for plan in wanted}:
        pytest.skip("--plan names other stories")
    began = time.monotonic()
    alive = campaign.run(story)
    assert not alive.faults, alive.faults
    tried = [plan for plan in wanted if plan.story == story] or part(campaign.plans(story, alive), shard)
    wrong = [f"{plan}: {'; '.join(found)}" for plan in tried if (found := campaign.differences(plan, alive))]
    record_property("report", f"{story}, shard {shard}: {len(tried)} {what}, {time.monotonic() - began:.0f} s")
    assert not wrong, f"{len(wrong)} of {len(tried)} plans:\n" + "\n".join(wrong)
