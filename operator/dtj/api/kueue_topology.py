"""Kueue's topology annotations on a pod template: how near to each other the pods of a role must be.

Read as Kueue reads them for the kinds of jobs that it knows: `tas.go` and `tas_validation.go` of its
`pkg/controller/jobframework`, version 0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from pydantic import JsonValue

from dtj.api.json import JsonObject, dig
from dtj.api.names import Label
from dtj.api.patterns import LABEL_KEY, matches
from dtj.api.spec import JobSpec

REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_REQUIRED: Final = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
GROUP: Final = "kueue.x-k8s.io/podset-group-name"
LAYERS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"

CHOICES: Final = (REQUIRED, PREFERRED, UNCONSTRAINED)
"""A template has one of them at most."""

_BOOLEANS: Final = {"true": True, "false": False}


def topology_request(template: JsonObject) -> JsonObject:
    """``topologyRequest`` of the pod set with this template. The index of a pod is its rank, also without annotations:
    a queue may place all its jobs by topology."""
    given = _annotations(template)
    fields: JsonObject = {"podIndexLabel": Label.INDEX}
    for annotation, field in ((REQUIRED, "required"), (PREFERRED, "preferred"), (GROUP, "podSetGroupName")):
        if annotation in given:
            fields[field] = given[annotation]
    if UNCONSTRAINED in given:
        fields["unconstrained"] = _BOOLEANS[given[UNCONSTRAINED]]
    if SLICE_REQUIRED in given:
        fields["podSetSliceRequiredTopology"] = given[SLICE_REQUIRED]
        fields["podSetSliceSize"] = int(given[SLICE_SIZE])
    return fields


def problems(spec: JobSpec) -> Iterator[str]:
    """What is wrong with the annotations of a job in a queue of Kueue."""
    for role in spec.roles():
        role_spec = spec.replica_specs.get(role)
        own = role_spec.template if role_spec is not None else None
        field = "spec.template" if own is None else f"spec.replicaSpecs.{role}.template"
        for problem in _problems(_annotations(own or spec.template or {})):
            yield f"{field}.metadata.annotations: {problem}"


def _problems(given: Mapping[str, str]) -> Iterator[str]:
    chosen = [name for name in CHOICES if name in given]
    if len(chosen) > 1:
        yield f"{' and '.join(chosen)} exclude each other: remove all but one"
    for name in (REQUIRED, PREFERRED, SLICE_REQUIRED):
        if name in given and not matches(LABEL_KEY, given[name]):
            yield (
                f"{name} must be a level of a Topology, which is the key of a label of nodes, such as "
                f"topology.kubernetes.io/rack, not {given[name]!r}"
            )
    if given.get(UNCONSTRAINED, "true") not in _BOOLEANS:
        yield f'{UNCONSTRAINED} must be "true" or "false", not {given[UNCONSTRAINED]!r}'
    if (SLICE_REQUIRED in given) != (SLICE_SIZE in given):
        yield f"{SLICE_REQUIRED} and {SLICE_SIZE} belong together: set both, or remove both"
    size = given.get(SLICE_SIZE, "1")
    if not (size.isascii() and size.isdigit() and 0 < int(size) <= _MAX_INT32):
        yield f"{SLICE_SIZE} must be a number of pods from 1 to {_MAX_INT32:,}, not {size!r}"
    if GROUP in given and REQUIRED not in given and PREFERRED not in given:
        yield f"{GROUP} needs {REQUIRED} or {PREFERRED}: set one of them, or remove it"
    if GROUP in given and SLICE_REQUIRED in given:
        yield f"{GROUP} and {SLICE_REQUIRED} exclude each other: remove one of them"
    if LAYERS in given:
        yield f"{LAYERS} is not supported: remove it, or set {SLICE_REQUIRED} and {SLICE_SIZE} for one layer"


_MAX_INT32: Final = 2_147_483_647


def _annotations(template: JsonObject) -> dict[str, str]:
    found: JsonValue = dig(template, "metadata", "annotations")
    return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}
