"""Workers that are scaled on a real API server: new attempts, and what the scale subresource counts."""

from __future__ import annotations

import json

import pytest

from dtj.api.json import dig, objects
from dtj.api.names import Reason
from support.job_world import JobWorld
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("operator")


def workers_in_tf_config(world: JobWorld, pod: str) -> int:
    (container,) = objects(dig(world.pods()[pod], "spec", "containers"))
    (config,) = (variable["value"] for variable in objects(container["env"]) if variable["name"] == "TF_CONFIG")
    return len(json.loads(str(config))["cluster"]["worker"])


def test_workers_are_scaled_up_and_down_by_one_new_attempt_each(world: JobWorld) -> None:
    world.run(roles={"chief": 1, "worker": 1}, elastic={"maxReplicas": 3})
    world.plane.kubectl("scale", "-n", world.namespace, "dtj/digits", "--replicas=3")
    world.await_running("chief-0-r1", "worker-0-r1", "worker-1-r1", "worker-2-r1")
    assert {workers_in_tf_config(world, pod) for pod in world.pods()} == {3}
    event = world.await_event(Reason.NEW_ATTEMPT)
    assert event["type"] == "Normal"
    assert str(event["note"]).startswith("attempt 2: workers scaled from 1 to 3;")
    world.plane.kubectl("scale", "-n", world.namespace, "dtj/digits", "--replicas=2")
    world.await_running("chief-0-r2", "worker-0-r2", "worker-1-r2")
    assert world.job().status.attempt == 3


def test_the_scale_subresource_counts_what_its_selector_selects(world: JobWorld) -> None:
    """What a HorizontalPodAutoscaler reads."""
    world.run(roles={"chief": 1, "worker": 2}, elastic={"maxReplicas": 3})
    path = f"/apis/training.dtj.dev/v1alpha1/namespaces/{world.namespace}/distributedtrainingjobs/digits/scale"

    def counted() -> None:
        scale = world.plane.api.request("GET", path)
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
