"""What a real API server makes of the schema's formats and of the selectable fields."""

from __future__ import annotations

import copy
import json

import pytest

from builders import manifest
from dtj.api import names
from dtj.api.crd import custom_resource_definition
from dtj.api.json import JsonObject, dig, object_at
from support.job_world import JobWorld
from testbed import ApiError, ControlPlane


def write_status(world: JobWorld, status: JsonObject, name: str = "digits") -> None:
    world.patch({"status": status}, name, subresource="status")


def names_of(world: JobWorld, selector: str) -> list[str]:
    done = world.plane.kubectl("get", "dtj", "-n", world.namespace, "-o", "name", f"--field-selector={selector}")
    return [line.rpartition("/")[2] for line in done.stdout.split()]


def test_jobs_are_selected_by_state_reason_strategy_and_queue(world: JobWorld) -> None:
    world.submit("one", roles={"worker": 1}, strategy="OneDevice")
    world.submit("two", roles={"worker": 2}, runPolicy={"scheduling": {"queue": "team-a"}})
    write_status(world, {"state": "Failed", "reason": "DeadlineExceeded"}, "two")
    assert names_of(world, "status.state=Failed") == ["two"]
    assert names_of(world, "status.state!=Failed") == ["one"]
    assert names_of(world, "status.reason=DeadlineExceeded") == ["two"]
    assert names_of(world, "spec.strategy=OneDevice") == ["one"]
    assert names_of(world, "spec.runPolicy.scheduling.queue=team-a") == ["two"]


@pytest.mark.parametrize(
    "status",
    [
        {"startTime": "yesterday"},
        {"progress": {"updatedAt": "12:00"}},
        {"replicaStatuses": {"worker": {"restarting": {"0": "soon"}}}},
    ],
    ids=["startTime", "updatedAt", "restarting"],
)
def test_a_time_of_the_status_that_is_none_is_refused(world: JobWorld, status: JsonObject) -> None:
    world.submit(roles={"worker": 1})
    with pytest.raises(ApiError, match="must be of type date-time"):
        write_status(world, status)


def test_an_integer_of_more_than_32_bits_is_kept(world: JobWorld) -> None:
    world.submit(roles={"worker": 1}, checkpoint={"path": "/c", "everySteps": 2**40})
    assert dig(world.body(), "spec", "checkpoint", "everySteps") == 2**40


# -- the definition itself -----------------------------------------------------------------------------------


def _in_another_group(group: str) -> JsonObject:
    definition = copy.deepcopy(custom_resource_definition())
    spec = object_at(definition, "spec")
    assert isinstance(spec["names"], dict)
    del spec["names"]["shortNames"], spec["names"]["categories"]
    spec["group"] = group
    definition["metadata"] = {"name": f"{names.PLURAL}.{group}"}
    return definition


def test_a_definition_can_be_applied_by_kubectl_again_and_over_an_older_one(
    cluster: ControlPlane, namespace: str
) -> None:
    definition = _in_another_group(f"{namespace}.example")
    older = copy.deepcopy(definition)
    version = dig(older, "spec", "versions", 0)
    assert isinstance(version, dict)
    del version["selectableFields"]

    def applied(body: JsonObject) -> str:
        return cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(body)).stdout.split()[-1]

    assert [applied(body) for body in (older, definition, definition, older, definition)] == [
        "created",
        "configured",
        "unchanged",
        "configured",
        "configured",
    ]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{dig(definition, 'metadata', 'name')}"
    found = cluster.api.request("GET", path)
    assert dig(found, "spec", "versions", 0, "schema") == dig(definition, "spec", "versions", 0, "schema")
    cluster.api.request("DELETE", path)


# -- replicaSpecs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("validation", ["Strict", "Warn", "Ignore"])
@pytest.mark.parametrize("role", ["master", "dataWorker"])
def test_an_unknown_role_is_never_dropped_in_silence(world: JobWorld, role: str, validation: str) -> None:
    body = manifest(roles={"worker": 1, role: 1})
    with pytest.raises(ApiError, match=f"there is no role {role}: rename or remove it; the roles are chief, worker"):
        world.api.request("POST", f"{world.path()}?fieldValidation={validation}", body)


# -- spec.managedBy ------------------------------------------------------------------------------------------

THEIRS = "kueue.x-k8s.io/multikueue"


def test_the_controller_of_a_job_is_named_at_the_top_of_the_spec_and_cannot_change(world: JobWorld) -> None:
    world.submit(roles={"worker": 1}, managedBy=THEIRS)
    assert dig(world.body(), "spec", "managedBy") == THEIRS
    for manager in ("example.com/other", None):
        with pytest.raises(ApiError, match="managedBy cannot be changed"):
            world.change_spec({"managedBy": manager})


# -- tensorBoard ---------------------------------------------------------------------------------------------

STORE: JsonObject = {"path": "s3://bucket/digits"}


def test_tensorboard_is_turned_on_and_off_by_its_object_alone(world: JobWorld) -> None:
    world.submit(roles={"worker": 1}, checkpoint=STORE)
    for change, board in (({}, {"ttlSeconds": 3600}), (None, None)):
        world.change_spec({"tensorBoard": change})
        assert dig(world.body(), "spec", "tensorBoard") == board


# -- conditions ----------------------------------------------------------------------------------------------

WHOLE: JsonObject = {
    "type": "Audited",
    "status": "True",
    "reason": "Seen",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize("field", WHOLE)
def test_a_condition_without_a_field_that_kubernetes_requires_is_refused(world: JobWorld, field: str) -> None:
    world.submit(roles={"worker": 1})
    write_status(world, {"conditions": [WHOLE]})
    with pytest.raises(ApiError, match=rf"{field}: Required value"):
        write_status(world, {"conditions": [{key: WHOLE[key] for key in WHOLE if key != field}]})


def test_a_job_that_no_operator_has_seen_is_not_observed(world: JobWorld) -> None:
    """kstatus compares generations only if there is an observed one."""
    world.submit(roles={"worker": 1})
    assert world.body()["status"] == {"observedGeneration": -1}
