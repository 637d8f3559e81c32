"""Limits of a pod's fields that the API server checks and its OpenAPI document omits: those that a schema can express.

Source: kubernetes, pkg/apis/core/validation/validation.go. A test sends pods that break these limits to an API server.
Sizes of lists that rules iterate over are ours: the API server estimates the cost of a rule from them.
"""

from __future__ import annotations

from typing import Final

from dtj.api.json import JsonObject
from dtj.api.names import CONFIG_KEY, DNS_LABEL

PREFIX: Final = "io.k8s.api.core.v1."

PORT_NAME_PATTERN: Final = "^([-a-z0-9]*[a-z][-a-z0-9]*)?$"
VARIABLE_PATTERN: Final = "^[ -<>-~]+$"
"""Printable ASCII characters other than ``=``."""

_PORT: Final[JsonObject] = {"minimum": 1, "maximum": 65535}
_PORT_NAME: Final[JsonObject] = {"maxLength": 15, "pattern": PORT_NAME_PATTERN}
_ID: Final[JsonObject] = {"minimum": 0, "maximum": 2_147_483_647}
_MODE: Final[JsonObject] = {"minimum": 0, "maximum": 0o777}
_WEIGHT: Final[JsonObject] = {"minimum": 1, "maximum": 100}
_NOT_NEGATIVE: Final[JsonObject] = {"minimum": 0}
_AT_LEAST_ONE: Final[JsonObject] = {"minimum": 1}
_NOT_EMPTY: Final[JsonObject] = {"minLength": 1}
_NAME: Final[JsonObject] = {"minLength": 1, "maxLength": 63, "pattern": DNS_LABEL}
_KEY: Final[JsonObject] = {"minLength": 1, "maxLength": 253, "pattern": CONFIG_KEY}
_ONE_OF_THEM: Final[JsonObject] = {"minProperties": 1, "maxProperties": 1}

PORT_OR_NAME: Final[JsonObject] = {**_PORT, **_PORT_NAME}
"""A port of a probe: a number, or the name of a port of the container."""


def _required(*fields: str) -> JsonObject:
    return {"required": [*fields]}


_LIMITS: Final[dict[str, JsonObject]] = {
    "PodSpec.containers": {"maxItems": 16},
    "PodSpec.initContainers": {"maxItems": 16},
    "PodSpec.volumes": {"maxItems": 40},
    "PodSpec.activeDeadlineSeconds": {"minimum": 1, "maximum": 2_147_483_647},
    "Container.env": {"maxItems": 256},
    "Container.name": _NAME,
    "Container.restartPolicy": {"enum": ["Always", "Never", "OnFailure"]},
    "Container.volumeMounts": {"maxItems": 48},
    "ContainerResizePolicy.resourceName": {"enum": ["cpu", "memory"]},
    "ContainerResizePolicy.restartPolicy": {"enum": ["NotRequired", "RestartContainer"]},
    "ContainerPort.containerPort": _PORT,
    "ContainerPort.hostPort": {"minimum": 0, "maximum": 65535},
    "ContainerPort.name": _PORT_NAME,
    "EnvVar.name": {"minLength": 1, "maxLength": 256, "pattern": VARIABLE_PATTERN},
    "EnvVarSource": _ONE_OF_THEM,
    "ConfigMapKeySelector": _required("key", "name"),
    "ConfigMapKeySelector.key": _KEY,
    "SecretKeySelector": _required("key", "name"),
    "SecretKeySelector.key": _KEY,
    "ConfigMapEnvSource": _required("name"),
    "SecretEnvSource": _required("name"),
    "Volume": {"maxProperties": 2},
    "Volume.name": _NAME,
    "VolumeMount.name": {"minLength": 1, "maxLength": 63},
    "VolumeMount.mountPath": _NOT_EMPTY,
    "VolumeProjection": {"maxProperties": 1},
    "ConfigMapVolumeSource": _required("name"),
    "ConfigMapVolumeSource.name": _NOT_EMPTY,
    "ConfigMapVolumeSource.defaultMode": _MODE,
    "ConfigMapProjection": _required("name"),
    "SecretVolumeSource": _required("secretName"),
    "SecretVolumeSource.secretName": _NOT_EMPTY,
    "SecretVolumeSource.defaultMode": _MODE,
    "SecretProjection": _required("name"),
    "ProjectedVolumeSource.defaultMode": _MODE,
    "DownwardAPIVolumeSource.defaultMode": _MODE,
    "KeyToPath.key": _NOT_EMPTY,
    "KeyToPath.path": _NOT_EMPTY,
    "KeyToPath.mode": _MODE,
    "EphemeralVolumeSource": _required("volumeClaimTemplate"),
    "HostPathVolumeSource.path": _NOT_EMPTY,
    "ImageVolumeSource": _required("reference"),
    "PersistentVolumeClaimVolumeSource.claimName": _NOT_EMPTY,
    "ExecAction": _required("command"),
    "ExecAction.command": {"minItems": 1},
    "GRPCAction.port": _PORT,
    "LifecycleHandler": _ONE_OF_THEM,
    **{
        f"Probe.{field}": _NOT_NEGATIVE
        for field in (
            "failureThreshold",
            "initialDelaySeconds",
            "periodSeconds",
            "successThreshold",
            "timeoutSeconds",
        )
    },
    "Probe.terminationGracePeriodSeconds": _AT_LEAST_ONE,
    "PodSecurityContext.fsGroup": _ID,
    "PodSecurityContext.runAsGroup": _ID,
    "PodSecurityContext.runAsUser": _ID,
    "SecurityContext.runAsGroup": _ID,
    "SecurityContext.runAsUser": _ID,
    "NodeSelector.nodeSelectorTerms": {"minItems": 1},
    "PodAffinityTerm.topologyKey": _NOT_EMPTY,
    "PodOS.name": {"enum": ["linux", "windows"]},
    "PreferredSchedulingTerm.weight": _WEIGHT,
    "WeightedPodAffinityTerm.weight": _WEIGHT,
    "TopologySpreadConstraint.maxSkew": _AT_LEAST_ONE,
    "TopologySpreadConstraint.minDomains": _AT_LEAST_ONE,
    "TopologySpreadConstraint.topologyKey": _NOT_EMPTY,
}

LIMITS: Final[dict[str, JsonObject]] = {
    **{f"{PREFIX}{name}": limit for name, limit in _LIMITS.items()},
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelectorRequirement.operator": {
        "enum": ["DoesNotExist", "Exists", "In", "NotIn"]
    },
}
"""Keywords to add, by the definition in the document, or by definition and field."""
