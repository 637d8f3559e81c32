"""The environment of a pod's main container, as the kubelet makes it from the manifest."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dtj.api.json import JsonObject, dig, objects, text

_REFERENCE = re.compile(r"\$\(([^)]+)\)")


def environment_of(pod: JsonObject, config_maps: Mapping[str, JsonObject] | None = None) -> dict[str, str]:
    """The variables. ``$(NAME)`` is replaced by the value of a variable that comes before, and else stays.

    Source: ``makeEnvironmentVariables`` in kubernetes, pkg/kubelet/kubelet_pods.go.
    """
    found: dict[str, str] = {}
    for variable in objects(dig(pod, "spec", "containers", 0, "env")):
        source = dig(variable, "valueFrom", "configMapKeyRef")
        if source is None:
            value = _REFERENCE.sub(lambda match: found.get(match[1], match[0]), text(variable.get("value")))
        else:
            value = text(dig((config_maps or {})[text(dig(source, "name"))], "data", text(dig(source, "key"))))
        found[text(variable.get("name"))] = value
    return found


def config_maps_of(pod: JsonObject) -> set[str]:
    """The ConfigMaps that the pod's variables refer to."""
    named = (
        text(dig(variable, "valueFrom", "configMapKeyRef", "name"))
        for container in objects(dig(pod, "spec", "containers"))
        for variable in objects(container.get("env"))
    )
    return {name for name in named if name}
