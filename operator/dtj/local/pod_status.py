"""``status`` of a pod as a kubelet writes it, limited to the fields that are read here."""

from __future__ import annotations

from typing import Final

from dtj.api.json import JsonObject, dig, objects, text
from dtj.core.observed import Phase
from dtj.core.pod_state import main_container

POD_IP: Final = "127.0.0.1"


def pending() -> JsonObject:
    """The pod has its node; its process is about to start."""
    return {"phase": Phase.PENDING, "conditions": [_condition("Ready", met=False)]}


def asked_to_stop(pod: JsonObject) -> JsonObject:
    """The conditions of a pod that ends with the run: a kubelet that shuts its node down sets the same one."""
    return {"conditions": [*_others(pod, "DisruptionTarget"), _condition("DisruptionTarget", met=True)]}


def running(pod: JsonObject, *, since: str) -> JsonObject:
    """The process runs. There are no probes on this machine, so that running is ready."""
    return {
        "phase": Phase.RUNNING,
        "podIP": POD_IP,
        "startTime": since,
        "conditions": [*_others(pod, "Ready"), _condition("Ready", met=True)],
        "containerStatuses": [_container(pod, ready=True, state={"running": {"startedAt": since}})],
    }


def ended(pod: JsonObject, *, exit_code: int, reason: str, message: str, finished_at: str) -> JsonObject:
    """The process has ended, and will not be started again: the pod's restart policy is Never."""
    terminated: JsonObject = {
        "exitCode": exit_code,
        "reason": reason,
        "startedAt": text(dig(pod, "status", "startTime"), finished_at),
        "finishedAt": finished_at,
        **({"message": message} if message else {}),
    }
    return {
        "phase": Phase.FAILED if exit_code else Phase.SUCCEEDED,
        "conditions": [*_others(pod, "Ready"), _condition("Ready", met=False)],
        "containerStatuses": [_container(pod, ready=False, state={"terminated": terminated})],
    }


def _others(pod: JsonObject, kind: str) -> list[JsonObject]:
    """The pod's conditions, except the one of this type."""
    return [each for each in objects(dig(pod, "status", "conditions")) if each.get("type") != kind]


def _condition(kind: str, *, met: bool) -> JsonObject:
    return {"type": kind, "status": "True" if met else "False"}


def _container(pod: JsonObject, *, ready: bool, state: JsonObject) -> JsonObject:
    spec = dig(pod, "spec")
    container = main_container(spec if isinstance(spec, dict) else {})
    return {
        "name": text(container.get("name")),
        "image": text(container.get("image")),
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }
