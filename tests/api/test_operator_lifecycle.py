"""A job's life on a real API server: from the manifest to its end, with pods played by writing their status."""

from __future__ import annotations

import json

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition, Label, Reason
from support.job_world import JobWorld
from support.waiting import always, eventually, eventually_true

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


def test_a_claim_that_the_job_asks_for_is_made_and_mounted(world: JobWorld) -> None:
    job = world.begin(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    (claim,) = world.claims().values()
    assert owner_uid(claim) == job.uid
    assert environment(world.pods()["digits-worker-0"])["DTJ_CHECKPOINT_DIR"] == "/dtj/checkpoint"


def test_a_job_runs_when_all_its_pods_are_ready_and_not_before(world: JobWorld) -> None:
    world.begin()
    world.run_pod("digits-worker-0")
    world.await_state("Starting")

    def not_running() -> None:
        assert not world.job().status.is_true(Condition.PODS_READY)

    always(not_running, seconds=0.5)
    world.run_pod("digits-worker-1")
    job = world.await_condition(Condition.PODS_READY)
    assert (job.status.state, job.status.ready) == ("Running", "2/2")
    assert world.await_event(Reason.PODS_CREATED)["note"] == "created 2 pods (2 worker)"


# -- ending ---------------------------------------------------------------------------------------------------


def test_the_chiefs_success_is_the_jobs_and_what_runs_on_is_stopped(world: JobWorld) -> None:
    world.run(strategy="ParameterServer", roles=WORKERS_AND_SERVERS)
    world.end_pod("digits-chief-0", exit_code=0)
    job = world.await_condition(Condition.COMPLETE)
    assert job.status.state == "Succeeded"
    assert job.status.completion_time is not None
    assert not job.status.is_true(Condition.FAILED)
    assert set(world.pods()) == {"digits-chief-0"}
    world.await_event(Reason.TRAINING_SUCCEEDED)


def test_the_first_failure_is_named_in_the_status_with_its_exit_code_and_last_words(world: JobWorld) -> None:
    world.run(runPolicy={"backoffLimit": 0})
    world.end_pod("digits-worker-1", exit_code=137, message="Killed")
    job = world.await_condition(Condition.FAILED)
    cause = job.status.root_cause
    assert cause is not None
    assert (cause.role, cause.index, cause.pod, cause.exit_code) == ("worker", 1, "digits-worker-1", 137)
    assert cause.message == "Killed"
    assert set(world.pods()) == {"digits-worker-1"}, "its logs are evidence; its peer is stopped"
    assert world.await_event(Reason.BACKOFF_LIMIT_EXCEEDED)["type"] == "Warning"


# -- deleting -------------------------------------------------------------------------------------------------


def test_all_that_a_job_owns_goes_with_it(world: JobWorld) -> None:
    world.begin(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    world.delete_job()

    eventually_true(lambda: not world.pods() and not world.services())
    eventually_true(lambda: _all_going(world.claims()))


# -- what is in the way ---------------------------------------------------------------------------------------


def test_a_foreign_pod_that_has_our_name_is_left_alone_and_named_in_the_status(world: JobWorld) -> None:
    foreign = world.create("pods", _foreign("digits-worker-1", {"containers": [{"name": "c", "image": "x"}]}))
    world.submit()

    def is_reported() -> None:
        ready = world.condition(Condition.PODS_READY)
        assert ready.reason == Reason.NAME_TAKEN
        assert 'pod "digits-worker-1"' in ready.message

    eventually(is_reported)
    always(is_reported, seconds=1.0)
    now = world.get("pods", "digits-worker-1")
    assert dig(now, "metadata", "uid") == dig(foreign, "metadata", "uid")
    assert dig(now, "metadata", "ownerReferences") is None


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


def _foreign(name: str, spec: JsonObject, labels: JsonObject | None = None) -> JsonObject:
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def _all_going(bodies: dict[str, JsonObject]) -> bool:
    """A claim may wait for its protection's controller, but its end must have been asked for."""
    return all(dig(body, "metadata", "deletionTimestamp") is not None for body in bodies.values())
