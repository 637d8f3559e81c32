"""Pods of a cluster without nodes, each container of them played: they run, and end with the codes that a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Self, TypeAlias

from dtj.api.json import JsonObject, dig, objects, text
from dtj.core.status import format_time
from testbed import ApiError, ControlPlane
from testbed.rest import RestClient

_RUN_SECONDS = 0.5
"""A pod that is played runs for so long at least."""

Ends: TypeAlias = Callable[[JsonObject], int | None]
"""The exit code with which the containers of a pod end; None: they run on."""


def all_containers(pod: JsonObject, code: int | None) -> dict[str, int | None]:
    """The same code of each container."""
    return {text(container["name"]): code for container in objects(dig(pod, "spec", "containers"))}


def status(
    pod: JsonObject, codes: Mapping[str, int | None], *, ip: str = "", message: str = "", reason: str = ""
) -> JsonObject:
    """What a kubelet writes of a pod whose containers have these exit codes; None, or no word of one: it runs.

    The pod has an address if one is given. With the message and for the reason, its containers end.
    """
    code_of = {name: codes.get(name) for name in all_containers(pod, None)}
    runs = None in code_of.values()
    phase = "Running" if runs else "Failed" if any(code_of.values()) else "Succeeded"
    now = format_time(datetime.now(UTC))
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
                "state": {"running": {"startedAt": now}}
                if code is None
                else {
                    "terminated": {
                        "exitCode": code,
                        "reason": reason or ("Error" if code else "Completed"),
                        "message": message,
                        "startedAt": now,
                        "finishedAt": now,
                    }
                },
            }
            for name, code in code_of.items()
        ],
        **({"podIP": ip, "podIPs": [{"ip": ip}]} if ip else {}),
    }


def write(api: RestClient, pod: JsonObject, codes: Mapping[str, int | None], **told: str) -> None:
    """Write that status. Raises ApiError where the pod is gone."""
    path = f"/api/v1/namespaces/{dig(pod, 'metadata', 'namespace')}/pods/{dig(pod, 'metadata', 'name')}"
    api.request("PATCH", f"{path}/status", {"status": status(pod, codes, **told)})


class Player:
    """Plays all pods of some namespaces, in a thread of its own: use it as a context manager."""

    def __init__(
        self,
        plane: ControlPlane,
        namespaces: Sequence[str],
        ends: Ends,
        *,
        starts: Callable[[JsonObject], bool] = lambda _: True,
    ) -> None:
        self._starts = starts
        self._api = plane.lasting_api()
        self._namespaces = namespaces
        self._ends = ends
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
            elif phase == "Running" and time.monotonic() > self._since.get(uid, 0.0) + _RUN_SECONDS:
                code = self._ends(pod)
                if code is not None:
                    write(self._api, pod, all_containers(pod, code))
        except ApiError as error:
            if error.code not in (404, 409):
                raise
