"""How long does a coordinated restart take: one worker of 100 is lost, and all are replaced?

    PYTHONPATH=operator:tests:trainer-image python bench/restart_100.py

From the deletion of one pod to the answer to the last creation of the new attempt's, by the API server's audit log.
Against it a bare parallel loop, in the same run, that deletes as many pods and then creates as many. There is no
node, so that a pod is gone as soon as it is deleted: what a kubelet takes to end it is not in these figures.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import common
import crowd
import figures
from dtj.api.json import JsonObject
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess
from testbed import ControlPlane

TARGET_SECONDS = 1.0


@dataclass(frozen=True)
class Measured:
    """One restart by the operator."""

    seconds: float
    cpu_seconds: float
    writes: int


def main() -> None:
    options = figures.parser(
        __doc__, workers=(100, "replicas of the job"), rounds=(5, "how often both are measured")
    ).parse_args()
    by_operator: list[Measured] = []
    by_loop: list[float] = []
    with common.control_plane() as (plane, directory):
        for number in range(options.rounds):
            with common.new_world(plane) as world:
                by_operator.append(_measure_operator(world, workers=options.workers, log=directory / f"{number}.log"))
                owner = common.new_owner(plane)
                bodies = common.pods_of(world, "job-0", owner=owner)
            by_loop.append(_measure_loop(plane, owner, bodies))
    took = [one.seconds for one in by_operator]
    cpu = [one.cpu_seconds for one in by_operator]
    figures.print_machine()
    common.print_times("operator", took, pods=options.workers)
    common.print_times("bare loop", by_loop, pods=options.workers)
    beyond = [a - b for a, b in zip(took, by_loop, strict=True)]
    figures.print_figure("beyond the loop", f"{statistics.median(beyond):.2f} s (target {TARGET_SECONDS:g} s)")
    figures.print_figure("CPU of the operator", f"{statistics.median(cpu):.2f} s (target {TARGET_SECONDS:g} s)")
    figures.print_figure("API writes", f"{by_operator[-1].writes} for {options.workers} replicas")


def _measure_operator(world: JobWorld, *, workers: int, log: Path) -> Measured:
    plane, path = world.plane, common.pods_path(world.namespace)
    with OperatorProcess.serving(plane, [world.namespace], log=log) as operator:
        crowd.start_jobs(world, "job", number=1, workers=workers)
        common.await_quiet(plane)
        mark, before = plane.audit.mark(), common.cpu_seconds(operator.pid)
        began = datetime.now(UTC)
        plane.api.request("DELETE", f"{path}/job-0-worker-{workers // 2}", {"gracePeriodSeconds": 0})
        common.await_true(
            lambda: world.job("job-0").status.attempt == 2 and len(_created(world, mark)) == workers,
            seconds=60.0,
            what="the second attempt's pods",
        )
        cpu = common.cpu_seconds(operator.pid) - before
        writes = plane.audit.writes(since=mark, user=USER, namespace=world.namespace)
        return Measured((_created(world, mark)[-1] - began).total_seconds(), cpu, len(writes))


def _created(world: JobWorld, mark: int) -> list[datetime]:
    return common.written(world.plane, since=mark, verb="create", resource="pods", namespace=world.namespace)


def _measure_loop(plane: ControlPlane, owner: JsonObject, bodies: list[JsonObject]) -> float:
    namespace = common.namespace_of(owner)
    path = common.pods_path(namespace)
    common.create(plane, path, bodies)
    common.await_quiet(plane)
    paths = common.pod_paths(plane, namespace)
    began = common.delete(plane, paths)
    common.create(plane, path, bodies)
    seconds = (datetime.now(UTC) - began).total_seconds()
    common.remove(plane, namespace)
    return seconds


if __name__ == "__main__":
    main()
