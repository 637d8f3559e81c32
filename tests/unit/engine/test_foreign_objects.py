"""Objects that others made, as large as the API server takes them: what is kept of them is what is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from builders import job
from dtj.api import kueue, volcano
from dtj.api.job import MAX_SPEC_VALUES
from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Label
from dtj.api.spec import MAX_REPLICAS, Role
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.membership import World
from dtj.core.observed import Child, GangObject
from dtj.core.platform import Platform
from dtj.core.replicas import Replica
from dtj.kube.gateway import SERVICES
from dtj.kube.informer import Informer
from dtj.kube.observed import LARGEST_STATUS, claim_from, gang_from, network_policy_from, pod_from, service_from
from dtj.kube.records import (
    ServiceRecord,
    decode_service,
    gang_from_object,
    plain_from_object,
    pod_from_object,
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


NOTES = (
    Annotation.CLUSTER,
    Annotation.POLICY_DIGEST,
    Annotation.GANG_SIZE,
    Annotation.GANG_PODS,
    Annotation.WORLD,
    kueue.ADMISSION_GATE,
)


def test_a_long_annotation_is_cut() -> None:
    metadata: JsonObject = {"annotations": dict.fromkeys(NOTES, LONG)}
    service = service_from(service_from_object({"metadata": metadata}))
    policy = network_policy_from(plain_from_object({"metadata": metadata}))
    workload = gang({}, **dict.fromkeys(NOTES, LONG))
    for note in (service.config_map, policy.digest, workload.size, workload.gated_by):
        assert 0 < len(note) < 2_000


SPECS: JsonObject = {"nodeName": LONG, "queueName": LONG, "containers": [{"name": LONG}]}
ENDED: JsonObject = {"terminated": {"exitCode": 1, "reason": LONG, "message": LONG}}
WAITING: JsonObject = {"waiting": {"reason": "ImagePullBackOff", "message": LONG}}
STATUSES: JsonObject = {
    **dict.fromkeys(("podIP", "reason", "message"), LONG),
    "phase": "Failed",
    "conditions": [{"type": LONG, "status": "True", "message": LONG}],
    "containerStatuses": [{"name": LONG, "state": ENDED}],
    "initContainerStatuses": [{"name": LONG, "state": WAITING}],
}
READERS: dict[str, Callable[[JsonObject], object]] = {
    "pod": lambda body: pod_from(pod_from_object(body)),
    "Service": lambda body: service_from(service_from_object({**body, "spec": {"selector": {LONG: LONG}}})),
    "NetworkPolicy": lambda body: network_policy_from(plain_from_object(body)),
    "claim": lambda body: claim_from(plain_from_object(body)),
    "Workload": lambda body: gang_from(APIS[0], gang_from_object(body)),
}


def characters(value: object) -> int:
    """Of all texts in an object that is kept."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(characters, (*value, *value.values())))
    if isinstance(value, list | tuple):
        return sum(map(characters, value))
    return sum(characters(getattr(value, field.name)) for field in fields(value)) if is_dataclass(value) else 0


@pytest.mark.parametrize("kind", READERS)
def test_whatever_an_object_says_at_length_little_of_it_is_kept_and_its_owner_is_no_job(kind: str) -> None:
    uid = "a" * 1_000_000
    metadata: JsonObject = {
        "labels": dict.fromkeys((Label.JOB_NAME, Label.ROLE, Label.INDEX, Label.ATTEMPT), LONG),
        "annotations": dict.fromkeys(NOTES, LONG),
        "ownerReferences": [{"uid": uid, "controller": True}],
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion"), LONG),
    }
    kept = READERS[kind]({"metadata": metadata, "spec": SPECS, "status": STATUSES})
    assert characters(kept) < {"pod": 60_000, "Workload": LARGEST_STATUS}.get(kind, 10_000)
    assert not any(kept.owner_uid == uid[:length] for length in range(300))  # type: ignore[attr-defined]


def test_the_longest_that_the_operator_tells_a_pod_of_its_world_is_kept() -> None:
    members = frozenset(Replica(Role.WORKER, index) for index in range(MAX_REPLICAS) if index % 3)
    large = job(name="n" * 63, roles={"worker": MAX_REPLICAS, "ps": MAX_REPLICAS})
    assert large.spec is not None
    told = World(10**9, members).text(large, large.spec, Platform().network)
    record = pod_from_object({"metadata": {"annotations": {Annotation.WORLD: told}}})
    assert len(told) > 30_000
    assert pod_from(record).world == told


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
    assert gang({"conditions": [{}] * MAX_SPEC_VALUES}).status == {}


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


def test_of_the_annotations_for_volcano_no_more_are_kept_than_it_may_know() -> None:
    assert len(volcano.kept_annotations({f"volcano.sh/{number}": "" for number in range(10_000)})) == 32


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
