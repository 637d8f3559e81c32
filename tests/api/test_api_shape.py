"""What a real API server makes of the schema's formats and of the selectable fields."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from builders import NOW, manifest
from dtj.api.json import JsonObject, dig, objects
from dtj.api.managed_by import other_controller
from dtj.api.names import Condition
from dtj.core.actions import PatchStatus
from dtj.core.observed import Observed
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.patching import status_patch
from dtj.engine.stores import JobRecord
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


def _without_required_fields(schema: JsonObject) -> None:
    items = schema["properties"]["status"]["properties"]["conditions"]["items"]  # type: ignore[index,call-overload]
    items["required"] = ["type", "status"]  # type: ignore[index,call-overload]
    for field in items["properties"].values():  # type: ignore[index,call-overload,union-attr]
        for keyword in ("pattern", "minLength", "format"):
            field.pop(keyword, None)  # type: ignore[union-attr,arg-type,call-arg]


def test_a_status_of_an_older_operator_is_written_complete(cluster: ControlPlane, namespace: str) -> None:
    kind = ChangingSchema(cluster, namespace, _without_required_fields)
    old: list[JsonObject] = [{"type": "PodsReady", "status": "True"}, {"type": "Audited", "status": "True"}]
    stored = kind.create("digits", roles={"worker": 1})
    kind.patch("digits", {"status": {"conditions": [*old]}}, status=True)
    kind.upgrade(lambda: _is_refused(kind, [*old, {"type": "Other", "status": "True"}]))
    record = JobRecord.from_object(kind.get("digits"))
    actions = plan(Observed(job=record.whole(), platform=Platform(), gangs=None), NOW)
    (wanted,) = (action.status for action in actions if isinstance(action, PatchStatus))
    kind.patch("digits", {"status": status_patch(record.raw_status, wanted)}, status=True)
    conditions = objects(dig(kind.get("digits"), "status", "conditions"))
    assert {str(each["type"]) for each in conditions} == {*Condition, "Audited"}
    assert dig(stored, "metadata", "uid") == record.job.uid
    kind.remove()


def _is_refused(kind: ChangingSchema, conditions: list[JsonObject]) -> bool:
    """In a dry run: an API server accepts what is stored already, whatever the schema says by then."""
    try:
        kind.patch("digits", {"status": {"conditions": [*conditions]}}, status=True, dry_run=True)
    except ApiError:
        return True
    return False
