"""The CustomResourceDefinition, generated from the types of :mod:`dtj.api.spec` and :mod:`dtj.api.status`.

``make generate`` writes it to ``crds/``, and CI fails when that is stale.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Final

from pydantic import BaseModel

from dtj.api import names
from dtj.api.base import POD_TEMPLATE_PATH, QUANTITY, VOLUME_SOURCE
from dtj.api.json import JsonObject, dig, fields_of
from dtj.api.pod_schema import QUANTITY_SCHEMA, fragment, pod_template_schema, volume_source_schema
from dtj.api.rule import ANY_KEY, Path, Rule
from dtj.api.rules import RULES
from dtj.api.spec import JobSpec
from dtj.api.status import JobStatus

_KEPT: Final = (
    "type",
    "format",
    "description",
    "enum",
    "required",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "pattern",
    "x-kubernetes-int-or-string",
)

PRINTER_COLUMNS: Final = (
    ("State", "string", ".status.state", 0),
    ("Strategy", "string", ".spec.strategy", 0),
    ("Ready", "string", ".status.ready", 0),
    ("Progress", "string", ".status.progress.text", 0),
    ("Restarts", "integer", ".status.restarts.total", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Step", "integer", ".status.progress.step", 1),
    ("Ex/s", "integer", ".status.progress.examplesPerSecond", 1),
    ("ETA(s)", "integer", ".status.progress.etaSeconds", 1),
    ("Reason", "string", ".status.reason", 1),
    ("Attempt", "integer", ".status.attempt", 1),
)


SELECTABLE_FIELDS: Final = (
    ".spec.strategy",
    ".spec.runPolicy.scheduling.queue",
    ".status.state",
    ".status.reason",
)
"""What ``kubectl get --field-selector`` and a watch can select by. Kubernetes allows eight; 1.30 and 1.31 ignore them
unless the feature gate CustomResourceFieldSelectors is on."""


def custom_resource_definition() -> JsonObject:
    """The whole CRD as JSON."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{names.PLURAL}.{names.GROUP}",
            "labels": {"app.kubernetes.io/name": "dtj", "app.kubernetes.io/part-of": "dtj"},
        },
        "spec": {
            "group": names.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": names.PLURAL,
                "singular": names.SINGULAR,
                "shortNames": [names.SHORT_NAME],
                "categories": [names.CATEGORY],
            },
            "versions": [
                {
                    "name": names.VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": copy.deepcopy(job_schema())},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicaSpecs.worker.replicas",
                            "statusReplicasPath": ".status.replicaStatuses.worker.active",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        # The API server leaves a priority of 0 out: with it, the CRD would never be as it was applied.
                        {"name": name, "type": kind, "jsonPath": path, **({"priority": priority} if priority else {})}
                        for name, kind, path, priority in PRINTER_COLUMNS
                    ],
                    "selectableFields": [{"jsonPath": path} for path in SELECTABLE_FIELDS],
                }
            ],
        },
    }


@cache
def job_schema() -> JsonObject:
    """The structural schema of a job, with the rules in place. Shared: do not change it."""
    schema: JsonObject = {
        "type": "object",
        "description": "DistributedTrainingJob trains a model with one of TensorFlow's distribution strategies.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
            "spec": structural(JobSpec),
            # A job that no operator has seen is in progress to kstatus, because its generation is not observed yet.
            # What the operator left out of a status is not there, and not to be filled in.
            "status": {**without(structural(JobStatus), "default"), "default": {"observedGeneration": -1}},
        },
    }
    _make_lists_mergeable(schema)
    for rule in RULES:
        for place in rule.at:
            target = _at(schema, place)
            validations = target.setdefault("x-kubernetes-validations", [])
            assert isinstance(validations, list)
            validations.append(_validation(rule))
    return schema


def structural(model: type[BaseModel]) -> JsonObject:
    """A model's JSON schema in the structural form that CRDs require: no references, no unions, no titles."""
    source = model.model_json_schema(by_alias=True)
    return _convert(source, fields_of(source.get("$defs")))


def without(schema: JsonObject, *keywords: str) -> JsonObject:
    """``schema`` without these keywords, at any level. Fields of these names stay."""
    return {
        key: {name: without(field, *keywords) for name, field in value.items() if isinstance(field, dict)}
        if key == "properties" and isinstance(value, dict)
        else without(value, *keywords)
        if isinstance(value, dict)
        else value
        for key, value in schema.items()
        if key not in keywords
    }


def _convert(source: JsonObject, definitions: JsonObject) -> JsonObject:
    path = source.get(POD_TEMPLATE_PATH)
    if isinstance(path, list):
        return _described(_from_kubernetes(tuple(map(str, path))), source)
    reference = source.get("$ref")
    if isinstance(reference, str):
        target = definitions[reference.rpartition("/")[2]]
        assert isinstance(target, dict)
        return _described(_convert(target, definitions), source)
    union = source.get("anyOf")
    if isinstance(union, list):
        present = next(option for option in union if isinstance(option, dict) and option.get("type") != "null")
        return _described(_convert(present, definitions), source)
    return _convert_plain(source, definitions)


def _from_kubernetes(path: tuple[str, ...]) -> JsonObject:
    if not path:
        return copy.deepcopy(pod_template_schema())
    if path == QUANTITY:
        return dict(QUANTITY_SCHEMA)
    if path == VOLUME_SOURCE:
        return volume_source_schema()
    return copy.deepcopy(fragment(*path))


def _convert_plain(source: JsonObject, definitions: JsonObject) -> JsonObject:
    kept: JsonObject = {key: copy.deepcopy(source[key]) for key in _KEPT if key in source}
    kept |= _machine_type(kept)
    properties = source.get("properties")
    if isinstance(properties, dict):
        kept["properties"] = {
            name: _convert(inner, definitions) for name, inner in properties.items() if isinstance(inner, dict)
        }
    for key in ("items", "additionalProperties"):
        inner = source.get(key)
        if isinstance(inner, dict):
            converted = _convert(inner, definitions)
            if _allows_null(inner):
                converted["nullable"] = True
            kept[key] = converted
    return kept


def _machine_type(schema: JsonObject) -> JsonObject:
    """What the API conventions ask for and JSON schemas of Python types do not say: the width of an integer, and how
    a list merges under server-side apply. A list is atomic, written as a whole by one owner, unless it says otherwise.
    """
    if schema.get("type") == "integer":
        largest = schema.get("maximum")
        return {"format": "int32" if isinstance(largest, int) and largest <= _MAX_INT32 else "int64"}
    return {"x-kubernetes-list-type": "atomic"} if schema.get("type") == "array" else {}


_MAX_INT32: Final = 2**31 - 1


def _described(schema: JsonObject, source: JsonObject) -> JsonObject:
    """``schema`` with the keywords at the place of its use: description, default, sizes.

    An object's default is empty: the API server fills in those of its fields.
    """
    schema.update({key: copy.deepcopy(source[key]) for key in _KEPT if source.get(key) is not None and key != "type"})
    if isinstance(schema.get("default"), dict):
        schema["default"] = {}
    return schema


def _allows_null(source: JsonObject) -> bool:
    union = source.get("anyOf")
    return isinstance(union, list) and {"type": "null"} in union


def _make_lists_mergeable(schema: JsonObject) -> None:
    """Conditions merge by type under server-side apply, as metav1.Condition asks."""
    conditions = _at(schema, ("status", "conditions"))
    conditions["x-kubernetes-list-type"] = "map"
    conditions["x-kubernetes-list-map-keys"] = ["type"]


def _at(schema: JsonObject, place: Path) -> JsonObject:
    found: object = schema
    for step in place:
        found = dig(found, "additionalProperties") if step == ANY_KEY else dig(found, "properties", step)  # type: ignore[arg-type]
    assert isinstance(found, dict), f"no schema at {'.'.join(place)}"
    return found


def _validation(rule: Rule) -> JsonObject:
    validation: JsonObject = {"rule": rule.cel, "message": rule.message}
    if rule.message_cel:
        validation["messageExpression"] = rule.message_cel
    if rule.field:
        validation["fieldPath"] = f".{rule.field}"
    return validation
