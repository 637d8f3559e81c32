"""Plays the kubelet: each pod is a process, and its status says how that is doing, in the fields that are read here.

It reports and obeys; whether a pod should be there is the planner's business.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dtj.api.json import JsonObject, dig, name_of, objects, text
from dtj.api.names import Annotation, Env
from dtj.core.observed import Phase
from dtj.core.pod_state import main_container_of
from dtj.kube.gateway import PODS
from dtj.local.objects import Key, Objects, timestamp
from dtj.local.pod_command import METRICS_FILE, TERMINATION_LOG, Command
from dtj.local.ports import HOST
from dtj.local.process import Process, tail
from dtj.local.run_directory import RunDirectory

log = logging.getLogger(__name__)

_GRACE_SECONDS: Final = 30
"""Kubernetes' default of ``terminationGracePeriodSeconds``."""

_LONGEST_GRACE: Final = 24 * 3600
"""Beyond it lies no checkpoint, but some numbers that pods may have are no times."""

_START_ERROR: Final = 128
"""Exit code of a container that could not be started."""


@dataclass(slots=True)
class _Running:
    """A pod whose process has not ended, and what was asked of it, perhaps before it began."""

    key: Key
    process: Process | None = None
    terminated: bool = False
    killed: bool = False


class Kubelet:
    """Runs the pods among ``objects``, each in a task of ``group``: no process outlives it.

    ``command_of`` says what a pod executes; ``before_start`` is called with a pod just before its process starts.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        group: asyncio.TaskGroup,
        directory: RunDirectory,
        command_of: Callable[[JsonObject], Command],
        before_start: Callable[[JsonObject], None],
    ) -> None:
        self._objects = objects
        self._group = group
        self._directory = directory
        self._command_of = command_of
        self._before_start = before_start
        self._running: dict[str, _Running] = {}
        self._latest: dict[str, asyncio.Event] = {}  # by host name: set when the latest pod of it has ended
        self._node = socket.gethostname()

    def start(self, pod: JsonObject) -> None:
        """Run a pod that was just created. Returns at once."""
        uid = text(dig(pod, "metadata", "uid"))
        self._objects.patch(_key(pod), {"spec": {"nodeName": self._node}, "status": _status_pending()})
        self._running[uid] = _Running(_key(pod))
        self._group.create_task(self._live(pod, uid), name=f"pod {_key(pod)[2]}")

    def refresh(self, pod: JsonObject) -> None:
        """Write the annotation of a pod, which has changed, into the file that a downward API volume would be."""
        file = self._world_file(pod)
        world = dig(pod, "metadata", "annotations", Annotation.WORLD)
        if isinstance(world, str):
            new = file.with_suffix(".new")
            new.write_text(world)
            new.replace(file)

    def _world_file(self, pod: JsonObject) -> Path:
        return self._directory.logs / f".{text(dig(pod, 'spec', 'hostname'))}.world"

    def delete(self, pod: JsonObject) -> None:
        """Have a pod end within its grace period, and then vanish. Returns at once."""
        running = self._running.get(text(dig(pod, "metadata", "uid")))
        if running is None:
            self._objects.remove(_key(pod))
            return
        if dig(pod, "metadata", "deletionTimestamp") is not None:
            return
        grace = _grace_seconds(pod)
        self._objects.patch(
            _key(pod), {"metadata": {"deletionTimestamp": timestamp(grace), "deletionGracePeriodSeconds": grace}}
        )
        _terminate(running, grace=grace)

    @property
    def running(self) -> int:
        """Number of processes that have not ended."""
        return len(self._running)

    @property
    def begun(self) -> Collection[str]:
        """Host names of the pods that were ever started, those that are gone among them."""
        return self._latest.keys()

    def terminate(self) -> None:
        """Have all processes end, each within the grace period of its pod. Each pod says so, so that their exit codes
        are no failures of their own."""
        for running in self._running.values():
            pod = self._objects.get(running.key)
            self._objects.patch(running.key, {"status": _status_asked_to_stop(pod)})
            _terminate(running, grace=_grace_seconds(pod))

    def kill(self) -> None:
        """End all processes at once."""
        for running in self._running.values():
            _kill(running)

    async def _live(self, pod: JsonObject, uid: str) -> None:
        """A pod's life, from its start to its end."""
        host, over = text(dig(pod, "spec", "hostname")), asyncio.Event()
        before = self._latest.get(host)
        self._latest[host] = over
        try:
            if before is not None:  # its successor listens on the same ports
                await before.wait()
            await self._run(pod, uid)
        finally:
            over.set()
            del self._running[uid]
        if dig(self._objects.get(_key(pod)), "metadata", "deletionTimestamp") is not None:
            self._objects.remove(_key(pod))

    async def _run(self, pod: JsonObject, uid: str) -> None:
        key, name = _key(pod), text(dig(pod, "spec", "hostname"))
        output = self._directory.replica_log(name)
        last_words = self._directory.logs / f".{name}.termination"
        command = self._command_of(pod)
        files = {TERMINATION_LOG: str(last_words), METRICS_FILE: str(self._directory.replica_metrics(name))}
        environment = {**command.environment, **files}
        if Env.WORLD_FILE in environment:
            environment[Env.WORLD_FILE] = str(self._world_file(pod))
            self.refresh(self._objects.get(key))
        self._before_start(pod)
        written = output.stat().st_size if output.exists() else 0  # by earlier incarnations
        try:
            process = await Process.start(command.arguments, environment=environment, log=output)
        except OSError as error:
            self._end(key, exit_code=_START_ERROR, reason="StartError", message=str(error))
            return
        try:
            self._take_over(uid, process)
            program, *rest = command.arguments
            # Without their values, which a report of this log leaves out too: some are secrets.
            log.info("%s: process %d: %s with %d arguments", name, process.pid, program, len(rest))
            self._objects.patch(key, {"status": _status_running(self._objects.get(key), since=timestamp())})
            exit_code = await process.wait()
        finally:
            await process.end()
        message = _take(last_words) or (tail(output, since=written) if exit_code else "")
        self._end(key, exit_code=exit_code, reason="Error" if exit_code else "Completed", message=message)
        log.info("%s: ended with exit code %d", name, exit_code)

    def _take_over(self, uid: str, process: Process) -> None:
        """What was asked while the process was being started holds for it."""
        running = self._running[uid]
        running.process = process
        if running.terminated:
            process.terminate()
        if running.killed:
            process.kill()

    def _end(self, key: Key, *, exit_code: int, reason: str, message: str) -> None:
        status = _status_ended(
            self._objects.get(key), exit_code=exit_code, reason=reason, message=message, finished_at=timestamp()
        )
        self._objects.patch(key, {"status": status})


def _terminate(running: _Running, *, grace: int) -> None:
    running.terminated = True
    if running.process is not None:
        running.process.terminate()
    asyncio.get_running_loop().call_later(grace, _kill, running)


def _kill(running: _Running) -> None:
    running.killed = True
    if running.process is not None:
        running.process.kill()


def _key(pod: JsonObject) -> Key:
    return PODS, text(dig(pod, "metadata", "namespace")), name_of(pod)


def _grace_seconds(pod: JsonObject) -> int:
    grace = dig(pod, "spec", "terminationGracePeriodSeconds")
    return min(max(grace, 0), _LONGEST_GRACE) if isinstance(grace, int) else _GRACE_SECONDS


def _take(file: Path) -> str:
    """The text of a file that is then removed; empty where there is none."""
    try:
        words = file.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
    file.unlink()
    return words


# -- the status of a pod ----------------------------------------------------------------------------------------


def _status_pending() -> JsonObject:
    """The pod has its node; its process is about to start."""
    return {"phase": Phase.PENDING, "conditions": [_condition("Ready", met=False)]}


def _status_asked_to_stop(pod: JsonObject) -> JsonObject:
    """The conditions of a pod that ends with the run: a kubelet that shuts its node down sets the same one."""
    return {"conditions": [*_others(pod, "DisruptionTarget"), _condition("DisruptionTarget", met=True)]}


def _status_running(pod: JsonObject, *, since: str) -> JsonObject:
    """The process runs. There are no probes on this machine, so that running is ready."""
    return {
        "phase": Phase.RUNNING,
        "podIP": HOST,
        "startTime": since,
        "conditions": [*_others(pod, "Ready"), _condition("Ready", met=True)],
        "containerStatuses": [_container(pod, ready=True, state={"running": {"startedAt": since}})],
    }


def _status_ended(pod: JsonObject, *, exit_code: int, reason: str, message: str, finished_at: str) -> JsonObject:
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
    container = main_container_of(pod)
    return {
        "name": text(container.get("name")),
        "image": text(container.get("image")),
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }
