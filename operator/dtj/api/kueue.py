"""What Kueue means on a job: its labels and annotations, as users know them from other jobs, and MultiKueue's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, dig, fields_of, text, whole_number
from dtj.api.names import DOMAIN_PATH, LABEL_KEY, Label, matches
from dtj.api.spec import Gang, JobSpec

_MAX_INT32: Final = 2_147_483_647
_MAX_SHOWN: Final = 64
"""Most characters of a wrong value that a message repeats."""


def problems(spec: JobSpec, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[str]:
    """What is wrong with Kueue's labels and annotations; ``spec`` is the one with the queue that the label names.

    Annotations mean nothing for a job that is in no queue of Kueue.
    """
    yield from _label_problems(spec, labels)
    gang = spec.scheduling.gang
    if gang is Gang.KUEUE or (gang is Gang.AUTO and spec.scheduling.queue is not None):
        yield from _topology_problems(spec)
        yield from _annotation_problems(annotations)


# -- labels of a job ---------------------------------------------------------------------------------------------

QUEUE: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
MAX_EXECUTION_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"


def in_queue(spec: JobSpec, queue: str) -> JobSpec:
    """``spec`` with this LocalQueue of Kueue, if the name is not empty and :func:`leaves_queue_open`."""
    if not queue or not leaves_queue_open(spec):
        return spec
    queued = spec.scheduling.model_copy(update={"gang": Gang.KUEUE, "queue": queue})
    return spec.model_copy(update={"run_policy": spec.run_policy.model_copy(update={"scheduling": queued})})


def leaves_queue_open(spec: JobSpec) -> bool:
    """Whether a job names no queue, and no scheduler but Kueue."""
    return spec.scheduling.queue is None and spec.scheduling.gang in (Gang.AUTO, Gang.KUEUE)


def priority_class(labels: Mapping[str, str]) -> str:
    """The WorkloadPriorityClass with whose priority the job is queued; empty if it names none."""
    return labels.get(PRIORITY_CLASS, "")


def max_execution_seconds(labels: Mapping[str, str]) -> int | None:
    """How long Kueue lets the job run in all; None without a valid label."""
    given = labels.get(MAX_EXECUTION_SECONDS, "")
    return whole_number(given, most=_MAX_INT32) or None


def _label_problems(spec: JobSpec, labels: Mapping[str, str]) -> Iterator[str]:
    queue, scheduling = labels.get(QUEUE), spec.scheduling
    if queue and scheduling.queue != queue:
        other = f"queue {scheduling.queue}" if scheduling.queue is not None else f"gang {scheduling.gang}"
        yield (
            f"metadata.labels: {QUEUE} names the queue {queue}, but runPolicy.scheduling names {other}: remove one of "
            "the two"
        )
    if MAX_EXECUTION_SECONDS in labels and max_execution_seconds(labels) is None:
        yield (
            f"metadata.labels: {MAX_EXECUTION_SECONDS} must be a number of seconds from 1 to {_MAX_INT32:,}, not "
            f"{labels[MAX_EXECUTION_SECONDS]!r}"
        )


# -- annotations of a job: what its Workload must have too, and what our operator does not do ---------------------

PROVISIONING_PREFIX: Final = "provreq.kueue.x-k8s.io/"
"""Parameters of a ProvisioningRequest, such as ``provreq.kueue.x-k8s.io/maxRunDurationSeconds``."""

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission-gated-by"
"""While a job has it, Kueue does not admit the job. Its value names the controllers that remove it."""

_MAX_GATE: Final = 63
"""Most characters of one gate."""

_MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"

_MAX_PARAMETERS: Final = 100
"""Most parameters that the API server takes in a ProvisioningRequest."""


def kept_annotations(annotations: Mapping[str, object]) -> dict[str, str]:
    """Those of a job's annotations that are read; all others may be long. One parameter too many is kept: it shows that
    there are too many, and a job may have thousands."""
    found = ((key, value) for key, value in annotations.items() if _is_read(key) and isinstance(value, str))
    others: dict[str, str] = {}
    parameters: dict[str, str] = {}
    for key, value in found:
        if not key.startswith(PROVISIONING_PREFIX):
            others[key] = value
        elif len(parameters) <= _MAX_PARAMETERS:
            parameters[key] = value
    return {**others, **parameters}


def annotations_of_workload(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations that the Workload of a job with ``annotations`` gets."""
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith(PROVISIONING_PREFIX) or (key == ADMISSION_GATE and value)
    }


def gates(annotation: str) -> list[str]:
    """The gates that a value of :data:`ADMISSION_GATE` lists."""
    return [each.strip() for each in annotation.split(",")] if annotation.strip() else []


def _annotation_problems(annotations: Mapping[str, str]) -> Iterator[str]:
    """What a queued job asks for that our operator does not do, or that Kueue refuses."""
    listed = gates(annotations.get(ADMISSION_GATE, ""))
    if len(set(listed)) < len(listed) or not all(len(g) <= _MAX_GATE and matches(DOMAIN_PATH, g) for g in listed):
        yield (
            f"metadata.annotations: {ADMISSION_GATE} must list controllers, each once and as a domain and a path of "
            f"{_MAX_GATE} characters at most, such as example.com/budget, not {annotations[ADMISSION_GATE]!r}"
        )
    if _MIN_PARALLELISM in annotations:
        yield (
            f"metadata.annotations: {_MIN_PARALLELISM}: the least number of workers is spec.elastic.minReplicas: set "
            "it there, and remove the annotation"
        )
    if annotations.get(_ELASTIC) == "true":
        yield (
            f"metadata.annotations: {_ELASTIC}: a job has one Workload, and waits in its queue again when its number "
            "of workers changes: remove it"
        )


def _is_read(key: str) -> bool:
    return key.startswith(PROVISIONING_PREFIX) or key in (ADMISSION_GATE, _MIN_PARALLELISM, _ELASTIC)


# -- annotations of a pod template: how near to each other the pods of a role must be --------------------------------
#
# Read as Kueue reads them for the kinds of jobs that it knows: `tas.go` and `tas_validation.go` of its
# `pkg/controller/jobframework`, version 0.19.2.

TOPOLOGY_REQUIRED: Final = "kueue.x-k8s.io/podset-required-topology"
TOPOLOGY_PREFERRED: Final = "kueue.x-k8s.io/podset-preferred-topology"
TOPOLOGY_UNCONSTRAINED: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_REQUIRED: Final = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE: Final = "kueue.x-k8s.io/podset-slice-size"
POD_SET_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
LAYERS: Final = "kueue.x-k8s.io/podset-slice-required-topology-constraints"

TOPOLOGY_CHOICES: Final = (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED, TOPOLOGY_UNCONSTRAINED)
"""A template has one of them at most."""

_BOOLEANS: Final = {"true": True, "false": False}


def topology_request(template: JsonObject) -> JsonObject:
    """``topologyRequest`` of the pod set with this template. The index of a pod is its rank, also without annotations:
    a queue may place all its jobs by topology."""
    given = _annotations(template)
    fields: JsonObject = {"podIndexLabel": Label.INDEX}
    for annotation, field in (
        (TOPOLOGY_REQUIRED, "required"),
        (TOPOLOGY_PREFERRED, "preferred"),
        (POD_SET_GROUP, "podSetGroupName"),
    ):
        if annotation in given:
            fields[field] = given[annotation]
    if TOPOLOGY_UNCONSTRAINED in given:
        fields["unconstrained"] = _BOOLEANS[given[TOPOLOGY_UNCONSTRAINED]]
    if SLICE_REQUIRED in given:
        fields["podSetSliceRequiredTopology"] = given[SLICE_REQUIRED]
        fields["podSetSliceSize"] = whole_number(given[SLICE_SIZE], most=_MAX_INT32)
    return fields


def _topology_problems(spec: JobSpec) -> Iterator[str]:
    for role in spec.roles():
        role_spec = spec.replica_specs.get(role)
        own = role_spec.template if role_spec is not None else None
        field = "spec.template" if own is None else f"spec.replicaSpecs.{role}.template"
        for problem in _topology_problems_of(_annotations(own or spec.template or {})):
            yield f"{field}.metadata.annotations: {problem}"


def _topology_problems_of(given: Mapping[str, str]) -> Iterator[str]:
    chosen = [name for name in TOPOLOGY_CHOICES if name in given]
    if len(chosen) > 1:
        yield f"{' and '.join(chosen)} exclude each other: remove all but one"
    for name in (TOPOLOGY_REQUIRED, TOPOLOGY_PREFERRED, SLICE_REQUIRED):
        if name in given and not matches(LABEL_KEY, given[name]):
            yield (
                f"{name} must be a level of a Topology, which is the key of a label of nodes, such as "
                f"topology.kubernetes.io/rack, not {given[name]!r}"
            )
    if given.get(TOPOLOGY_UNCONSTRAINED, "true") not in _BOOLEANS:
        yield f'{TOPOLOGY_UNCONSTRAINED} must be "true" or "false", not {given[TOPOLOGY_UNCONSTRAINED]!r}'
    if (SLICE_REQUIRED in given) != (SLICE_SIZE in given):
        yield f"{SLICE_REQUIRED} and {SLICE_SIZE} belong together: set both, or remove both"
    size = given.get(SLICE_SIZE, "1")
    if not whole_number(size, most=_MAX_INT32):
        yield f"{SLICE_SIZE} must be a number of pods from 1 to {_MAX_INT32:,}, not {size[:_MAX_SHOWN]!r}"
    if POD_SET_GROUP in given and TOPOLOGY_REQUIRED not in given and TOPOLOGY_PREFERRED not in given:
        yield f"{POD_SET_GROUP} needs {TOPOLOGY_REQUIRED} or {TOPOLOGY_PREFERRED}: set one of them, or remove it"
    if POD_SET_GROUP in given and SLICE_REQUIRED in given:
        yield f"{POD_SET_GROUP} and {SLICE_REQUIRED} exclude each other: remove one of them"
    if LAYERS in given:
        yield f"{LAYERS} is not supported: remove it, or set {SLICE_REQUIRED} and {SLICE_SIZE} for one layer"


def _annotations(template: JsonObject) -> dict[str, str]:
    found = fields_of(dig(template, "metadata", "annotations"))
    return {name: value for name, value in found.items() if isinstance(value, str)}


# -- MultiKueue runs a job of one cluster, the manager, as a copy in another, a worker ------------------------------

MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
"""``spec.managedBy`` of a job in the manager cluster. MultiKueue removes it from the copy."""

MULTIKUEUE_ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""The label of a copy in a worker cluster, with the name of the manager cluster."""

PREBUILT_WORKLOAD: Final = "kueue.x-k8s.io/prebuilt-workload-name"
"""The annotation (Kueue before 0.18: the label) of a copy that names the Workload which MultiKueue made for it."""


def is_dispatched(spec: JsonObject) -> bool:
    """Whether MultiKueue runs the job with this spec in another cluster."""
    return spec.get("managedBy") == MULTIKUEUE


def other_controller(spec: JsonObject) -> str | None:
    """The controller that runs a job with this spec in place of our operator; None if our operator runs it."""
    given = spec.get("managedBy")
    return None if given in (None, names.CONTROLLER) else str(given)


def is_left_alone(spec: JsonObject) -> bool:
    """Whether our operator does nothing at all for a job with this spec: another controller runs it."""
    return other_controller(spec) is not None and not is_dispatched(spec)


def prebuilt_workload(body: JsonObject) -> str:
    """The name of the Workload that was made for a job, from the job's body; empty if our operator makes it."""
    annotated = text(dig(body, "metadata", "annotations", PREBUILT_WORKLOAD))
    return annotated or text(dig(body, "metadata", "labels", PREBUILT_WORKLOAD))
