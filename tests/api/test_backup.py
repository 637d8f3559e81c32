"""Jobs that a backup tool creates again on a real API server, with new UIDs, in the steps of docs/operations.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from builders import CLAIM_TEMPLATE, manifest
from dtj.api import names
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Condition, Reason
from support.job_world import JOBS, JobWorld
from support.operator_process import OperatorProcess

pytestmark = pytest.mark.api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
OF_A_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
KINDS = f"{names.PLURAL},pods,services,networkpolicies,persistentvolumeclaims"


def without_identity(body: JsonObject, *, owners: bool = True) -> JsonObject:
    """An object as a backup tool creates it again, with the owners that it had or without."""
    left_out = (*OF_A_SERVER, *(() if owners else ("ownerReferences",)))
    kept = {key: value for key, value in object_at(body, "metadata").items() if key not in left_out}
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": kept}


def lose_everything(world: JobWorld) -> None:
    """As with the cluster: nothing of a job stays in the namespace."""
    # Pods without a node have no kubelet that would confirm their end.
    world.plane.kubectl("delete", KINDS, "--all", "--namespace", world.namespace, "--grace-period=0", "--force")


def restore(world: JobWorld, job: JsonObject, *, status: bool) -> str:
    """Create the job again, with its status or without; its new UID."""
    path = f"{JOBS}/namespaces/{world.namespace}/{names.PLURAL}"
    created = world.api.request("POST", path, without_identity(job))
    name = dig(job, "metadata", "name")
    if status:
        created["status"] = job["status"]
        world.api.request("PUT", f"{path}/{name}/status", created)
    return str(dig(created, "metadata", "uid"))


def finish(world: JobWorld) -> None:
    """The job succeeds."""
    world.end_pod("digits-worker-0", exit_code=0)
    world.await_condition(Condition.COMPLETE)


@pytest.fixture
def running(world: JobWorld, operator: OperatorProcess) -> JsonObject:
    """A job that runs, as a backup has it."""
    world.submit(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    world.await_pods(["worker-0", "worker-1"])
    world.run_pods()
    world.await_state("Running")
    return world.body()


def test_a_running_job_with_its_status_goes_on_as_the_next_attempt_which_counts_as_a_disruption(
    world: JobWorld, operator: OperatorProcess, running: JsonObject
) -> None:
    operator.stop()
    lose_everything(world)
    uid = restore(world, running, status=True)
    assert uid != dig(running, "metadata", "uid")
    operator.start()
    world.await_pods(["worker-0-r1", "worker-1-r1"])
    status = world.job().status
    assert (status.attempt, status.restarts.disruption, status.restarts.user) == (2, 1, 0)
    assert {dig(pod, "metadata", "ownerReferences", 0, "uid") for pod in world.pods().values()} == {uid}


@pytest.mark.parametrize("status", [True, False], ids=["with its status", "without"])
def test_a_finished_job_runs_again_only_without_its_status(
    world: JobWorld, operator: OperatorProcess, running: JsonObject, status: bool
) -> None:
    finish(world)
    operator.stop()
    finished = world.body()
    lose_everything(world)
    restore(world, finished, status=status)
    operator.start()
    if status:
        world.submit("after")  # it begins when the operator has seen all jobs
        world.await_pods(["worker-0", "worker-1"], "after")
        assert world.pods() == {}
        assert world.job().status.is_true(Condition.COMPLETE)
    else:
        world.await_pods(["worker-0", "worker-1"])
        assert world.job().status.attempt == 1


def test_objects_without_owners_are_reported_and_the_job_begins_when_they_are_deleted_as_documented(
    world: JobWorld, operator: OperatorProcess, running: JsonObject
) -> None:
    """Also its claim, whose data a new job uses as its volume."""
    operator.stop()
    saved = {"pods": world.pods(), "services": world.services(), "persistentvolumeclaims": world.claims()}
    lose_everything(world)
    for plural, bodies in saved.items():
        for body in bodies.values():
            world.create(plural, without_identity(body, owners=False))
    restore(world, running, status=False)
    before = {name: dig(pod, "metadata", "uid") for name, pod in world.pods().items()}
    operator.start()

    def is_reported() -> None:
        assert world.job().status.reason == Reason.NAME_TAKEN

    world.eventually(is_reported)
    assert {name: dig(pod, "metadata", "uid") for name, pod in world.pods().items()} == before

    operator.stop()
    (command,) = re.findall(r"`kubectl (delete pods,\S+\s+-l\s+\S+)`", PAGE.read_text())
    world.plane.kubectl(*command.split(), "--namespace", world.namespace, "--grace-period=0", "--force")
    world.delete_job()
    claim = {"persistentVolumeClaim": {"claimName": "digits-checkpoint"}}
    world.apply(manifest(checkpoint={"path": "/dtj/checkpoint", "volume": claim, "everySeconds": 300}))
    operator.start()
    world.await_pods(["worker-0", "worker-1"])
    assert world.job().status.attempt == 1
    assert "digits-checkpoint" in json.dumps(dig(world.pods()["digits-worker-0"], "spec", "volumes"))
    assert "digits-checkpoint" in world.claims()
