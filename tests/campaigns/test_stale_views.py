"""Whatever an operator is shown late, never, or out of its order, a job comes to the same end.

See support/campaigns/stale_plans.py for the plans, and trial.py for which of them are tried. A failure names its plans,
and ``--plan`` tries one alone:

    .venv/bin/python -m pytest tests/campaigns/test_stale_views.py --plan suspend-and-resume:lag:pods:7:3
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.campaigns import stale_plans
from support.campaigns.tfjob_stories import EVERY_STORY
from support.campaigns.trial import check_plans, chosen


@pytest.mark.parametrize("shard", chosen())
@pytest.mark.parametrize("story", EVERY_STORY)
def test_an_operator_with_a_stale_view_comes_to_the_same_end(
    story: str, shard: int, pytestconfig: pytest.Config, record_property: Callable[[str, object], None]
) -> None:
    check_plans(
        story, shard, campaign=stale_plans, config=pytestconfig, record_property=record_property, what="stale views"
    )
