"""TensorBoard next to a job, with the operator and a real API server; the kubelet is played."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import Reason
from support.job_world import JobWorld
from support.waiting import eventually_true

pytestmark = pytest.mark.usefixtures("operator")

SHARED: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}
POD = "digits-tensorboard"


def submit(world: JobWorld, **spec: object) -> None:
    """A job whose one worker runs."""
    world.submit(roles={"worker": 1}, checkpoint=SHARED, **{"tensorBoard": {}, **spec})  # type: ignore[arg-type]
    world.await_pods(["worker-0"])
    world.run_pod("digits-worker-0")


def note_of(world: JobWorld, reason: Reason) -> Callable[[], str]:
    def note() -> str:
        found = world.events(reason)
        assert found
        return text(dig(found[0], "note"))

    return note


def test_it_comes_when_the_job_runs_belongs_to_it_and_is_no_replica(world: JobWorld) -> None:
    submit(world)
    world.await_pods(["worker-0", "tensorboard"])
    job = world.await_state("Running")
    for kind, labelled in (("pods", world.pods()), ("services", world.services())):
        assert dig(labelled[POD], "metadata", "ownerReferences", 0, "uid") == job.uid, kind
    assert job.status.ready == "1/1"
    shown = world.plane.kubectl("get", "-n", world.namespace, "dtj/digits", "-o", "wide").stdout.split()
    assert shown[:11] == [
        "NAME",
        "STATE",
        "STRATEGY",
        "READY",
        "PROGRESS",
        "RESTARTS",
        "AGE",
        "STEP",
        "EX/S",
        "ETA(S)",
        "REASON",
    ]
    world.end_pod(POD, exit_code=1)
    world.delete("pods", POD)

    eventually_true(lambda: dig(world.pods().get(POD) or {}, "status", "phase") == "Pending")
    assert world.job().status.restarts.total == 0


def test_a_quota_that_has_no_room_for_it_harms_nobody(world: JobWorld) -> None:
    quota: JsonObject = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"count/pods": "1"}},
    }
    world.apply(quota)
    submit(world)
    note = world.eventually(note_of(world, Reason.TENSORBOARD_FAILED))
    assert "exceeded quota" in note
    assert note.endswith("the job goes on without TensorBoard, which is tried again")
    job = world.await_state("Running")
    assert job.status.reason == Reason.ALL_PODS_READY
    world.end_pod("digits-worker-0", exit_code=0)
    world.await_state("Succeeded")
