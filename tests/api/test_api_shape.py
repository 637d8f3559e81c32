"""What a real API server makes of the schema's formats and of the selectable fields."""

from __future__ import annotations

import copy
import json

import pytest

from builders import manifest
from dtj.api import names
from dtj.api.crd import custom_resource_definition
from dtj.api.json import JsonObject, dig, object_at
from testbed import ApiError, ControlPlane, KubectlError

JOBS = "/apis/training.dtj.dev/v1alpha1/namespaces/{namespace}/distributedtrainingjobs"


def create(cluster: ControlPlane, namespace: str, name: str, **spec: object) -> None:
    body = manifest(**spec)  # type: ignore[arg-type]
    body["metadata"] = {"name": name, "namespace": namespace}
    cluster.kubectl("create", "--filename", "-", stdin=json.dumps(body))


def patch(cluster: ControlPlane, namespace: str, change: str) -> None:
    """A merge patch of the job ``one``."""
    cluster.kubectl("patch", "-n", namespace, "dtj/one", "--type=merge", "-p", change)


def write_status(cluster: ControlPlane, namespace: str, name: str, status: JsonObject) -> None:
    path = f"{JOBS.format(namespace=namespace)}/{name}/status"
    cluster.api.request("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


def names_of(cluster: ControlPlane, namespace: str, selector: str) -> list[str]:
    done = cluster.kubectl("get", "dtj", "-n", namespace, "-o", "name", f"--field-selector={selector}")
    return [line.rpartition("/")[2] for line in done.stdout.split()]


def test_jobs_are_selected_by_state_reason_strategy_and_queue(cluster: ControlPlane, namespace: str) -> None:
    create(cluster, namespace, "one", roles={"worker": 1}, strategy="OneDevice")
    create(cluster, namespace, "two", roles={"worker": 2}, runPolicy={"scheduling": {"queue": "team-a"}})
    write_status(cluster, namespace, "two", {"state": "Failed", "reason": "DeadlineExceeded"})
    assert names_of(cluster, namespace, "status.state=Failed") == ["two"]
    assert names_of(cluster, namespace, "status.state!=Failed") == ["one"]
    assert names_of(cluster, namespace, "status.reason=DeadlineExceeded") == ["two"]
    assert names_of(cluster, namespace, "spec.strategy=OneDevice") == ["one"]
    assert names_of(cluster, namespace, "spec.runPolicy.scheduling.queue=team-a") == ["two"]


@pytest.mark.parametrize(
    "status",
    [
        {"startTime": "yesterday"},
        {"progress": {"updatedAt": "12:00"}},
        {"replicaStatuses": {"worker": {"restarting": {"0": "soon"}}}},
    ],
    ids=["startTime", "updatedAt", "restarting"],
)
def test_a_time_of_the_status_that_is_none_is_refused(
    cluster: ControlPlane, namespace: str, status: JsonObject
) -> None:
    create(cluster, namespace, "one", roles={"worker": 1})
    with pytest.raises(ApiError, match="must be of type date-time"):
        write_status(cluster, namespace, "one", status)


def test_an_integer_of_more_than_32_bits_is_kept(cluster: ControlPlane, namespace: str) -> None:
    create(cluster, namespace, "one", roles={"worker": 1}, checkpoint={"path": "/c", "everySteps": 2**40})
    shown = cluster.kubectl("get", "-n", namespace, "dtj/one", "-o", "jsonpath={.spec.checkpoint.everySteps}").stdout
    assert shown == str(2**40)


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
def test_an_unknown_role_is_never_dropped_in_silence(
    cluster: ControlPlane, namespace: str, role: str, validation: str
) -> None:
    body = manifest(roles={"worker": 1, role: 1})
    path = f"{JOBS.format(namespace=namespace)}?fieldValidation={validation}"
    with pytest.raises(ApiError, match=f"there is no role {role}: rename or remove it; the roles are chief, worker"):
        cluster.api.request("POST", path, body)


# -- spec.managedBy ------------------------------------------------------------------------------------------

THEIRS = "kueue.x-k8s.io/multikueue"


def test_the_controller_of_a_job_is_named_at_the_top_of_the_spec_and_cannot_change(
    cluster: ControlPlane, namespace: str
) -> None:
    create(cluster, namespace, "one", roles={"worker": 1}, managedBy=THEIRS)
    shown = cluster.kubectl("get", "-n", namespace, "dtj/one", "-o", "jsonpath={.spec.managedBy}").stdout
    assert shown == THEIRS
    for manager in ('"example.com/other"', "null"):
        with pytest.raises(KubectlError, match="managedBy cannot be changed"):
            patch(cluster, namespace, f'{{"spec":{{"managedBy":{manager}}}}}')


# -- tensorBoard ---------------------------------------------------------------------------------------------

STORE: JsonObject = {"path": "s3://bucket/digits"}


def test_tensorboard_is_turned_on_and_off_by_its_object_alone(cluster: ControlPlane, namespace: str) -> None:
    create(cluster, namespace, "one", roles={"worker": 1}, checkpoint=STORE)
    shown = ("get", "-n", namespace, "dtj/one", "-o", "jsonpath={.spec.tensorBoard}")
    for board_patch, board in (("{}", '{"ttlSeconds":3600}'), ("null", "")):
        patch(cluster, namespace, f'{{"spec":{{"tensorBoard":{board_patch}}}}}')
        assert cluster.kubectl(*shown).stdout == board


# -- conditions ----------------------------------------------------------------------------------------------

WHOLE: JsonObject = {
    "type": "Audited",
    "status": "True",
    "reason": "Seen",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize("field", WHOLE)
def test_a_condition_without_a_field_that_kubernetes_requires_is_refused(
    cluster: ControlPlane, namespace: str, field: str
) -> None:
    create(cluster, namespace, "one", roles={"worker": 1})
    write_status(cluster, namespace, "one", {"conditions": [WHOLE]})
    with pytest.raises(ApiError, match=rf"{field}: Required value"):
        write_status(cluster, namespace, "one", {"conditions": [{key: WHOLE[key] for key in WHOLE if key != field}]})


def test_a_job_that_no_operator_has_seen_is_not_observed(cluster: ControlPlane, namespace: str) -> None:
    """kstatus compares generations only if there is an observed one."""
    create(cluster, namespace, "one", roles={"worker": 1})
    shown = cluster.kubectl("get", "-n", namespace, "dtj/one", "-o", "jsonpath={.status}").stdout
    assert json.loads(shown) == {"observedGeneration": -1}
