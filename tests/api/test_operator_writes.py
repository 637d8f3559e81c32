"""What a job costs the API server, counted in its audit log."""

from __future__ import annotations

import pytest

from dtj.api.names import Reason
from dtj.core.status_update import COUNT_UPDATE_INTERVAL
from support.job_world import OF_NO_SCHEDULER, JobWorld
from support.operator_process import USER, OperatorProcess
from support.waiting import always
from testbed import AuditRecord


def writes(world: JobWorld, since: int) -> list[AuditRecord]:
    return world.plane.audit.writes(since=since, user=USER, namespace=world.namespace)


@pytest.mark.parametrize("workers", [1, 6, 50])
def test_a_job_reaches_running_with_one_write_a_pod_and_five_more(
    world: JobWorld, operator: OperatorProcess, workers: int
) -> None:
    """A start that takes longer than ten seconds costs two more in ten seconds: counts, and why pods wait."""
    mark = world.plane.audit.mark()
    world.run(roles={"worker": workers})
    done = writes(world, mark)
    more = 2 * ((done[-1].logged - done[0].logged) // COUNT_UPDATE_INTERVAL)
    assert len(done) <= workers + 5 + more, list(map(str, done))


def run_idly(world: JobWorld) -> None:
    """A job that runs, about which the operator has written all that it had to."""
    world.begin(template=OF_NO_SCHEDULER)
    world.await_event(Reason.PODS_CREATED)
    world.run_pods()
    world.await_state("Running")


def test_a_job_whose_world_does_not_change_costs_nothing(world: JobWorld, operator: OperatorProcess) -> None:
    run_idly(world)
    mark = world.plane.audit.mark()

    def idle() -> None:
        assert writes(world, mark) == []

    always(idle, seconds=12.0)  # longer than numbers of pods are held back


def test_a_restarted_operator_writes_nothing_where_nothing_changed(world: JobWorld, operator: OperatorProcess) -> None:
    run_idly(world)
    operator.kill()
    mark = world.plane.audit.mark()
    operator.start()
    operator.await_serving()

    def idle() -> None:
        assert writes(world, mark) == []

    always(idle, seconds=4.0)
