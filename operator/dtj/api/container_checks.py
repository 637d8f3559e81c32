"""What an API server asks of a container beyond its schema, in its words.

Source: kubernetes, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from dtj.api.formats import DNS_SUBDOMAIN, Format
from dtj.api.json import JsonObject, dig, objects, text
from dtj.api.resource_checks import resource_problems
from dtj.api.violation import Violation

_FIELD_PATHS: Final = re.compile(
    r"metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs)"
)
_RESOURCE_FIELDS: Final = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def container_problems(container: JsonObject, path: str) -> Iterator[Violation]:
    """What is wrong with a container of either list."""
    image = container.get("image")
    if isinstance(image, str) and image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from variable_problems(objects(container.get("env")), f"{path}.env")
    yield from _sources(objects(container.get("envFrom")), f"{path}.envFrom")
    yield from _port_names(objects(container.get("ports")), f"{path}.ports")
    yield from _mounts(container, f"{path}.volumeMounts")
    for kind in _PROBES:
        probe = container.get(kind)
        if isinstance(probe, dict):
            yield from _probe(kind, probe, f"{path}.{kind}")
    resources = container.get("resources")
    if isinstance(resources, dict):
        yield from resource_problems(resources, f"{path}.resources")
    yield from _security(container.get("securityContext"), f"{path}.securityContext")


def init_container_problems(container: JsonObject, path: str) -> Iterator[Violation]:
    """What is wrong with an init container alone."""
    if container.get("restartPolicy") == "Always":
        return
    for field in ("lifecycle", *_PROBES):
        if container.get(field) is not None:
            words = "Forbidden: may not be set for init containers without restartPolicy=Always"
            yield Violation(f"{path}.{field}", words)


def invalid(path: str, value: object, problem: str) -> Violation:
    """That a value does not have the form that it must have."""
    return Violation(path, f"Invalid value: {json.dumps(value)}: {problem}")


def format_problem(wanted: Format, value: object, path: str) -> Iterator[Violation]:
    """What is wrong with a text, if it is one."""
    if isinstance(value, str) and value and (problem := wanted.problem(value)):
        yield invalid(path, value, problem)


def variable_problems(variables: list[JsonObject], path: str) -> Iterator[Violation]:
    """What is wrong with environment variables."""
    for index, variable in enumerate(variables):
        source = f"{path}[{index}].valueFrom"
        field = dig(variable, "valueFrom", "fieldRef", "fieldPath")
        if isinstance(field, str) and _FIELD_PATHS.fullmatch(field) is None:
            words = f"error converting fieldPath: field label not supported: {field}"
            yield invalid(f"{source}.fieldRef.fieldPath", field, words)
        resource = dig(variable, "valueFrom", "resourceFieldRef", "resource")
        if isinstance(resource, str) and not _is_resource_field(resource):
            listed = ", ".join(f'"{known}"' for known in _RESOURCE_FIELDS)
            words = f"Unsupported value: {json.dumps(resource)}: supported values: {listed}"
            yield Violation(f"{source}.resourceFieldRef.resource", words)
        for kind in ("configMapKeyRef", "secretKeyRef"):
            yield from format_problem(DNS_SUBDOMAIN, dig(variable, "valueFrom", kind, "name"), f"{source}.{kind}.name")


def _is_resource_field(resource: str) -> bool:
    return resource in _RESOURCE_FIELDS or resource.partition(".")[2].startswith("hugepages-")


def _sources(sources: list[JsonObject], path: str) -> Iterator[Violation]:
    for index, source in enumerate(sources):
        present = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        if not present:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(present) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")
        for kind in present:
            yield from format_problem(DNS_SUBDOMAIN, dig(source, kind, "name"), f"{path}[{index}].{kind}.name")


def _port_names(ports: list[JsonObject], path: str) -> Iterator[Violation]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = text(port.get("name"))
        if name and name in seen:
            yield Violation(f"{path}[{index}].name", f"Duplicate value: {json.dumps(name)}")
        seen.add(name)


def _mounts(container: JsonObject, path: str) -> Iterator[Violation]:
    for index, mount in enumerate(objects(container.get("volumeMounts"))):
        for field in ("subPath", "subPathExpr"):
            yield from relative_path_problems(mount.get(field), f"{path}[{index}].{field}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            words = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{path}[{index}].subPathExpr", mount["subPathExpr"], words)
        privileged = dig(container, "securityContext", "privileged") is True
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            words = "Forbidden: Bidirectional mount propagation is available only to privileged containers"
            yield Violation(f"{path}[{index}].mountPropagation", words)


def relative_path_problems(value: object, path: str) -> Iterator[Violation]:
    """What is wrong with a path below a volume."""
    if isinstance(value, str) and value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    if isinstance(value, str) and ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def _probe(kind: str, probe: JsonObject, path: str) -> Iterator[Violation]:
    handlers = [handler for handler in _HANDLERS if probe.get(handler) is not None]
    if not handlers:
        yield Violation(path, "Required value: must specify a handler type; set exec, httpGet, tcpSocket or grpc")
    for handler in handlers[1:]:
        yield Violation(f"{path}.{handler}", "Forbidden: may not specify more than 1 handler type")
    threshold = probe.get("successThreshold")
    if kind != "readinessProbe" and threshold not in (None, 0, 1):
        yield invalid(f"{path}.successThreshold", threshold, "must be 1")
    grace = probe.get("terminationGracePeriodSeconds")
    if kind == "readinessProbe" and grace is not None:
        yield invalid(f"{path}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes")


def _security(context: object, path: str) -> Iterator[Violation]:
    if not isinstance(context, dict):
        return
    added = dig(context, "capabilities", "add")
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged") is True:
            yield Violation(path, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
        if isinstance(added, list) and "CAP_SYS_ADMIN" in added:
            words = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield Violation(path, words)
    yield from seccomp_problems(context, path)


def seccomp_problems(context: JsonObject, path: str) -> Iterator[Violation]:
    """What is wrong with the profile of a pod or a container."""
    profile = context.get("seccompProfile")
    local = dig(profile, "localhostProfile")
    if dig(profile, "type") == "Localhost" and not local:
        words = "Required value: must be set when seccomp type is Localhost"
        yield Violation(f"{path}.seccompProfile.localhostProfile", words)
