"""What an API server asks of a pod beyond its schema and the rules of the CRD, in its words.

The API server refuses these pods when the operator creates them, and the job's condition says so; offline it is known
before. Nothing here is needed for a job to be right, so a mistake that is missing here is found by the operator's dry
run. Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from dtj.api import names
from dtj.api.container_checks import (
    container_problems,
    format_problem,
    init_container_problems,
    invalid,
    relative_path_problems,
    seccomp_problems,
    variable_problems,
)
from dtj.api.formats import DNS_SUBDOMAIN, LABEL_VALUE, qualified_name_problem
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.metadata import label_problems
from dtj.api.resource_checks import resource_problems
from dtj.api.violation import Violation

_SUBDOMAINS: Final = ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName")
_NEEDS_VALUES: Final = ("In", "NotIn")
_TAKES_NO_VALUES: Final = ("Exists", "DoesNotExist")


def spec_problems(spec: JsonObject) -> Iterator[Violation]:
    """What is wrong with the pods and the claim of a job, whose spec matches the schema."""
    template = spec.get("template")
    if isinstance(template, dict):
        yield from template_problems(template, "spec.template")
        yield from _checkpoint_problems(spec, template, "spec.template")
    roles = spec.get("replicaSpecs")
    for name, role in roles.items() if isinstance(roles, dict) else ():
        if isinstance(role, dict):
            yield from _role_problems(spec, role, f"spec.replicaSpecs[{name}]")
    of_claim = dig(spec, "checkpoint", "claimTemplate", "metadata")
    if isinstance(of_claim, dict):
        yield from label_problems(of_claim, "spec.checkpoint.claimTemplate.metadata")


def _role_problems(spec: JsonObject, role: JsonObject, path: str) -> Iterator[Violation]:
    template, resources = role.get("template"), role.get("resources")
    if isinstance(template, dict):
        yield from template_problems(template, f"{path}.template")
        yield from _checkpoint_problems(spec, template, f"{path}.template")
    if isinstance(resources, dict):
        yield from resource_problems(resources, f"{path}.resources")
    yield from variable_problems(objects(role.get("env")), f"{path}.env")
    yield from _tolerations(role, path)
    yield from _node_selector(role, path)


def template_problems(template: JsonObject, path: str) -> Iterator[Violation]:
    """What is wrong with a pod template, which is at ``path``."""
    metadata, spec = template.get("metadata"), template.get("spec")
    if isinstance(metadata, dict):
        yield from label_problems(metadata, f"{path}.metadata")
    if not isinstance(spec, dict):
        return
    path = f"{path}.spec"
    yield from _containers(spec, path)
    yield from _volumes(objects(spec.get("volumes")), f"{path}.volumes")
    yield from _tolerations(spec, path)
    yield from _node_selector(spec, path)
    yield from _affinity(spec, path)
    yield from _names(spec, path)
    yield from _whole_pod(spec, path)


def _containers(spec: JsonObject, path: str) -> Iterator[Violation]:
    for kind in ("containers", "initContainers"):
        containers = objects(spec.get(kind))
        trains = kind == "containers"
        for index, container in enumerate(containers):
            place = f"{path}.{kind}[{index}]"
            main = trains and (len(containers) == 1 or container.get("name") == names.MAIN_CONTAINER)
            if not main and not container.get("image"):  # the operator can have an image for the main one
                yield Violation(f"{place}.image", "Required value")
            yield from container_problems(container, place)
            if not trains:
                yield from init_container_problems(container, place)
            if spec.get("hostNetwork") is True:
                yield from _host_ports(objects(container.get("ports")), f"{place}.ports")


def _host_ports(ports: list[JsonObject], path: str) -> Iterator[Violation]:
    for index, port in enumerate(ports):
        host_port = port.get("hostPort")
        if host_port and host_port != port.get("containerPort"):
            words = "must match `containerPort` when `hostNetwork` is true"
            yield invalid(f"{path}[{index}].hostPort", host_port, words)


def _volumes(volumes: list[JsonObject], path: str) -> Iterator[Violation]:
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        host_path, nfs_path = dig(volume, "hostPath", "path"), dig(volume, "nfs", "path")
        if isinstance(host_path, str) and ".." in host_path.split("/"):
            yield invalid(f"{place}.hostPath.path", host_path, "must not contain '..'")
        if isinstance(nfs_path, str) and not nfs_path.startswith("/"):
            yield invalid(f"{place}.nfs.path", nfs_path, "must be an absolute path")
        for kind in ("configMap", "secret", "downwardAPI"):
            for number, item in enumerate(objects(dig(volume, kind, "items"))):
                yield from relative_path_problems(item.get("path"), f"{place}.{kind}.items[{number}].path")


def _tolerations(spec: JsonObject, path: str) -> Iterator[Violation]:
    for index, toleration in enumerate(objects(spec.get("tolerations"))):
        place = f"{path}.tolerations[{index}]"
        key, value, operator = (text(toleration.get(field)) for field in ("key", "value", "operator"))
        if key and (problem := qualified_name_problem(key)):
            yield invalid(f"{place}.key", key, problem)
        if not key and operator != "Exists":
            words = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(f"{place}.operator", operator, words)
        if operator == "Exists" and value:
            yield invalid(f"{place}.operator", value, "value must be empty when `operator` is 'Exists'")
        elif problem := LABEL_VALUE.problem(value):
            yield invalid(f"{place}.operator", value, problem)
        effect = toleration.get("effect")
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            words = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{place}.effect", effect or "", words)


def _node_selector(spec: JsonObject, path: str) -> Iterator[Violation]:
    selector = spec.get("nodeSelector")
    for key, value in selector.items() if isinstance(selector, dict) else ():
        if problem := qualified_name_problem(key):
            yield invalid(f"{path}.nodeSelector", key, problem)
        elif problem := LABEL_VALUE.problem(text(value)):
            yield invalid(f"{path}.nodeSelector", value, problem)


def _affinity(spec: JsonObject, path: str) -> Iterator[Violation]:
    affinity = spec.get("affinity")
    if isinstance(affinity, dict):
        yield from _expressions(affinity, f"{path}.affinity")


def _expressions(value: object, path: str) -> Iterator[Violation]:
    """Selectors are nested in terms of several kinds; what a requirement must hold is the same in all."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _expressions(item, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    for field, inner in value.items():
        if field == "matchExpressions":
            for index, requirement in enumerate(objects(inner)):
                yield from _requirement(requirement, f"{path}.{field}[{index}].values")
        else:
            yield from _expressions(inner, f"{path}.{field}")


def _requirement(requirement: JsonObject, path: str) -> Iterator[Violation]:
    operator, values = requirement.get("operator"), requirement.get("values")
    if operator in _NEEDS_VALUES and not values:
        yield Violation(path, "Required value: must be specified when `operator` is 'In' or 'NotIn'")
    if operator in _TAKES_NO_VALUES and values:
        words = "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        yield Violation(path, words)


def _names(spec: JsonObject, path: str) -> Iterator[Violation]:
    for field in _SUBDOMAINS:
        yield from format_problem(DNS_SUBDOMAIN, spec.get(field), f"{path}.{field}")


def _whole_pod(spec: JsonObject, path: str) -> Iterator[Violation]:
    if spec.get("dnsPolicy") == "None" and not dig(spec, "dnsConfig", "nameservers"):
        words = "Required value: must provide `dnsConfig` when `dnsPolicy` is None"
        yield Violation(f"{path}.dnsConfig", f"{words}; set dnsConfig.nameservers")
    if spec.get("hostPID") is True and spec.get("shareProcessNamespace") is True:
        words = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", value=True, problem=words)
    resources, context = spec.get("resources"), spec.get("securityContext")
    if isinstance(resources, dict):
        yield from resource_problems(resources, f"{path}.resources")
    if isinstance(context, dict):
        yield from seccomp_problems(context, f"{path}.securityContext")


def _checkpoint_problems(spec: JsonObject, template: JsonObject, path: str) -> Iterator[Violation]:
    """The checkpoint volume is mounted into each container: its name and its path must be free."""
    checkpoint = spec.get("checkpoint")
    if not isinstance(checkpoint, dict) or not ("volume" in checkpoint or "claimTemplate" in checkpoint):
        return
    directory = text(checkpoint.get("path"), names.CHECKPOINT_MOUNT)
    for index, volume in enumerate(objects(dig(template, "spec", "volumes"))):
        if volume.get("name") == names.CHECKPOINT_VOLUME:
            words = f"spec.checkpoint adds a volume {names.CHECKPOINT_VOLUME}: rename this one"
            yield Violation(f"{path}.spec.volumes[{index}].name", words)
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(objects(dig(template, "spec", kind))):
            for number, mount in enumerate(objects(container.get("volumeMounts"))):
                same: JsonObject = {"name": names.CHECKPOINT_VOLUME, "mountPath": directory}
                if mount.get("mountPath") == directory and mount != same:
                    place = f"{path}.spec.{kind}[{index}].volumeMounts[{number}].mountPath"
                    words = (
                        f"spec.checkpoint is mounted at {json.dumps(directory)}: choose another path for one of them"
                    )
                    yield Violation(place, words)
