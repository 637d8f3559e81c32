"""The operator is killed around every single write that it makes to a real API server, and another takes over.

Each workload runs once without a kill, which counts the operator's writes (creations, patches and deletions, those of
events too; not dry runs, which change nothing). Then it runs once for each write and each of three moments: before the
write reaches the API server (where that is not the moment after the write before it), when it has taken effect but its
answer is lost, and when the answer has arrived. The end must be the same every time: the job's status and counters, the
objects that are there, and each pod created once.

A failure names its plan, and ``--plan`` tries that one alone:

    .venv/bin/python -m pytest tests/api/test_restart_safety.py -m api --plan suspend-and-resume:7:before

The operator is its real parts, run in the tests' process (see support/operator_lives.py), so that some hundred of them
can be killed in a minute; one plan of each workload ends with ``:process`` and kills a whole process by SIGKILL.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pytest

from support.kill_plans import Plan, Stage, plans
from support.loop_thread import LoopThread
from support.workloads import WORKLOADS
from testbed import ControlPlane

pytestmark = pytest.mark.api


class Defects(logging.Handler):
    """Errors that operators of this process have logged: an API server that kills them is no reason for any."""

    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


@pytest.fixture
def defects() -> Iterator[list[str]]:
    handler = Defects()
    logger = logging.getLogger("dtj")
    logger.addHandler(handler)
    yield handler.said
    logger.removeHandler(handler)


@pytest.fixture(scope="module")
def stage(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with LoopThread() as loop, Stage(cluster, loop, tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.mark.parametrize("name", WORKLOADS)
def test_an_operator_that_is_killed_around_any_write_comes_to_the_same_end(
    name: str,
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
    chosen = [plan for plan in wanted if plan.workload == name] or plans(name, alive.writes)
    wrong = stage.run_all(WORKLOADS[name], chosen, expected=alive)
    seconds = time.monotonic() - began
    record_property("report", f"{name}: {len(alive.writes)} writes, {len(chosen)} kill plans, {seconds:.0f} s")
    assert not wrong, f"{len(wrong)} of {len(chosen)} plans:\n" + "\n".join(wrong)
    assert not defects, "\n".join(defects)
