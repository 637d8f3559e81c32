"""Anybody may create objects with our labels: of each only so much is kept as one of ours has."""

from __future__ import annotations

import msgspec
import pytest

from dtj.api.json import JsonObject
from dtj.api.names import Annotation
from dtj.convert.object_records import LARGEST_STATUS, LONGEST_ANNOTATION, gang_from, network_policy_from, service_from
from dtj.core.gang.discovery import APIS as APIS
from dtj.kube.records import GangRecord, PlainRecord, ServiceRecord

pytestmark = pytest.mark.unit

LONG = "x" * 300_000


def metadata(**annotations: str) -> JsonObject:
    return {"name": "digits", "namespace": "team-a", "uid": "u", "annotations": dict(annotations)}


@pytest.mark.parametrize(
    "selector", [{f"key-{i}": "value" for i in range(20_000)}, {"a": LONG}], ids=["many keys", "a long value"]
)
def test_a_selector_that_cannot_be_ours_is_not_kept_and_is_equal_to_none_of_ours(selector: dict[str, str]) -> None:
    record = msgspec.convert({"metadata": metadata(), "spec": {"selector": selector}}, ServiceRecord)
    assert service_from(record).selector == {"": ""}


def test_a_selector_of_ours_is_kept() -> None:
    selector = {"training.dtj.dev/job-name": "digits", "training.dtj.dev/attempt": "2"}
    record = msgspec.convert({"metadata": metadata(), "spec": {"selector": selector}}, ServiceRecord)
    assert service_from(record).selector == selector


def test_an_annotation_is_kept_as_far_as_one_of_ours_is_long() -> None:
    policy = msgspec.convert({"metadata": metadata(**{Annotation.POLICY_DIGEST: LONG})}, PlainRecord)
    assert len(network_policy_from(policy).digest) == LONGEST_ANNOTATION
    group = msgspec.convert({"metadata": metadata(**{Annotation.GANG_SIZE: LONG})}, GangRecord)
    assert len(gang_from(APIS[0], group).size) == LONGEST_ANNOTATION


def test_a_status_larger_than_that_of_any_scheduler_is_not_kept() -> None:
    group = msgspec.convert({"metadata": metadata(), "status": {"conditions": "y" * LARGEST_STATUS}}, GangRecord)
    assert gang_from(APIS[0], group).status == {}
