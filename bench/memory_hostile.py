"""How much memory does the operator take where users ask for much?

    PYTHONPATH=operator:tests:trainer-image python bench/memory_hostile.py
    PYTHONPATH=operator:tests:trainer-image python bench/memory_hostile.py --alone

Scenes, each with an operator of its own: one job of 10,000 replicas, fifty of 1,000, a hundred suspended ones of
1.3 MB, whose templates hold what no schema knows, 32 of 256 KiB with six roles that are to start, a hundred Services of
1.2 MiB with our label, and five hundred whose owner has a UID of 1 MB. The operator's peak is read while it works, and
again from an operator that is started when the objects are there. It is stopped where it goes beyond ``--stop-mib``.

With ``--alone``, the last ones without a control plane: the engine over a server in memory whose dry runs take 0.2 s.
It also shows for how long at most the event loop did nothing else, by the clock and in CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import multiprocessing
import re
import string
import time
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from os import getpid
from pathlib import Path
from typing import Final

import msgspec

import common
import figures
from builders import manifest, stored
from dtj.api.json import JsonObject
from dtj.api.names import Label
from dtj.api.spec import Role
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.errors import Conflict
from dtj.kube.gateway import SERVICES, Listing, Resource
from dtj.kube.job_body import read_job
from support.fake_gateway import FakeGateway
from support.job_world import JobWorld
from support.operator_process import OperatorProcess
from testbed import ApiError, ControlPlane

JUNK: Final[list[JsonObject]] = [{}] * 87_000
"""256 KiB."""

JUST_TAKEN: Final = [{"a": {"b": {"c": {"d": 0}}}}] * 1_900
"""Nearly as many values as the operator reads, in the form that takes most memory."""

VALUES = Path(__file__).parents[1] / "charts" / "dtj" / "values.yaml"


def main() -> None:
    options = _options()
    if options.alone:
        _alone(options)
        return
    scenes: dict[str, Callable[[], Iterable[JsonObject]]] = {
        "1 job of 10,000": lambda: [manifest("huge", roles={"worker": 10_000})],
        "1 job of 3,400": lambda: [manifest("digits", roles={"worker": 3_400})],
        "50 jobs of 1,000": lambda: [manifest(f"many-{n}", roles={"worker": 1_000}) for n in range(50)],
        f"{options.junk} of 1.3 MB": lambda: (_hostile(f"junk-{n}") for n in range(options.junk)),
        "32 of 256 KiB": lambda: (_six_roles(f"junk-{n}", JUNK) for n in range(32)),
        "100 Services of 1.2 MiB": lambda: map(_service, range(100)),
        "500 Services with owners of 1 MB": lambda: map(_owned_service, range(500)),
    }
    wanted = {name: make for name, make in scenes.items() if options.scene in name}
    peaks = {name: _peaks(name, make(), options) for name, make in wanted.items()}
    figures.print_machine()
    figures.print_figure("the chart's limit", _limit())
    for name, told in peaks.items():
        figures.print_figure(name, told)


def _hostile(name: str) -> JsonObject:
    """A suspended job of 1.3 MB that decodes to 30 times as much."""
    body = manifest(name, roles={"worker": 1}, runPolicy={"suspend": True})
    spec = body["spec"]
    assert isinstance(spec, dict)
    junk: list[JsonObject] = [{} for _ in range(430_000)]
    spec["template"] = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [*junk]}}
    return body


def _six_roles(name: str, junk: object) -> JsonObject:
    """A job that is to start, with the pods of six roles to be checked."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": junk}}
    return manifest(name, strategy="ParameterServer", roles=dict.fromkeys(Role, 1), template=template)


def _service(number: int) -> JsonObject:
    """A Service whose selector takes ten times as much memory as it is long."""
    signs = string.ascii_lowercase + string.digits
    keys = map("".join, itertools.product(signs, signs, signs, "abc"))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"s{number}", "namespace": "default", "labels": {Label.JOB_NAME: "x"}},
        "spec": {"selector": dict.fromkeys(itertools.islice(keys, 130_000), ""), "ports": [{"port": 1}]},
    }


def _owned_service(number: int) -> JsonObject:
    """A Service of an owner with a UID of 1 MB: Kubernetes has no limit for it but that of the whole object."""
    owner: JsonObject = {"apiVersion": "example.com/v1", "kind": "Any", "name": "x", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": f"s{number}",
            "namespace": "default",
            "labels": {Label.JOB_NAME: "x"},
            "ownerReferences": [{**owner, "uid": f"{number}".ljust(1_000_000, "u")}],
        },
        "spec": {"ports": [{"port": 1}]},
    }


def _peaks(name: str, jobs: Iterable[JsonObject], options: argparse.Namespace) -> str:
    with common.control_plane() as (plane, directory), common.new_world(plane) as world:
        log = directory / "first.log"
        with OperatorProcess.serving(plane, [world.namespace], log=log) as operator:
            operator.await_line("runs jobs")
            time.sleep(5.0)
            empty = common.memory(operator.pid)
            refusal = _submit(plane, world, jobs)
            if refusal:
                return f"refused at apply: {refusal}; RSS {common.memory(operator.pid):.0f} MiB"
            first = _watched(operator, options)
        with OperatorProcess.serving(plane, [world.namespace], log=directory / "second.log") as operator:
            second = _watched(operator, options)
        pods = common.count(plane, common.pods_path(world.namespace))
    return f"empty {empty:.0f} MiB; peak {first}; after a restart {second}; {pods} pods were made in that time"


def _submit(plane: ControlPlane, world: JobWorld, jobs: Iterable[JsonObject]) -> str:
    """Create the objects, one after the other, compactly; the API server's words where it refuses one."""
    for job in jobs:
        of_services = f"/api/v1/namespaces/{world.namespace}/services"
        path = of_services if job["kind"] == "Service" else common.jobs_path(world.namespace)
        try:
            plane.api.request("POST", f"{path}?fieldValidation=Ignore", _placed(job, world.namespace))
        except ApiError as error:
            return re.sub(r"^.*Invalid value: \"object\": ", "", str(error))[:160]
    return ""


def _placed(body: JsonObject, namespace: str) -> JsonObject:
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return {**body, "metadata": {**metadata, "namespace": namespace}}


def _watched(operator: OperatorProcess, options: argparse.Namespace) -> str:
    """The peak within some time, or that it was stopped for its memory, or ended."""
    ends = time.monotonic() + options.seconds
    peak = 0.0
    while time.monotonic() < ends and operator.running:
        try:
            peak = common.memory(operator.pid, peak=True)
        except (OSError, StopIteration):
            break
        if peak > options.stop_mib:
            operator.kill()
            return f"more than {peak:.0f} MiB, stopped"
        time.sleep(0.2)
    return f"{peak:.0f} MiB"


# -- the engine alone ------------------------------------------------------------------------------------------------


class _Server(FakeGateway):
    """An API server that keeps nothing: it has these Services, and no status can be written."""

    def __init__(self, services: int, make: Callable[[int], JsonObject]) -> None:
        super().__init__()
        self._services = services
        self._make = make

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        if resource != SERVICES:
            return super().pages(resource, namespace=namespace, selector=selector, field_selector=field_selector)
        return self._pages_of_services()

    async def _pages_of_services(self) -> AsyncIterator[Listing]:
        yield Listing((), "1")
        for number in range(self._services):
            yield Listing((msgspec.json.encode(self._make(number)),), "1")
            await asyncio.sleep(0)

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False, strict: bool = False
    ) -> JsonObject:
        msgspec.json.encode(body)
        await asyncio.sleep(0.2)
        return {}

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, subresource: str = ""
    ) -> JsonObject:
        raise Conflict("newer", status=409)


def _alone(options: argparse.Namespace) -> None:
    scenes: dict[str, Callable[[], str]] = {
        "32 of 256 KiB": partial(_engine, jobs=32, junk="JUNK"),
        "32 just taken": partial(_engine, jobs=32, junk="JUST_TAKEN"),
        "100 Services": partial(_engine, services=100),
        "500 Services with owners of 1 MB": partial(_engine, services=500, make=_owned_service),
        "both": partial(_engine, jobs=32, junk="JUNK", services=500, make=_owned_service),
    }
    figures.print_machine()
    figures.print_figure("the chart's limit", _limit())
    for name, scene in scenes.items():
        if options.scene in name:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
                figures.print_figure(name, process.submit(scene).result())


def _engine(
    *, jobs: int = 0, junk: str = "JUNK", services: int = 0, make: Callable[[int], JsonObject] = _service
) -> str:
    server = _Server(services, make)
    return asyncio.run(_engine_with([_encoded(number, globals()[junk]) for number in range(jobs)], server))


def _encoded(number: int, junk: object) -> bytes:
    return msgspec.json.encode(stored(_six_roles(f"junk-{number}", junk), uid=f"uid-{number}"))


async def _engine_with(jobs: list[bytes], server: _Server) -> str:
    settings = EngineSettings(relist_every=None)
    engine = Engine(server, plan=plan, platform=Platform(), instance="bench", settings=settings)
    empty, blocked = common.memory(getpid(), peak=True), common.Blocked()
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(common.watch_loop(blocked))
        running = group.create_task(engine.run())
        for job in jobs:
            engine.feed.put(read_job(job))
            await asyncio.sleep(0)
        while not engine.synced:
            await asyncio.sleep(0.1)
        await asyncio.sleep(10.0)
        watching.cancel()
        engine.stop()
        await running
    peak = common.memory(getpid(), peak=True)
    return f"peak {peak:.0f} MiB, {empty:.0f} before; the event loop did nothing else for {blocked} at most"


def _limit() -> str:
    """The memory limit of the operator's container in the chart's values."""
    found = re.search(r"limits:\n(?:.*\n)??\s+memory: (\S+)", VALUES.read_text())
    return found[1] if found is not None else "none"


def _options() -> argparse.Namespace:
    parser = figures.parser(
        __doc__,
    )
    parser.add_argument("--alone", action="store_true", help="without a control plane: the engine alone")
    parser.add_argument("--scene", default="", help="only scenes whose name holds this text")
    parser.add_argument("--junk", type=int, default=100, help="number of jobs of 1.3 MB (default 100)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each operator is watched (default 60)")
    parser.add_argument("--stop-mib", type=float, default=2048.0, help="stop an operator with more (default 2048)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
