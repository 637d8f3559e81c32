"""What the benchmarks of the operator share: a control plane, the raw loop, a kubelet that is played, and figures."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import aiohttp
from pydantic import JsonValue

import figures
from dtj.api import names
from dtj.api.json import JsonObject, dig, objects, text
from dtj.core.manifests.pod import PodRenderer
from dtj.core.platform import Platform
from dtj.core.replicas import replicas
from dtj.kube.config import ConnectionSource
from support.job_world import JobWorld
from support.operator_process import grant
from support.played_pods import all_containers, status
from testbed import ControlPlane, binaries
from testbed.rest import content_type

CONNECTIONS = 50
POLL_SECONDS = 0.2
QUIET_SECONDS = 2.0


# -- the cluster -----------------------------------------------------------------------------------------------------


@contextmanager
def control_plane() -> Iterator[tuple[ControlPlane, Path]]:
    """A control plane of its own with the CRD, and a directory for logs; both are gone afterwards."""
    built = binaries.ensure()
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane.launch(f"bench-{os.getpid()}", owner=os.getpid(), binaries=built)
        try:
            plane.install_crds()
            yield plane, Path(directory)
        finally:
            plane.stop()


@contextmanager
def new_world(plane: ControlPlane) -> Iterator[JobWorld]:
    """A namespace in which the operator may work; removed afterwards."""
    namespace = plane.new_namespace("bench")
    grant(plane, namespace)
    yield JobWorld(plane, namespace)
    remove(plane, namespace)


def remove(plane: ControlPlane, namespace: str) -> None:
    """Delete a namespace to its last pod; the next measurement must not compete with that."""
    delete(plane, pod_paths(plane, namespace))
    plane.delete_namespace(namespace)
    await_quiet(plane)


def new_owner(plane: ControlPlane) -> JsonObject:
    """What the raw loop's pods belong to, in a namespace of theirs: ownerless they would cost the garbage collector
    less."""
    path = f"/api/v1/namespaces/{plane.new_namespace('bench')}/configmaps"
    return plane.api.request("POST", path, {"metadata": {"name": "owner"}})


def await_quiet(plane: ControlPlane, *, seconds: float = 120.0) -> None:
    """Wait until nobody has written anything for a while: scheduler and garbage collector work on after a burst."""
    limit = time.monotonic() + seconds
    size, since = plane.audit.mark(), time.monotonic()
    while time.monotonic() < min(limit, since + QUIET_SECONDS):
        time.sleep(POLL_SECONDS)
        if plane.audit.mark() != size:
            size, since = plane.audit.mark(), time.monotonic()


def await_true(condition: Callable[[], bool], *, seconds: float, what: str, every: float = POLL_SECONDS) -> None:
    """Wait until ``condition`` holds. It is asked seldom, since who asks has the same cores as who is measured."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            raise SystemExit(f"waited {seconds:.0f} s in vain for {what}")
        time.sleep(every)


def count(plane: ControlPlane, path: str) -> int:
    """How many objects there are, without the burden of a list of them all."""
    found = plane.api.request("GET", f"{path}?limit=1")
    return len(found["items"]) + int(found["metadata"].get("remainingItemCount", 0))


def pods_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods"


def jobs_path(namespace: str) -> str:
    return f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"


def pod_paths(plane: ControlPlane, namespace: str) -> list[str]:
    """The path of each pod of a namespace."""
    return [f"{pods_path(namespace)}/{name_of(pod)}" for pod in list_all(plane, pods_path(namespace))]


def list_all(plane: ControlPlane, path: str) -> list[JsonObject]:
    """All objects, page by page."""
    found: list[JsonObject] = []
    token = ""
    while True:
        page = plane.api.request("GET", f"{path}?limit=500" + (f"&continue={token}" if token else ""))
        found.extend(objects(page["items"]))
        token = page["metadata"].get("continue", "")
        if not token:
            return found


def written(plane: ControlPlane, *, since: int, verb: str, resource: str, namespace: str) -> list[datetime]:
    """When the writes of a kind that succeeded were answered, in order, by the API server's clock.

    That clock is this machine's. To ask the API server instead, while it works, would slow it down and find out late.
    """
    calls = plane.audit.writes(since=since, namespace=namespace)
    return sorted(
        call.logged
        for call in calls
        if (call.verb, call.resource, call.subresource) == (verb, resource, "") and call.code in (200, 201)
    )


# -- the raw loop ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """One request, encoded."""

    method: str
    path: str
    body: bytes


def create(plane: ControlPlane, path: str, bodies: Iterable[JsonObject]) -> datetime:
    """Create all with nothing but a parallel loop. Returns when it began; encoding is done before."""
    return _send(plane, [Call("POST", path, json.dumps(body).encode()) for body in bodies])


def measure_loop(plane: ControlPlane, owner: JsonObject, bodies: Sequence[JsonObject]) -> float:
    """Seconds from the first to the last of these pods, made by nothing but the loop; they are removed afterwards."""
    namespace = namespace_of(owner)
    mark = plane.audit.mark()
    began = create(plane, pods_path(namespace), bodies)
    ended = datetime.now(UTC)
    await_quiet(plane)
    answered = written(plane, since=mark, verb="create", resource="pods", namespace=namespace)
    assert len(answered) == len(bodies)
    assert answered[-1] <= ended, "the API server's clock is another one"
    remove(plane, namespace)
    seconds: float = (answered[-1] - began).total_seconds()
    return seconds


def delete(plane: ControlPlane, paths: Iterable[str]) -> datetime:
    """Delete all, likewise."""
    return _send(plane, [Call("DELETE", path, b"{}") for path in paths])


def patch_statuses(plane: ControlPlane, statuses: Mapping[str, JsonValue]) -> datetime:
    """Write the status of each object, by its path."""
    bodies = {path: json.dumps({"status": status}).encode() for path, status in statuses.items()}
    return _send(plane, [Call("PATCH", f"{path}/status", body) for path, body in bodies.items()])


def play_kubelet(plane: ControlPlane, namespace: str, code: int | None, *, prefix: str = "") -> None:
    """All pods of a namespace whose names begin with ``prefix`` end with this code, or run."""
    pods = [pod for pod in list_all(plane, pods_path(namespace)) if name_of(pod).startswith(prefix)]
    patch_statuses(
        plane, {f"{pods_path(namespace)}/{name_of(pod)}": status(pod, all_containers(pod, code)) for pod in pods}
    )


def pods_of(world: JobWorld, job_name: str, *, owner: JsonObject) -> list[JsonObject]:
    """The pods of a job as the operator asks for them, for another namespace, where ``owner`` owns them."""
    job = world.job(job_name)
    assert job.spec is not None
    bodies = [*map(PodRenderer(job, job.spec, Platform()).render, replicas(job.spec))]
    for body in bodies:
        give_to(body, owner)
    return bodies


def give_to(body: JsonObject, owner: JsonObject) -> None:
    """Let ``owner``, a ConfigMap, own this object, in its namespace."""
    reference: JsonObject = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name_of(owner),
        "uid": text(dig(owner, "metadata", "uid")),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    metadata.update(namespace=namespace_of(owner), ownerReferences=[reference])


def _send(plane: ControlPlane, calls: Sequence[Call]) -> datetime:
    return asyncio.run(_send_all(plane, calls))


async def _send_all(plane: ControlPlane, calls: Sequence[Call]) -> datetime:
    connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=await _tls(plane))
    waiting = iter(calls)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send() -> None:
            for call in waiting:
                headers = {"Content-Type": content_type(call.method)}
                url = f"{plane.url}{call.path}"
                async with session.request(call.method, url, data=call.body, headers=headers) as reply:
                    await reply.read()
                    if (call.method, reply.status) != ("DELETE", 404):  # the garbage collector may come first
                        reply.raise_for_status()

        began = datetime.now(UTC)
        await asyncio.gather(*(send() for _ in range(CONNECTIONS)))
    return began


async def _tls(plane: ControlPlane) -> ssl.SSLContext:
    """The administrator's connection, as its kubeconfig says."""
    configuration = await ConnectionSource(kubeconfig=str(plane.kubeconfig)).load()
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def name_of(body: JsonObject) -> str:
    """``metadata.name``."""
    return text(dig(body, "metadata", "name"))


def namespace_of(body: JsonObject) -> str:
    """``metadata.namespace``."""
    return text(dig(body, "metadata", "namespace"))


def version_of(body: JsonObject) -> str:
    """``metadata.resourceVersion``: another one after any change."""
    return text(dig(body, "metadata", "resourceVersion"))


# -- figures ---------------------------------------------------------------------------------------------------------


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int, *, peak: bool = False) -> float:
    """Resident memory of a process in MiB: now, or its peak."""
    field = "VmHWM:" if peak else "VmRSS:"
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def metrics(port: int) -> str | None:
    """What the operator says of itself; None where nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5.0) as reply:
            said: bytes = reply.read()
    except OSError:
        return None
    return said.decode()


def total(metrics: str, name: str) -> float:
    """The sum of a metric over its labels."""
    return sum(float(value) for value in re.findall(rf"^{name}\{{.*\}} (\S+)$", metrics, re.MULTILINE))


def print_times(name: str, seconds: Sequence[float], *, pods: int) -> None:
    """The times of all rounds."""
    figures.print_figure(name, ", ".join(f"{s:.2f} s ({pods / s:.0f} pods/s)" for s in seconds))


@dataclass
class Blocked:
    """How long the event loop did nothing else, in seconds: by the clock, and of its own CPU time, which other
    programs of a busy machine do not lengthen."""

    wall: float = 0.0
    cpu: float = 0.0

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s of CPU)"


async def watch_loop(blocked: Blocked) -> NoReturn:
    """Keep the longest times until cancelled."""
    while True:
        began, used = time.monotonic(), time.thread_time()
        await asyncio.sleep(0.01)
        blocked.wall = max(blocked.wall, time.monotonic() - began - 0.01)
        blocked.cpu = max(blocked.cpu, time.thread_time() - used)
