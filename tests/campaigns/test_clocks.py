"""Whatever the clocks say and however slow the API server is, a job comes to the same end, and deadlines are kept.

See support/campaigns/clock_plans.py for the plans, and support/campaigns/shards.py for which of them are tried. A
failure names its plans, and ``--plan`` tries one alone:

    .venv/bin/python -m pytest tests/campaigns/test_clocks.py --plan ttl:leader::4:7200
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.campaigns import clock_plans
from support.campaigns.shards import chosen
from support.campaigns.stories import STORIES
from support.campaigns.trial import check_plans

pytestmark = pytest.mark.campaign


@pytest.mark.parametrize("shard", chosen())
@pytest.mark.parametrize("story", STORIES)
def test_clocks_that_differ_and_slow_answers_change_nothing(
    story: str, shard: int, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    check_plans(
        story, shard, campaign=clock_plans, config=pytestconfig, record_property=record_property, what="plans of time"
    )
