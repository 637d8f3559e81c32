"""Workers that are scaled on a real API server: what the scale subresource counts, and an autoscaler's new attempts."""

from __future__ import annotations

import pytest

from support.job_world import JobWorld
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")


def test_the_scale_subresource_counts_what_its_selector_selects(world: JobWorld) -> None:
    """What a HorizontalPodAutoscaler reads."""
    world.run(roles={"chief": 1, "worker": 2}, elastic={"maxReplicas": 3})

    def counted() -> None:
        scale = world.api.request("GET", f"{world.path('digits')}/scale")
        assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 2)
        selected = world.plane.kubectl(
            "get", "pods", "-n", world.namespace, "-l", scale["status"]["selector"], "-o", "name"
        )
        assert sorted(selected.stdout.split()) == ["pod/digits-worker-0", "pod/digits-worker-1"]

    eventually(counted)


def test_a_horizontal_pod_autoscaler_sets_the_number_of_workers_within_the_bounds_of_the_job(world: JobWorld) -> None:
    """Without metrics it still obeys its own bounds, by the same write as with them."""
    world.run(roles={"worker": 1}, elastic={"maxReplicas": 3})
    world.plane.kubectl("autoscale", "-n", world.namespace, "dtj/digits", "--min=2", "--max=3")
    world.await_running("worker-0-r1", "worker-1-r1")
    bounds = '{"spec": {"minReplicas": 4, "maxReplicas": 5}}'
    world.plane.kubectl("patch", "-n", world.namespace, "hpa/digits", "--type=merge", f"--patch={bounds}")

    def refused() -> None:
        path = f"/apis/autoscaling/v2/namespaces/{world.namespace}/horizontalpodautoscalers/digits"
        conditions = {each["type"]: each for each in world.plane.api.request("GET", path)["status"]["conditions"]}
        able = conditions["AbleToScale"]
        assert (able["status"], able["reason"]) == ("False", "FailedUpdateScale")
        assert "maxReplicas" in able["message"]

    eventually(refused)
    assert world.job().status.attempt == 2
