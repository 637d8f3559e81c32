"""The operator creates the pods of some jobs, and a bare parallel loop creates the same: how do they compare?

    PYTHONPATH=operator:tests:trainer-image python bench/creation.py --jobs 1 --workers 500

Both create the same pods, one after the other in the same run, on the testbed's control plane (a real API server
with admission, scheduler and garbage collection, but no node). The loop is the ceiling: 50 connections, bodies that
are encoded beforehand, nothing decided, nothing watched, no Service and no status written. For many small jobs that
is little of the work; so a second loop makes all the writes that the operator's user and the operator make until the
last pod is there: the jobs, a dry run, a status and a Service of each, and the pods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pydantic import JsonValue

import common
import figures
from builders import manifest
from dtj.api.job import Job
from dtj.api.json import dig
from dtj.core.manifests.pod import PodRenderer
from dtj.core.platform import Platform
from dtj.core.policies.job_service import service
from dtj.core.replicas import replicas
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess
from testbed import ControlPlane

TARGETS: Final = {(1, 500): 1.25, (100, 4): 1.5}
"""Of the loop's time, by jobs and workers."""


@dataclass(frozen=True)
class Measured:
    """One creation of all pods by the operator."""

    seconds: float
    writes: int
    cpu_seconds: float
    peak_mib: float


def main() -> None:
    """Measure all as often as asked, and print how they compare."""
    options = figures.parser(
        __doc__,
        jobs=(100, "number of jobs"),
        workers=(4, "replicas of each"),
        rounds=(3, "how often all are measured"),
    ).parse_args()
    jobs, workers = options.jobs, options.workers
    by_operator: list[Measured] = []
    by_loop: list[float] = []
    same_writes: list[float] = []
    with common.control_plane() as (plane, directory):
        for number in range(options.rounds):
            with common.new_world(plane) as world:
                log = directory / f"operator-{number}.log"
                by_operator.append(_measure_operator(world, jobs=jobs, workers=workers, log=log))
                owner = common.new_owner(plane)
                bodies = [pod for job in _names(jobs) for pod in common.pods_of(world, job, owner=owner)]
                status = dig(world.body(_names(jobs)[0]), "status")
            by_loop.append(common.measure_loop(plane, owner, bodies))
            same_writes.append(_measure_same_writes(plane, jobs=jobs, workers=workers, status=status))
    pods = jobs * workers
    figures.print_machine()
    figures.print_figure("made", f"{jobs} jobs of {workers} workers")
    common.print_times("operator", [one.seconds for one in by_operator], pods=pods)
    common.print_times("bare loop", by_loop, pods=pods)
    common.print_times("the same writes", same_writes, pods=pods)
    took = [one.seconds for one in by_operator]
    figures.print_ratio("ratio", took, by_loop, target=TARGETS.get((jobs, workers)))
    figures.print_ratio("to the same writes", took, same_writes, target=None)
    figures.print_figure("API writes", f"{by_operator[-1].writes} for {pods} pods")
    figures.print_figure("CPU of the operator", ", ".join(f"{one.cpu_seconds:.2f} s" for one in by_operator))
    figures.print_figure("peak RSS", f"{by_operator[-1].peak_mib:.0f} MiB")


def _measure_operator(world: JobWorld, *, jobs: int, workers: int, log: Path) -> Measured:
    plane, pods = world.plane, common.pods_path(world.namespace)
    with OperatorProcess.serving(plane, [world.namespace], log=log) as operator:
        # A first small job: what is measured is not the start of the process.
        world.submit("warm-up", roles={"worker": 1})
        world.await_pods(["worker-0"], "warm-up")
        common.await_quiet(plane)
        before, mark = common.cpu_seconds(operator.pid), plane.audit.mark()
        wanted = [manifest(name, roles={"worker": workers}) for name in _names(jobs)]
        began = common.create(plane, common.jobs_path(world.namespace), wanted)
        total = jobs * workers
        common.await_true(lambda: common.count(plane, pods) > total, seconds=300.0, what="the pods")
        cpu = common.cpu_seconds(operator.pid) - before
        common.await_quiet(plane)
        answered = common.written(plane, since=mark, verb="create", resource="pods", namespace=world.namespace)
        return Measured(
            seconds=(answered[-1] - began).total_seconds(),
            writes=len(plane.audit.writes(since=mark, user=USER, namespace=world.namespace)),
            cpu_seconds=cpu,
            peak_mib=common.memory(operator.pid, peak=True),
        )


def _measure_same_writes(plane: ControlPlane, *, jobs: int, workers: int, status: JsonValue) -> float:
    """All writes of the start of these jobs, one kind after the other, each in parallel."""
    namespace = plane.new_namespace("bench")
    path, pods_path = common.jobs_path(namespace), common.pods_path(namespace)
    wanted = [manifest(name, roles={"worker": workers}) for name in _names(jobs)]
    seconds = _timed(lambda: common.create(plane, path, wanted))
    pods, services = [], []
    for body in common.list_all(plane, path):
        job = Job.from_object(body)
        assert job.spec is not None
        pods.append([*map(PodRenderer(job, job.spec, Platform()).render, replicas(job.spec))])
        services.append(service(job, job.spec, attempt=1))
    statuses = {f"{path}/{name}": status for name in _names(jobs)}
    services_path = f"/api/v1/namespaces/{namespace}/services"
    for step in (
        lambda: common.create(plane, f"{pods_path}?dryRun=All&fieldValidation=Strict", [own[0] for own in pods]),
        lambda: common.patch_statuses(plane, statuses),
        lambda: common.create(plane, services_path, services),
        lambda: common.create(plane, pods_path, [pod for own in pods for pod in own]),
    ):
        seconds += _timed(step)
    common.remove(plane, namespace)
    return seconds


def _timed(step: Callable[[], datetime]) -> float:
    began = step()
    seconds: float = (datetime.now(UTC) - began).total_seconds()
    return seconds


def _names(jobs: int) -> list[str]:
    return [f"large-{number}" for number in range(jobs)]


if __name__ == "__main__":
    main()
