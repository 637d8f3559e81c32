"""What a real API server makes of the schema's formats and of the selectable fields."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest

from builders import CLAIM_TEMPLATE, NOW, manifest, seen
from dtj.api.json import JsonObject, dig, objects
from dtj.api.managed_by import other_controller
from dtj.api.names import Condition
from dtj.api.rules import RULES
from dtj.api.status import Progress
from dtj.core.actions import PatchStatus
from dtj.core.planner import plan
from dtj.engine.patching import status_patch
from dtj.engine.stores import JobRecord
from support.older_schemas import ChangingSchema, in_another_group, schema_of, without_rule
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


# -- the definition itself -----------------------------------------------------------------------------------


def test_a_definition_can_be_applied_by_kubectl_again_and_over_an_older_one(
    cluster: ControlPlane, namespace: str
) -> None:
    definition = in_another_group(f"{namespace}.example")
    older = copy.deepcopy(definition)
    version = dig(older, "spec", "versions", 0)
    assert isinstance(version, dict)
    del version["selectableFields"]
    _with_the_old_switch(schema_of(older))
    _with_a_fractional_speed(schema_of(older))

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
    assert schema_of(cluster.api.request("GET", path)) == schema_of(definition)
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


# -- tensorBoard ---------------------------------------------------------------------------------------------

SWITCH = "tensorBoard.enabled is no longer a switch"
ENABLED_IS_GONE = f"{SWITCH}: remove enabled to turn TensorBoard on, or remove tensorBoard to turn it off"
STORE: JsonObject = {"path": "s3://bucket/digits"}


@pytest.mark.parametrize("enabled", [True, False], ids=["on", "off"])
def test_a_new_job_turns_tensorboard_on_by_its_object_alone(
    cluster: ControlPlane, namespace: str, enabled: bool
) -> None:
    with pytest.raises(KubectlError, match=ENABLED_IS_GONE):
        create(cluster, namespace, "one", roles={"worker": 1}, checkpoint=STORE, tensorBoard={"enabled": enabled})
    create(cluster, namespace, "one", roles={"worker": 1}, checkpoint=STORE)
    shown = ("get", "-n", namespace, "dtj/one", "-o", "jsonpath={.spec.tensorBoard}")
    for patch, board in (("{}", '{"ttlSeconds":3600}'), ("null", "")):
        cluster.kubectl(
            "patch", "-n", namespace, "dtj/one", "--type=merge", "-p", f'{{"spec":{{"tensorBoard":{patch}}}}}'
        )
        assert cluster.kubectl(*shown).stdout == board


def _with_the_old_switch(schema: JsonObject) -> None:
    without_rule(schema, ENABLED_IS_GONE)
    enabled = dig(schema, "properties", "spec", "properties", "tensorBoard", "properties", "enabled")
    assert isinstance(enabled, dict)
    enabled["default"] = True


def test_a_stored_job_keeps_its_switch_of_tensorboard_until_it_is_removed(
    cluster: ControlPlane, namespace: str
) -> None:
    kind = ChangingSchema(cluster, namespace, _with_the_old_switch)
    kind.create("on", checkpoint=STORE, tensorBoard={})
    kind.create("off", checkpoint=STORE, tensorBoard={"enabled": False})
    kind.upgrade(lambda: kind.refuses(checkpoint=STORE, tensorBoard={"enabled": True}))
    for name, was, is_on in (("on", True, True), ("off", False, False)):
        kind.patch(name, {"spec": {"tensorBoard": {"ttlSeconds": 9}}})
        kind.patch(name, {"status": {"state": "Running"}}, status=True)
        with pytest.raises(ApiError, match=SWITCH):
            kind.patch(name, {"spec": {"tensorBoard": {"enabled": not was}}})
        found = JobRecord.from_object(kind.get(name)).whole()
        assert found.spec is not None
        assert found.spec.tensor_board is not None
        assert found.spec.tensor_board.is_on is is_on
        kind.patch(name, {"spec": {"tensorBoard": {"enabled": None}}})
        assert dig(kind.get(name), "spec", "tensorBoard") == {"ttlSeconds": 9}
    kind.remove()


# -- claimTemplate -------------------------------------------------------------------------------------------

FLAT = "claimTemplate is the template of a PersistentVolumeClaim"
FLAT_TEMPLATE: JsonObject = {"storage": "1Gi", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}


@pytest.mark.parametrize("field", FLAT_TEMPLATE)
def test_a_new_claim_template_without_metadata_and_spec_is_refused(
    cluster: ControlPlane, namespace: str, field: str
) -> None:
    template: JsonObject = {**CLAIM_TEMPLATE, field: FLAT_TEMPLATE[field]}
    with pytest.raises(KubectlError, match=f"{FLAT}: write storage as spec.resources.requests.storage"):
        create(cluster, namespace, "one", checkpoint={"claimTemplate": template})


def _with_a_flat_claim(schema: JsonObject) -> None:
    without_rule(schema, next(rule.message for rule in RULES if rule.message.startswith(FLAT)))


def test_a_stored_job_keeps_its_flat_claim_template_and_can_be_written(cluster: ControlPlane, namespace: str) -> None:
    kind = ChangingSchema(cluster, namespace, _with_a_flat_claim)
    kind.create("digits", checkpoint={"claimTemplate": FLAT_TEMPLATE})
    kind.upgrade(lambda: kind.refuses(checkpoint={"claimTemplate": FLAT_TEMPLATE}))
    kind.patch("digits", {"status": {"state": "Running"}}, status=True)
    kind.patch("digits", {"spec": {"runPolicy": {"suspend": True}}})
    found = kind.get("digits")
    assert dig(found, "spec", "checkpoint", "claimTemplate") == FLAT_TEMPLATE
    spec = JobRecord.from_object(found).whole().spec
    assert spec is not None
    assert spec.checkpoint is not None
    assert spec.checkpoint.claim_template is not None
    assert spec.checkpoint.claim_template.claim_spec().storage_class_name == "fast"
    with pytest.raises(ApiError, match="checkpoint cannot be changed"):
        kind.patch("digits", {"spec": {"checkpoint": {"claimTemplate": {**CLAIM_TEMPLATE, "storage": None}}}})
    kind.remove()


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
    actions = plan(seen(record.whole()), NOW)
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


# -- progress ------------------------------------------------------------------------------------------------


def _with_a_fractional_speed(schema: JsonObject) -> None:
    progress = dig(schema, "properties", "status", "properties", "progress", "properties")
    assert isinstance(progress, dict)
    progress["examplesPerSecond"] = {"type": "number"}


def test_a_job_with_a_speed_of_decimals_can_be_written_and_its_next_speed_is_whole(
    cluster: ControlPlane, namespace: str
) -> None:
    kind = ChangingSchema(cluster, namespace, _with_a_fractional_speed)
    for name in ("digits", "probe"):
        kind.create(name, roles={"worker": 1})
    kind.patch("digits", _speed(12.5), status=True)
    kind.upgrade(lambda: _refuses_speed(kind, 0.5))
    kind.patch("digits", {"metadata": {"labels": {"team": "a"}}})
    kind.patch("digits", {"status": {"state": "Running"}}, status=True)
    assert JobRecord.from_object(kind.get("digits")).job.status.progress == Progress(examples_per_second=13)
    kind.patch("digits", _speed(13), status=True)
    assert dig(kind.get("digits"), "status", "progress", "examplesPerSecond") == 13
    kind.remove()


def _speed(number: float) -> JsonObject:
    return {"status": {"progress": {"examplesPerSecond": number}}}


def _refuses_speed(kind: ChangingSchema, number: float) -> bool:
    try:
        kind.patch("probe", _speed(number), status=True, dry_run=True)
    except ApiError:
        return True
    return False
