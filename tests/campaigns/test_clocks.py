"""Whatever the clocks say, however slow the API server is, and whenever the operator is killed, a job ends the same.

See support/campaigns/clock_plans.py for the plans, and trial.py for which of them are tried. A failure names its plans,
and ``--plan`` tries one alone:

    .venv/bin/python -m pytest tests/campaigns/test_clocks.py --plan ttl:leader::4:7200
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.campaigns import clock_plans
from support.campaigns.tfjob_stories import EVERY_STORY
from support.campaigns.trial import check_plans, chosen


@pytest.mark.parametrize("shard", chosen())
@pytest.mark.parametrize("story", EVERY_STORY)
def test_clocks_that_differ_slow_answers_and_an_operator_that_is_killed_change_nothing(
    story: str, shard: int, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    check_plans(
        story, shard, campaign=clock_plans, config=pytestconfig, record_property=record_property, what="plans of time"
    )
