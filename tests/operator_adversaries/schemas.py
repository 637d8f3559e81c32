"""What objects can hold, as JSON Schemas: of the operator's own records, and of the CRDs of the jobs."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec

from dtj.api import crd, names
from dtj.api.goodput import Sums, Use
from dtj.api.json import JsonObject
from dtj.api.node_losses import Corrupt
from dtj.api.status import ExportedModel, Progress, RootCause
from dtj.api.tfjob import crd as tfjob_crd
from dtj.api.tfjob import names as tfjob_names
from dtj.kube.records import GangRecord, PlainRecord, PodRecord, ServiceRecord
from operator_adversaries.sample import Path

RECORDS: Final[dict[str, type]] = {
    "pods": PodRecord,
    "services": ServiceRecord,
    "persistentvolumeclaims": PlainRecord,
    "networkpolicies": PlainRecord,
    "workloads": GangRecord,
    "podgroups": GangRecord,
}


def _constants(*groups: type) -> list[str]:
    return sorted(
        {value for group in groups for value in vars(group).values() if isinstance(value, str) and "/" in value}
    )


LABELS: Final = [
    *_constants(names.Label, tfjob_names.Label),
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/priority-class",
]
ANNOTATIONS: Final = [
    *_constants(names.Annotation),
    "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/podset-slice-size", "kueue.x-k8s.io/admission-gated-by",
    "kueue.x-k8s.io/podset-required-topology",
]  # fmt: skip


def _words_of_pods() -> list[str]:
    """The fields of what a pod says, wherever it says it."""
    models = (Progress, Sums, RootCause, ExportedModel, Corrupt)
    return [
        *(field.alias or name for model in models for name, field in model.model_fields.items()),
        *Use,
        "stepSeconds",
        "progress",
        "export",
        "unknown",
    ]


WORDS: Final = _words_of_pods()

EVENT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "metadata": {"type": "object", "properties": {"annotations": {"additionalProperties": {"type": "string"}}}},
        "reason": {"type": "string", "maxLength": 128},
        "note": {"type": "string", "maxLength": 1024},
        "type": {"type": "string"},
        "action": {"type": "string", "maxLength": 128},
        "eventTime": {"type": "string"},
        "deprecatedLastTimestamp": {"type": "string"},
        "deprecatedCount": {"type": "integer", "format": "int32"},
        "series": {
            "type": "object",
            "properties": {"count": {"type": "integer", "format": "int32"}, "lastObservedTime": {"type": "string"}},
        },
        "regarding": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in ("kind", "name", "uid", "fieldPath")},
        },
    },
}
"""What of an Event somebody else can write."""


@cache
def schema_of(kind: str) -> JsonObject:
    """What an object of this kind can hold, as a JSON Schema."""
    if kind == "events":
        return EVENT
    if kind in RECORDS:
        (_,), components = msgspec.json.schema_components([RECORDS[kind]], ref_template="{name}")
        found: JsonObject = {"$ref": RECORDS[kind].__name__, "definitions": components}
        return found
    definition = crd if kind == names.KIND else tfjob_crd
    body: Any = definition.custom_resource_definition()
    return body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]  # type: ignore[no-any-return]


READ: Final = {
    "pods": (names.Annotation.WORLD, names.Annotation.WORLD, names.Annotation.MAIN_CONTAINER),
    "services": (names.Annotation.CLUSTER,),
    "networkpolicies": (names.Annotation.POLICY_DIGEST,),
    "workloads": (names.Annotation.GANG_SIZE, names.Annotation.GANG_PODS, names.Annotation.LAST_CHECKPOINT),
    "podgroups": (names.Annotation.GANG_SIZE,),
}
"""Annotations that are read of a kind."""


@cache
def free_places(kind: str) -> tuple[Path, ...]:
    """The places of a job whose schema keeps unknown fields."""
    found: list[Path] = []

    def look(at: Any, path: Path) -> None:
        if at.get("x-kubernetes-preserve-unknown-fields") and "x-kubernetes-int-or-string" not in at:
            found.append(path)
        for key, below in at.get("properties", {}).items():
            look(below, (*path, key))
        if isinstance(below := at.get("additionalProperties"), dict):
            look(
                below,
                (*path, "Worker" if path[-1] == "tfReplicaSpecs" else "worker" if path[-1] == "replicaSpecs" else "x"),
            )
        if isinstance(below := at.get("items"), dict):
            look(below, (*path, 0))

    look(schema_of(kind), ())
    return tuple(found)


def resolved(at: Any, schema: Any) -> Any:
    """A schema without references, and without what says that it may be null."""
    while True:
        if "$ref" in at:
            at = schema["definitions"][at["$ref"]]
        elif "anyOf" in at and "type" not in at and "properties" not in at and at["anyOf"]:
            at = next((one for one in at["anyOf"] if one.get("type") != "null"), {})
        else:
            return at
