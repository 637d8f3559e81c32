"""The operator is killed after every single call that it makes, restarted, and must come to the same end.

Each workload is run once to count the calls, and then once for each of them. The world keeps what was done; what the
operator had in memory is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from builders import CLAIM_TEMPLATE, job
from dtj.api.status import JobStatus
from dtj.core.actions import CheckPods, Emit, RequeueAfter
from dtj.core.observed import Phase
from world import World

pytestmark = pytest.mark.unit

Workload = Callable[["RestartableCluster"], None]


class RestartableCluster(World):
    """Its operator dies right after its ``dies_after``-th call; 0 for an operator that lives."""

    dies_after: int = 0
    calls: int = 0

    def step(self) -> tuple[object, ...]:  # type: ignore[override]
        actions = self.planned()
        for action in actions:
            self._carry_out(action)
            self.history.append(action)
            if isinstance(action, Emit | RequeueAfter | CheckPods):
                continue
            self.calls += 1
            if self.calls == self.dies_after:
                self.verdict = self.refusal = self.status_written_at = None
                return (action,)
        return actions

    def end(self) -> tuple[object, ...]:
        """What must be the same in the end, however often the operator died."""
        status = self.job.status
        pods = sorted((name, pod.phase) for name, pod in self.pods.items())
        return (
            status.state,
            status.reason,
            status.attempt,
            status.restarts,
            status.root_cause,
            status.replica_statuses,
            pods,
            self.service is not None,
            self.tensorboard is not None,
            self.created,
        )


def start(world: World) -> None:
    world.settle()
    world.run_all()
    world.settle()


def clean(world: World) -> None:
    world.settle()
    world.finish_deletions()
    world.settle()


def from_creation_to_completion(world: World) -> None:
    start(world)
    world.set_pod("worker-0", Phase.SUCCEEDED)
    clean(world)


def a_worker_fails_and_all_start_again(world: World) -> None:
    start(world)
    world.set_pod("worker-1", Phase.FAILED, exit_code=3)
    world.settle()
    world.advance(2)
    clean(world)
    start(world)
    world.set_pod("worker-0-r1", Phase.SUCCEEDED)
    clean(world)


def the_last_error_that_is_allowed(world: World) -> None:
    start(world)
    for name in ("worker-0", "worker-0-r1"):
        world.set_pod(name, Phase.FAILED, exit_code=3)
        world.settle()
        world.advance(60)
        clean(world)
        start(world)


def a_drain(world: World) -> None:
    start(world)
    world.take_away("worker-1")
    clean(world)
    start(world)


def suspended_and_resumed(world: World) -> None:
    start(world)
    for suspend in (True, False):
        spec = job(runPolicy={"suspend": suspend, "backoffLimit": 1}).spec
        world.job = replace(world.job, spec=spec, generation=world.job.generation + 1)
        clean(world)
    start(world)
    world.set_pod("worker-0-r1", Phase.SUCCEEDED)
    clean(world)


def deleted_and_created_again(world: World) -> None:
    start(world)
    world.job = replace(world.job, uid="another", status=JobStatus(), created_at=world.now)
    world.settle()
    world.pods.clear()
    world.service = None
    start(world)
    world.set_pod("worker-0", Phase.SUCCEEDED)
    clean(world)


def a_chief_comes_back_alone_until_a_server_is_lost(world: World) -> None:
    start(world)
    for name in ("chief-0", "chief-0-r1"):
        world.take_away(name)
        clean(world)
        start(world)
        world.advance(20)
    world.take_away("ps-0")
    clean(world)
    start(world)
    world.set_pod("chief-0-r3", Phase.SUCCEEDED)
    clean(world)


def a_life_with_tensorboard(world: World) -> None:
    start(world)
    start(world)
    world.remove("tensorboard")
    clean(world)
    world.set_pod("worker-1", Phase.FAILED, exit_code=3)
    world.settle()
    world.advance(15)
    clean(world)
    world.advance(15)
    clean(world)
    start(world)
    world.set_pod("worker-0-r1", Phase.SUCCEEDED)
    clean(world)
    world.advance(61)
    clean(world)


WORKLOADS: tuple[Workload, ...] = (
    from_creation_to_completion,
    a_worker_fails_and_all_start_again,
    the_last_error_that_is_allowed,
    a_drain,
    suspended_and_resumed,
    deleted_and_created_again,
    a_chief_comes_back_alone_until_a_server_is_lost,
    a_life_with_tensorboard,
)
SERVERS = {a_chief_comes_back_alone_until_a_server_is_lost}
"""Stories of a ParameterServer job; the others are of two workers."""


def run(workload: Workload, *, dies_after: int) -> RestartableCluster:
    strategy, roles = "MultiWorkerMirrored", {"worker": 2}
    if workload in SERVERS:
        strategy, roles = "ParameterServer", {"chief": 1, "worker": 1, "ps": 1}
    more = {"checkpoint": {"claimTemplate": CLAIM_TEMPLATE}, "tensorBoard": {"ttlSeconds": 60}}
    shown = more if workload is a_life_with_tensorboard else {}
    world = RestartableCluster(job(strategy=strategy, roles=roles, runPolicy={"backoffLimit": 1}, **shown))  # type: ignore[arg-type]
    world.dies_after = dies_after
    workload(world)
    return world


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.__name__)
def test_an_operator_that_dies_after_any_call_comes_to_the_same_end(workload: Workload) -> None:
    alive = run(workload, dies_after=0)
    assert alive.calls > 5
    for call in range(1, alive.calls + 1):
        assert run(workload, dies_after=call).end() == alive.end(), f"after call {call}"
