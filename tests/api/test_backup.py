"""Jobs that a backup tool creates again on a real API server, with new UIDs, in the steps of docs/operations.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from builders import CLAIM_TEMPLATE, manifest
from dtj.api import names
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Reason
from support.job_world import JobWorld
from support.operator_process import OperatorProcess

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


def restore(world: JobWorld, job: JsonObject) -> None:
    """Create the job again, without its status."""
    world.api.request("POST", world.path(), without_identity(job))


@pytest.fixture
def running(world: JobWorld, operator: OperatorProcess) -> JsonObject:
    """A job that runs, as a backup has it."""
    world.run(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    return world.body()


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
    restore(world, running)
    before = world.uids()
    operator.start()

    world.await_reason(Reason.NAME_TAKEN)
    assert world.uids() == before

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
