"""Pods of a cluster without nodes, each container of them played: they run, and end with the codes that a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Self, TypeAlias

from dtj.api.json import JsonObject, dig, objects, text
from support.job_world import MERGE_PATCH
from testbed import ApiError, ControlPlane
from testbed.rest import RestClient

Ends: TypeAlias = Callable[[JsonObject], int | None]
"""The exit code with which the containers of a pod end; None: they run on."""


def status(pod: JsonObject, codes: Mapping[str, int | None]) -> JsonObject:
    """What a kubelet writes of a pod whose containers have these exit codes; None, or no word of one: it runs."""
    names = [text(container["name"]) for container in objects(dig(pod, "spec", "containers"))]
    code_of = {name: codes.get(name) for name in names}
    runs = None in code_of.values()
    phase = "Running" if runs else "Failed" if any(code_of.values()) else "Succeeded"
    now = _now()
    ready = "True" if runs and all(code is None for code in code_of.values()) else "False"
    return {
        "phase": phase,
        "startTime": now,
        "conditions": [
            {"type": kind, "status": value, "lastTransitionTime": now}
            for kind, value in (("Ready", ready), ("ContainersReady", ready))
        ],
        "containerStatuses": [
            {
                "name": name,
                "image": "example/image",
                "imageID": "",
                "restartCount": 0,
                "ready": code is None,
                "state": {"running": {"startedAt": now}} if code is None else {"terminated": _end(code, now)},
            }
            for name, code in code_of.items()
        ],
    }


def write(api: RestClient, pod: JsonObject, codes: Mapping[str, int | None]) -> None:
    """Write that status. Raises ApiError where the pod is gone."""
    path = f"/api/v1/namespaces/{dig(pod, 'metadata', 'namespace')}/pods/{dig(pod, 'metadata', 'name')}"
    api.request("PATCH", f"{path}/status", {"status": status(pod, codes)}, content_type=MERGE_PATCH)


class Player:
    """Plays all pods of some namespaces, in a thread of its own: use it as a context manager."""

    def __init__(
        self,
        plane: ControlPlane,
        namespaces: Sequence[str],
        ends: Ends,
        *,
        starts: Callable[[JsonObject], bool] = lambda _: True,
        seconds: float = 0.5,
    ) -> None:
        self._starts = starts
        self._api = plane.lasting_api()
        self._namespaces = namespaces
        self._ends = ends
        self._seconds = seconds
        self._since: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, name="kubelets", daemon=True)
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._api.close()
        if self.error is not None:
            raise self.error

    def _play(self) -> None:
        try:
            while not self._over.wait(0.1):
                for namespace in self._namespaces:
                    for pod in objects(self._api.request("GET", f"/api/v1/namespaces/{namespace}/pods").get("items")):
                        self._advance(pod)
        except BaseException as error:  # noqa: BLE001 - it is raised where the playing ends
            self.error = error

    def _advance(self, pod: JsonObject) -> None:
        if dig(pod, "metadata", "deletionTimestamp") is not None:
            return
        phase, uid = dig(pod, "status", "phase"), text(dig(pod, "metadata", "uid"))
        try:
            if phase == "Pending" and self._starts(pod):
                write(self._api, pod, {})
                self._since[uid] = time.monotonic()
            elif phase == "Running" and time.monotonic() > self._since.get(uid, 0.0) + self._seconds:
                code = self._ends(pod)
                if code is not None:
                    names = [text(container["name"]) for container in objects(dig(pod, "spec", "containers"))]
                    write(self._api, pod, dict.fromkeys(names, code))
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _end(code: int, now: str) -> JsonObject:
    return {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "startedAt": now,
        "finishedAt": now,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
