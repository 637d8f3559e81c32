"""What a real API server makes of the schema's formats and of the selectable fields."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from builders import manifest
from dtj.api.json import JsonObject
from dtj.api.managed_by import other_controller
from support.older_schemas import ChangingSchema, without_rule
from testbed import ApiError, ControlPlane, KubectlError

pytestmark = pytest.mark.api

JOBS = "/apis/training.dtj.dev/v1alpha1/namespaces/{namespace}/distributedtrainingjobs"


def create(cluster: ControlPlane, namespace: str, name: str, **spec: object) -> None:
    body = manifest(**spec)  # type: ignore[arg-type]
    body["metadata"] = {"name": name, "namespace": namespace}
    cluster.kubectl("create", "--filename", "-", stdin=json.dumps(body))


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


# -- spec.managedBy ------------------------------------------------------------------------------------------

MOVED = "managedBy has moved: set spec.managedBy, and remove runPolicy.managedBy"
THEIRS = "kueue.x-k8s.io/multikueue"
IN_THE_OLD_PLACE: JsonObject = {"managedBy": THEIRS}


@pytest.fixture
def stored_manager(cluster: ControlPlane, namespace: str) -> Iterator[ChangingSchema]:
    """A job ``digits`` that was stored with the old field."""
    kind = ChangingSchema(cluster, namespace, lambda schema: without_rule(schema, MOVED))
    kind.create("digits", runPolicy=IN_THE_OLD_PLACE)
    kind.upgrade(lambda: kind.refuses(runPolicy=IN_THE_OLD_PLACE))
    yield kind
    kind.remove()


def test_a_stored_job_keeps_the_old_field_of_its_controller_and_can_be_written(stored_manager: ChangingSchema) -> None:
    stored_manager.patch("digits", {"metadata": {"labels": {"team": "a"}}})
    stored_manager.patch("digits", {"status": {"state": "Running"}}, status=True)
    stored_manager.patch("digits", {"spec": {"runPolicy": {"suspend": True}}})
    found = stored_manager.get("digits")
    assert found["spec"]["runPolicy"]["managedBy"] == THEIRS  # type: ignore[index,call-overload]
    assert other_controller(found["spec"]) == THEIRS  # type: ignore[arg-type]


def test_the_controller_of_a_stored_job_moves_to_the_new_field_but_cannot_change(
    stored_manager: ChangingSchema,
) -> None:
    changes: tuple[JsonObject, ...] = (
        {"managedBy": "example.com/other"},
        {"runPolicy": {"managedBy": None}},
        {"runPolicy": {"managedBy": "example.com/other"}},
    )
    for change in changes:
        with pytest.raises(ApiError, match="managedBy cannot be changed"):
            stored_manager.patch("digits", {"spec": change})
    stored_manager.patch("digits", {"spec": {"managedBy": THEIRS, "runPolicy": {"managedBy": None}}})
    with pytest.raises(ApiError, match="managedBy has moved"):
        stored_manager.patch("digits", {"spec": {"runPolicy": IN_THE_OLD_PLACE}})


def test_the_controller_of_a_new_job_is_named_at_the_top_of_the_spec(cluster: ControlPlane, namespace: str) -> None:
    create(cluster, namespace, "one", roles={"worker": 1}, managedBy=THEIRS)
    shown = cluster.kubectl("get", "-n", namespace, "dtj/one", "-o", "jsonpath={.spec.managedBy}").stdout
    assert shown == THEIRS
    with pytest.raises(KubectlError, match=MOVED):
        create(cluster, namespace, "two", roles={"worker": 1}, runPolicy=IN_THE_OLD_PLACE)
