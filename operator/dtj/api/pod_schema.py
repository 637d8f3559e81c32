"""The schema of a PodTemplateSpec, taken from Kubernetes' own OpenAPI document, of version :data:`KUBERNETES`.

``kubectl get --raw /openapi/v3/api/v1 | python -m dtj.api.pod_schema`` with a server of that version writes the file
again. Descriptions, ephemeral containers and what only servers set are left out: this is what keeps the CRD small
enough for a plain ``kubectl apply``. :mod:`dtj.api.pod_limits` adds what the document does not say.
"""

from __future__ import annotations

import copy
import json
import sys
from functools import cache
from importlib.resources import files
from typing import Final

from dtj.api import quantities
from dtj.api.json import JsonObject, dig, items_of
from dtj.api.pod_limits import LIMITS, PORT_OR_NAME, PREFIX

FILE: Final = "pod_template_schema.json"
KUBERNETES: Final = "1.35"
"""The version whose fields of pods are known. The API server drops others, as it does for a built-in kind."""

LONGEST_LIST: Final = 256
"""Items of a list of a pod that has no other limit, so that the schema bounds each list."""

_KEPT: Final = (
    "type",
    "format",
    "enum",
    "required",
    "nullable",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
)

QUANTITY_SCHEMA: Final[JsonObject] = {
    "x-kubernetes-preserve-unknown-fields": True,
    "pattern": quantities.FIELD_PATTERN,
    "maxLength": quantities.MAX_LENGTH,
    "minimum": 0,
    "maxItems": 0,
    "maxProperties": 0,
}
"""A number, or a text that is a quantity: a pattern applies to texts alone. ``cpu: 0.5`` is a number that is not an
integer, so x-kubernetes-int-or-string would refuse it. A list or an object, which could hold anything, has no items."""

_REPLACED: Final[dict[str, JsonObject]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": QUANTITY_SCHEMA,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"x-kubernetes-int-or-string": True, **PORT_OR_NAME},
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {
        "type": "object",
        "properties": {
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
            "creationTimestamp": {"type": "string", "nullable": True},
        },
    },
}

_DROPPED_FIELDS: Final = frozenset({"ephemeralContainers"})


@cache
def pod_template_schema() -> JsonObject:
    """The structural schema of a PodTemplateSpec."""
    loaded: JsonObject = json.loads(files("dtj.api").joinpath(FILE).read_text())
    return loaded


def volume_source_schema() -> JsonObject:
    """The schema of a volume without its name: what a volume may be made of."""
    volume = copy.deepcopy(dig(fragment("spec", "volumes"), "items"))
    assert isinstance(volume, dict)
    properties = volume["properties"]
    assert isinstance(properties, dict)
    del properties["name"], volume["required"]
    volume["minProperties"] = volume["maxProperties"] = 1
    return volume


def fragment(*path: str) -> JsonObject:
    """The part of the schema at ``path``; lists on the way are stepped into.

    Raises KeyError if there is none.
    """
    found: JsonObject = pod_template_schema()
    for step in path:
        inner = dig(found, "items")
        child = dig(inner if isinstance(inner, dict) else found, "properties", step)
        if not isinstance(child, dict):
            raise KeyError(".".join(path))
        found = child
    return found


def extract(openapi: JsonObject) -> JsonObject:
    """The structural schema of PodTemplateSpec out of an OpenAPI v3 document of ``/api/v1``."""
    return _resolve(openapi, f"{PREFIX}PodTemplateSpec")


def _resolve(openapi: JsonObject, name: str) -> JsonObject:
    if name in _REPLACED:
        return dict(_REPLACED[name])
    definition = dig(openapi, "components", "schemas", name)
    assert isinstance(definition, dict), f"{name} is not in the document"
    return _convert(openapi, definition, name)


def _convert(openapi: JsonObject, schema: JsonObject, name: str) -> JsonObject:
    reference = dig(schema, "$ref") or dig(schema, "allOf", 0, "$ref")
    if isinstance(reference, str):
        return _resolve(openapi, reference.rpartition("/")[2])
    kept: JsonObject = {**{key: schema[key] for key in _KEPT if key in schema}, **LIMITS.get(name, {})}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        kept["properties"] = {
            field: {**_convert(openapi, inner, ""), **LIMITS.get(f"{name}.{field}", {})}
            for field, inner in properties.items()
            if isinstance(inner, dict) and field not in _DROPPED_FIELDS
        }
    for key in ("items", "additionalProperties"):
        inner = schema.get(key)
        if isinstance(inner, dict):
            kept[key] = _convert(openapi, inner, "")
    if kept.get("type") == "array":
        kept.setdefault("maxItems", LONGEST_LIST)
    _default_list_keys(kept)
    return kept


def _default_list_keys(schema: JsonObject) -> None:
    """A key of a list of type map must be required or have a default, as ``protocol`` of a port has.

    Kubernetes' other defaults are left to Kubernetes: most are the empty string for "not set".
    """
    required = items_of(dig(schema, "items", "required"))
    for key in items_of(schema.get("x-kubernetes-list-map-keys")):
        field = dig(schema, "items", "properties", str(key))
        if isinstance(field, dict) and key not in required:
            field["default"] = "TCP" if key == "protocol" else ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(extract(json.load(sys.stdin)), separators=(",", ":"), sort_keys=True) + "\n")
