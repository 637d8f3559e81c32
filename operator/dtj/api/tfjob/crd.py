"""The CustomResourceDefinition of TFJobs: Kubeflow's, and ``status.dtj``, where the operator keeps its record.

It takes each manifest that Kubeflow's takes: limits of values are the matter of the policy, and of the pods' own API.
As there, the one exception is a quantity that is none.
It has no descriptions: Kubeflow's CRD is too large for a plain ``kubectl apply``.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Final

from pydantic import JsonValue

from dtj.api import quantities
from dtj.api.crd import structural, without
from dtj.api.json import JsonObject, dig, items_of, object_at
from dtj.api.pod_limits import LIMITS
from dtj.api.pod_schema import pod_template_schema
from dtj.api.status import JobStatus
from dtj.api.tfjob import names

FILE: Final = "crd.json"
"""Kubeflow's CRD (kubeflow/training-operator v1.9.4) without descriptions and without the schema of a pod template."""

_TEXT: Final[JsonObject] = {"type": "string"}
_ANYTHING: Final[JsonObject] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_KEPT: Final = ("type", "format", "nullable", "default")
_QUANTITY: Final[JsonObject] = {"pattern": f"^ *[+-]?({quantities.PATTERN}) *$", "maxLength": quantities.MAX_LENGTH}
"""What a text must be, with any sign, as in Kubeflow's CRD."""

_ADDED: Final = [limit["required"] for limit in LIMITS.values() if "required" in limit]
"""What :mod:`dtj.api.pod_limits` requires beyond Kubernetes' own document."""


def custom_resource_definition() -> JsonObject:
    """The whole CRD as JSON."""
    definition: JsonObject = json.loads(files("dtj.api.tfjob").joinpath(FILE).read_text())
    schema = dig(definition, "spec", "versions", 0, "schema", "openAPIV3Schema", "properties")
    # A role may be null: it would vanish without a word, and the policy refuses it.
    role = dig(schema, "spec", "properties", "tfReplicaSpecs", "additionalProperties")
    assert isinstance(role, dict)
    object_at(role, "properties")["template"] = _as_kubeflow(pod_template_schema())
    gang = dig(schema, "spec", "properties", "runPolicy", "properties", "schedulingPolicy", "properties")
    least = dig(gang, "minResources", "additionalProperties")
    assert isinstance(least, dict)
    least.update(_QUANTITY)
    status = dig(schema, "status")
    assert isinstance(status, dict)
    record = without(structural(JobStatus), "default", "description")
    object_at(record, "properties").pop("goodput")
    object_at(status, "properties")[names.RECORD] = record
    return definition


@cache
def schema() -> JsonObject:
    """The schema of a TFJob: see :func:`dtj.api.schema.check`."""
    found = dig(custom_resource_definition(), "spec", "versions", 0, "schema", "openAPIV3Schema")
    assert isinstance(found, dict)
    return found


def _as_kubeflow(schema: JsonObject, keys: JsonValue = None) -> JsonObject:
    """``schema`` without limits of values, and with the fields that Kubeflow's has besides. ``keys`` are those by which
    a list knows its items."""
    kept: JsonObject = {key: value for key, value in schema.items() if key in _KEPT or key.startswith("x-kubernetes-")}
    if schema.get("maxProperties") == 0:  # a quantity: a number or a text
        return {**kept, **_QUANTITY, "maxItems": 0, "maxProperties": 0}
    required = schema.get("required")
    if isinstance(required, list):
        always = ("key", *items_of(keys))
        kept["required"] = [field for field in required if required not in _ADDED or field in always]
    properties = schema.get("properties")
    if isinstance(properties, dict):
        fields: JsonObject = {
            name: _as_kubeflow(field) for name, field in properties.items() if isinstance(field, dict)
        }
        if "annotations" in fields:
            fields |= {"name": _TEXT, "namespace": _TEXT, "finalizers": {"type": "array", "items": _TEXT}}
        if "containers" in fields:
            fields |= {"ephemeralContainers": {"type": "array", "items": _ANYTHING}, "schedulingGroup": _ANYTHING}
        kept["properties"] = fields
    for key in ("items", "additionalProperties"):
        inner = schema.get(key)
        if isinstance(inner, dict):
            kept[key] = _as_kubeflow(inner, schema.get("x-kubernetes-list-map-keys"))
    return kept
