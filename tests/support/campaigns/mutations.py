"""Changes of a job's spec, generated from the CRD's schema: each field, and values it allows (after Acto, SOSP'23).

The fields of the pod template that are lists or objects of lists themselves are left to Kubernetes, which checks them.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pydantic import JsonValue

from builders import CLAIM_TEMPLATE
from dtj.api.crd import job_schema
from dtj.api.json import JsonObject, dig

Path = tuple[str | int, ...]

GONE: Final = "(removed)"
"""The value of a field that is taken away."""


class Phase(StrEnum):
    """When a job is changed."""

    RUNNING = "running"
    SUSPENDED = "suspended"
    RESTARTING = "restarting"
    FINISHED = "finished"


@dataclass(frozen=True)
class Mutation:
    """A value for a field. As text ``runPolicy.suspend=true``."""

    path: Path
    value: JsonValue

    def __str__(self) -> str:
        shown = self.value if self.value == GONE else json.dumps(self.value)
        cut = shown if len(shown) <= 40 else f"{shown[:30]}...({len(shown)})"
        return f"{'.'.join(map(str, self.path))}={cut}"

    def applied(self, spec: JsonObject) -> JsonObject:
        """The spec with this change; objects on the way that are not there are made, with what they need."""
        changed = copy.deepcopy(spec)
        parent: Any = changed
        for depth, step in enumerate(self.path[:-1], start=1):
            if isinstance(parent, dict) and step not in parent:
                parent[step] = copy.deepcopy(_NEEDED.get(self.path[:depth], {}))
            parent = parent[step]
        if self.value == GONE:
            parent.pop(self.path[-1], None)
        else:
            parent[self.path[-1]] = self.value
        return changed


@dataclass(frozen=True)
class Transition:
    """A change in one phase; as text ``suspended:template.spec.hostname="a"``."""

    phase: Phase
    mutation: Mutation

    def __str__(self) -> str:
        return f"{self.phase}:{self.mutation}"


SPEC: Final[JsonObject] = {
    "strategy": "MultiWorkerMirrored",
    "replicaSpecs": {"worker": {"replicas": 2}},
    "elastic": {"minReplicas": 1, "maxReplicas": 4},
    "checkpoint": {"claimTemplate": CLAIM_TEMPLATE},
    "runPolicy": {"backoffLimit": 3},
    "template": {
        "spec": {"schedulerName": "nobody", "containers": [{"name": "trainer", "image": "example/trainer:1"}]}
    },
}
"""What is changed: a job of which most fields can be given a value."""

_NEEDED: Final[dict[Path, JsonObject]] = {
    ("accelerator",): {"profile": "nvidia-l4"},
    ("replicaSpecs", "worker", "accelerator"): {"profile": "nvidia-l4"},
    ("export",): {"path": "gs://bucket/model"},
    ("runPolicy", "onOutOfMemory"): {"increasePercent": 50, "maxMemory": "4Gi"},
}

_SAMPLES: Final[dict[str, tuple[JsonValue, ...]]] = {
    "storage": ("1Gi", "2Gi"),
    "maxMemory": ("1Gi",),
    "topology": ("2x4",),
    "path": ("gs://bucket/other", "/data"),
    "stallTimeoutSeconds": (3600,),
    "startDeadlineSeconds": (3600,),
    "activeDeadlineSeconds": (3600,),
    "ttlSecondsAfterFinished": (0, 3600),
    "ttlSeconds": (0, 3600),
    "schedulerName": ("nobody-else",),
    "replicas": (0, 1, 2, 4, 5),
    "port": (3333, 8433),
    "env": ([{"name": "A", "value": "b"}], [{"name": "TF_CONFIG", "value": "{}"}]),
    "resources": ({"limits": {"cpu": "1"}}, {"limits": {"cpu": "8 gigs"}}),
    "tolerations": ([{"key": "a", "operator": "Exists"}], [{"operator": "Never"}]),
    "volume": ({"emptyDir": {}},),
    "template": ({"spec": {"schedulerName": "nobody", "containers": [{"name": "trainer", "image": "b"}]}}, {}),
    "replicaSpecs": ({"worker": {"replicas": 2}, "chief": {"replicas": 1}}, {}),
    "terminationGracePeriodSeconds": (5, 60),
}
"""Values that differ by more than their type, or would only be waited for."""

_FRAGMENTS: Final = frozenset({"template", "env", "resources", "tolerations", "volume"})
"""Fields whose insides are Kubernetes' own."""

_FREE_MAPS: Final = frozenset({"nodeSelector", "labels", "annotations"})

_LEFT_OUT: Final = frozenset({"nodeName"})
"""A pod that has a node needs that node's kubelet to end."""


def mutations() -> list[Mutation]:
    """All changes: of our own fields, and of the plain ones of a pod template and its container."""
    schema = dig(job_schema(), "properties", "spec")
    assert isinstance(schema, dict)
    found = list(_below(schema, ()))
    pod = dig(schema, "properties", "template", "properties")
    assert isinstance(pod, dict)
    container = dig(pod, "spec", "properties", "containers", "items", "properties")
    for place, fields in (
        (("template", "metadata"), dig(pod, "metadata", "properties")),
        (("template", "spec"), dig(pod, "spec", "properties")),
        (("template", "spec", "containers", 0), container),
    ):
        assert isinstance(fields, dict)
        found += [
            mutation
            for name, field in sorted(fields.items())
            if isinstance(field, dict) and name not in _LEFT_OUT and (name in _FREE_MAPS or _is_plain(field))
            for mutation in _of((*place, name), field)
        ]
    return found


def transitions() -> list[Transition]:
    """Each change in each phase, where it changes anything."""
    suspended = Mutation(("runPolicy", "suspend"), True).applied(SPEC)
    return [
        Transition(phase, mutation)
        for mutation in mutations()
        for phase in Phase
        if mutation.applied(before := suspended if phase is Phase.SUSPENDED else SPEC) != before
    ]


def _below(schema: JsonObject, path: Path) -> Iterator[Mutation]:
    properties = schema.get("properties")
    name = path[-1] if path else ""
    if name == "replicaSpecs":
        yield from _of(path, schema)
        role = schema.get("additionalProperties")
        assert isinstance(role, dict)
        yield from _below(role, (*path, "worker"))
    elif isinstance(properties, dict) and name not in _FRAGMENTS:
        if path:
            yield Mutation(path, GONE)
        for field, below in properties.items():
            assert isinstance(below, dict)
            yield from _below(below, (*path, field))
    else:
        yield from _of(path, schema)


def _is_plain(schema: JsonObject) -> bool:
    return schema.get("type") in ("string", "integer", "boolean") or "x-kubernetes-int-or-string" in schema


def _of(path: Path, schema: JsonObject) -> Iterator[Mutation]:
    """The values that are tried for one field."""
    if path[-1] not in ("replicaSpecs", "worker", "strategy", "name"):
        yield Mutation(path, GONE)
    seen: list[str] = []
    for value in (*_SAMPLES.get(str(path[-1]), ()), *_fitting(path, schema)):
        if json.dumps(value) not in seen:
            seen.append(json.dumps(value))
            yield Mutation(path, value)


def _fitting(path: Path, schema: JsonObject) -> Iterator[JsonValue]:
    kind, values = schema.get("type"), schema.get("enum")
    if isinstance(values, list):
        yield from values
    elif path[-1] in _SAMPLES or path[-1] in _FRAGMENTS:
        return
    elif kind == "boolean":
        yield from (True, False)
    elif kind == "integer":
        least, most = schema.get("minimum"), schema.get("maximum")
        yield least if isinstance(least, int) else 1
        yield 7
        if isinstance(most, int):
            yield most
    elif kind == "string":
        yield from ("something", "Something else/1")
    elif kind == "array":
        items = schema.get("items")
        first = next(_fitting((*path, "item"), items), None) if isinstance(items, dict) else None
        yield from ([], [first])
    elif kind == "object":
        yield {}
        yield {"a": "b"}
