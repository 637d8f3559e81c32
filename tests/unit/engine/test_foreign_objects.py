"""Objects that others made, as large as the API server takes them: what is kept of them is what is read."""

from __future__ import annotations

from typing import Any

import pytest

from dtj.api import kueue
from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Label
from dtj.core.gang.discovery import APIS
from dtj.core.observed import Child, GangObject
from dtj.kube.gateway import SERVICES
from dtj.kube.informer import Informer
from dtj.kube.observed import LARGEST_STATUS, gang_from, network_policy_from, service_from
from dtj.kube.records import (
    ServiceRecord,
    decode_service,
    gang_from_object,
    plain_from_object,
    service_from_object,
)
from support.fake_gateway import FakeGateway
from support.virtual_time import virtual_time

LONG = "x" * 200_000
OURS = {Label.JOB_UID: "u", Label.ATTEMPT: "1"}
ASSIGNMENT: JsonObject = {"name": "worker", "flavors": {"cpu": "spot"}, "count": 2}
CONDITION: JsonObject = {"type": "Admitted", "status": "True", "observedGeneration": 3, "message": "m"}
UPDATE: JsonObject = {"name": "worker", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "c"}]}


def gang(status: JsonObject, **annotations: str) -> GangObject:
    body: JsonObject = {"metadata": {"name": "digits", "annotations": {**annotations}}, "status": status}
    return gang_from(APIS[0], gang_from_object(body))


def test_a_selector_of_ours_is_kept_and_one_that_cannot_be_ours_is_equal_to_none() -> None:
    def kept(selector: dict[str, str]) -> dict[str, str]:
        return service_from(service_from_object({"spec": {"selector": {**selector}}})).selector

    assert kept(OURS) == OURS
    assert kept({**OURS, **{f"k{number}": "" for number in range(100_000)}}) == {"": ""}
    assert kept({**OURS, "a": LONG}) == {"": ""}


def test_a_long_annotation_is_cut() -> None:
    notes = (Annotation.CLUSTER, Annotation.POLICY_DIGEST, Annotation.GANG_SIZE, kueue.ADMISSION_GATE)
    metadata: JsonObject = {"annotations": dict.fromkeys(notes, LONG)}
    service = service_from(service_from_object({"metadata": metadata}))
    policy = network_policy_from(plain_from_object({"metadata": metadata}))
    workload = gang({}, **dict.fromkeys(notes, LONG))
    for note in (service.config_map, policy.digest, workload.size, workload.gated_by):
        assert 0 < len(note) < 2_000


def test_of_a_workloads_status_what_is_read_is_kept() -> None:
    read: JsonObject = {
        "conditions": [CONDITION],
        "admission": {"clusterQueue": "gpus", "podSetAssignments": [{**ASSIGNMENT, "topologyAssignment": {}}]},
        "admissionChecks": [{"podSetUpdates": [UPDATE]}],
        "reclaimablePods": [{"name": "worker", "count": 1}],
        "accumulatedPastExecutionTimeSeconds": 7,
    }
    stored: JsonObject = {
        **read,
        "admission": {
            "clusterQueue": "gpus",
            "podSetAssignments": [{**ASSIGNMENT, "resourceUsage": {"cpu": LONG}, "topologyAssignment": {"a": [LONG]}}],
        },
        "admissionChecks": [{"name": "n", "state": "Ready", "message": LONG, "podSetUpdates": [UPDATE]}],
        "requeueState": {"count": 1},
        "others": {"a": LONG},
    }
    assert gang(stored).status == read
    pending: JsonObject = {"name": "n", "state": "Pending", "message": LONG}
    assert 0 < len(str(gang({"admissionChecks": [pending]}).status)) < 2_000
    assert gang({"admission": {"clusterQueue": "a"}}).status == {
        "admission": {"clusterQueue": "a", "podSetAssignments": []}
    }


def test_a_status_larger_than_that_of_any_scheduler_is_not_kept() -> None:
    assert gang({"conditions": ["y" * LARGEST_STATUS]}).status == {}


@pytest.mark.parametrize("field", ["conditions", "admission", "admissionChecks", "reclaimablePods"])
@pytest.mark.parametrize("value", [None, 7, "text", [7], {"podSetAssignments": 7}])
def test_a_status_of_any_shape_is_read(field: str, value: Any) -> None:
    gang({field: value})


def test_of_the_parameters_of_a_provisioning_request_no_more_are_kept_than_show_that_they_are_too_many() -> None:
    prefix = kueue.PROVISIONING_PREFIX
    gate = {kueue.ADMISSION_GATE: "a.b/c"}
    few = {f"{prefix}{number}": "" for number in range(100)}
    assert kueue.kept_annotations({**few, **gate}) == {**few, **gate}
    many = {f"{prefix}{number}": "" for number in range(10_000)}
    assert len(kueue.kept_annotations({**many, **gate})) == 102


@virtual_time
async def test_the_objects_of_a_list_are_not_all_decoded_at_the_same_time(gateway: FakeGateway) -> None:
    """A Service of 1.2 MiB takes 11 MiB, and a list may have many."""
    for number in range(5):
        gateway.put(SERVICES, {"metadata": {"name": f"s{number}", "labels": {Label.JOB_NAME: "x"}}})
    order: list[str] = []

    def decode(body: bytes) -> ServiceRecord:
        order.append("decoded")
        return decode_service(body)

    def convert(record: ServiceRecord) -> Child:
        order.append("converted")
        return service_from(record)

    informer = Informer(
        gateway, SERVICES, decode=decode, convert=convert, on_change=lambda _: None, selector=Label.JOB_NAME
    )
    await informer._list()
    assert order == ["decoded", "converted"] * 5
