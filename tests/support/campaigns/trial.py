"""Trying the plans of one story: those of a shard, or those that ``--plan`` names."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Protocol, TypeVar

import pytest

from support.campaigns.shards import part
from support.campaigns.stale_plans import Outcome


class StoryPlan(Protocol):
    """A plan; its text is what ``--plan`` takes."""

    @property
    def story(self) -> str: ...


P = TypeVar("P", bound=StoryPlan)


@dataclass(frozen=True)
class Trial:
    """How many plans were tried, how long that took, and what was wrong, a line for each plan."""

    plans: int
    seconds: float
    wrong: list[str]


def try_plans(
    story: str,
    shard: int,
    wanted: Sequence[P],
    *,
    run: Callable[[str], Outcome],
    plans: Callable[[str, Outcome], Iterable[P]],
    differences: Callable[[P, Outcome], list[str]],
) -> Trial:
    """Play the story undisturbed, which must show no fault, and then once for each plan.

    Skips the test if ``wanted`` names plans of other stories alone.
    """
    if wanted and story not in {plan.story for plan in wanted}:
        pytest.skip("--plan names other stories")
    began = time.monotonic()
    alive = run(story)
    assert not alive.faults, alive.faults
    tried = [plan for plan in wanted if plan.story == story] or part(plans(story, alive), shard)
    wrong = [f"{plan}: {'; '.join(found)}" for plan in tried if (found := differences(plan, alive))]
    return Trial(len(tried), time.monotonic() - began, wrong)


def check_plans(
    story: str,
    shard: int,
    *,
    campaign: ModuleType,
    config: pytest.Config,
    record_property: Callable[[str, object], None],
    what: str,
) -> None:
    """Try the plans of ``campaign``, a module with Plan, run, plans and differences, and report how many there were."""
    wanted = [campaign.Plan.parse(text) for text in config.getoption("--plan")]
    trial = try_plans(story, shard, wanted, run=campaign.run, plans=campaign.plans, differences=campaign.differences)
    record_property("report", f"{story}, shard {shard}: {trial.plans} {what}, {trial.seconds:.0f} s")
    assert not trial.wrong, f"{len(trial.wrong)} of {trial.plans} plans:\n" + "\n".join(trial.wrong)
