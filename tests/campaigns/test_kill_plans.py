"""The operator is killed around every single write that it makes to a real API server, and another takes over.

Each workload runs once without a kill, which counts the operator's writes (creations, patches and deletions, those of
events too; not dry runs, which change nothing). Then it runs once for each write and each of three moments: before the
write reaches the API server (where that is not the moment after the write before it), when it has taken effect but its
answer is lost, and when the answer has arrived. The end must be the same every time: the job's status and counters, the
objects that are there, and each pod created once.

One run of CI tries a quarter of the plans (see support/campaigns/shards.py). A failure names its plan, and ``--plan``
tries that one alone:

    .venv/bin/python -m pytest tests/campaigns/test_kill_plans.py --plan suspend-and-resume:7:before

The operator is its real parts, run in the tests' process (see support/operator_runs.py), so that some hundred of them
can be killed in a minute; one plan of each workload ends with ``:process`` and kills a whole process by SIGKILL.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from support.campaigns.shards import chosen, part
from support.defects import Defects
from support.kill_plans import Plan, Stage, plans
from support.loop_thread import LoopThread
from support.workloads import WORKLOADS
from testbed import ControlPlane

pytestmark = pytest.mark.campaign

QUARTERS = 4


def plans_of(quarter: int, all_plans: list[Plan]) -> list[Plan]:
    """The plans of one quarter, and in each the one that kills a whole process."""
    whole = [plan for plan in all_plans if plan.process]
    return whole + part([plan for plan in all_plans if not plan.process], quarter, shards=QUARTERS)


@pytest.fixture
def defects() -> Iterator[list[str]]:
    with Defects() as defects:
        yield defects.lines


@pytest.fixture(scope="module")
def stage(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with LoopThread() as loop, Stage(cluster, loop, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.mark.parametrize("quarter", sorted({shard % QUARTERS for shard in chosen()}))
@pytest.mark.parametrize("name", WORKLOADS)
def test_an_operator_that_is_killed_around_any_write_comes_to_the_same_end(
    name: str,
    quarter: int,
    stage: Stage,
    defects: list[str],
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    wanted = [Plan.parse(text) for text in pytestconfig.getoption("--plan")]
    if wanted and name not in {plan.workload for plan in wanted}:
        pytest.skip("--plan names other workloads")
    began = time.monotonic()
    alive = stage.run(WORKLOADS[name])
    assert len(alive.writes) > 5, alive.writes
    tried = [plan for plan in wanted if plan.workload == name] or plans_of(quarter, plans(name, alive.writes))
    found = stage.run_all(WORKLOADS[name], tried, expected=alive)
    seconds = time.monotonic() - began
    what = f"{name}, quarter {quarter}: {len(alive.writes)} writes, {len(tried)} kill plans"
    record_property("report", f"{what}, {seconds:.0f} s")
    assert not found.wrong, f"{len(found.wrong)} of {len(tried)} plans:\n" + "\n".join(found.wrong)
    unreached = ", ".join(map(str, found.unreached))
    assert 4 * len(found.unreached) <= len(tried), f"too few kills: the operator was never killed in {unreached}"
    assert not defects, "\n".join(defects)
