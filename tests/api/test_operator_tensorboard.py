"""TensorBoard next to a job, with the operator and a real API server; the kubelet is played."""

from __future__ import annotations

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig
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
