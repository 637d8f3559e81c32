"""A job's life on a real API server: from the manifest to its end, with pods played by writing their status."""

from __future__ import annotations

import json

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Label
from support.job_world import JobWorld
from support.waiting import eventually_true

pytestmark = pytest.mark.usefixtures("operator")

WORKERS_AND_SERVERS = {"chief": 1, "worker": 2, "ps": 1}


def environment(pod: JsonObject) -> dict[str, object]:
    container = objects(dig(pod, "spec", "containers"))[0]
    return {str(variable["name"]): variable.get("value") for variable in objects(container["env"])}


def owner_uid(body: JsonObject) -> object:
    return dig(body, "metadata", "ownerReferences", 0, "uid")


# -- beginning ------------------------------------------------------------------------------------------------


def test_a_job_gets_exactly_its_pods_with_their_place_in_the_cluster(world: JobWorld) -> None:
    job = world.begin(strategy="ParameterServer", roles=WORKERS_AND_SERVERS)
    pod = world.pods()["digits-worker-1"]
    assert owner_uid(pod) == job.uid
    assert (dig(pod, "spec", "hostname"), dig(pod, "spec", "subdomain")) == ("worker-1", "digits")
    assert dig(pod, "spec", "restartPolicy") == "Never"
    labels = dig(pod, "metadata", "labels")
    assert isinstance(labels, dict)
    assert (
        labels
        | {
            Label.JOB_NAME: "digits",
            Label.JOB_UID: job.uid,
            Label.ROLE: "worker",
            Label.INDEX: "1",
            Label.ATTEMPT: "1",
            Label.APP_MANAGED_BY: "dtj-operator",
        }
        == labels
    )
    variables = environment(pod)
    assert variables["DTJ_STRATEGY"] == "ParameterServer"
    assert (variables["DTJ_ROLE"], variables["DTJ_INDEX"]) == ("worker", "1")
    config = json.loads(str(variables["TF_CONFIG"]))
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["ps"] == [f"ps-0.digits.{world.namespace}.svc:2222"]
    assert len(config["cluster"]["worker"]) == 2


# -- deleting -------------------------------------------------------------------------------------------------


def test_all_that_a_job_owns_goes_with_it(world: JobWorld) -> None:
    world.begin(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    world.delete_job()

    eventually_true(lambda: not world.pods() and not world.services())
    eventually_true(lambda: _all_going(world.claims()))


# -- manners --------------------------------------------------------------------------------------------------


def test_after_a_whole_life_a_job_carries_no_mark_of_the_framework(world: JobWorld) -> None:
    world.submit()
    before = world.body()
    world.await_running("worker-0", "worker-1")
    world.end_pod("digits-worker-0", exit_code=0)
    world.await_condition(Condition.COMPLETE)
    after = world.body()
    assert dig(after, "metadata", "annotations") is None
    assert dig(after, "metadata", "finalizers") is None
    assert after["spec"] == before["spec"]
    assert "kopf" not in json.dumps(after)


def _all_going(bodies: dict[str, JsonObject]) -> bool:
    """A claim may wait for its protection's controller, but its end must have been asked for."""
    return all(dig(body, "metadata", "deletionTimestamp") is not None for body in bodies.values())
