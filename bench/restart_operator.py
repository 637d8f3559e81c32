"""How long until an operator that is started again knows all its jobs, and does it leave their pods alone?

    PYTHONPATH=operator:tests:trainer-image python bench/restart_operator.py

200 running jobs; the operator is killed and started again. Measured is the time from the start of the process until
its queue is empty after every job was planned once, as its metrics tell, and its writes in the audit log meanwhile.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import common
import crowd
import figures
from loopback import free_ports
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess

LOOK_SECONDS = 0.05
QUIET_SECONDS = 5.0


@dataclass(frozen=True)
class Measured:
    """One start."""

    listening: float
    steady: float
    cpu_seconds: float
    writes: int


def main() -> None:
    options = figures.parser(
        __doc__,
        jobs=(200, "running jobs"),
        workers=(2, "replicas of each"),
        rounds=(3, "how often it is started again"),
    ).parse_args()
    with common.control_plane() as (plane, directory), common.new_world(plane) as world:
        with OperatorProcess.serving(plane, [world.namespace], "--workers=32", log=directory / "first.log"):
            crowd.start_jobs(world, "running", number=options.jobs, workers=options.workers)
        common.await_quiet(plane)
        before = set(_uids(world))
        rounds = [_measure(world, jobs=options.jobs, log=directory / f"{n}.log") for n in range(options.rounds)]
        touched = before ^ set(_uids(world))
    figures.print_machine()
    figures.print_figure("jobs", f"{options.jobs} running, of {options.workers} workers each")
    for name, values in (
        ("process answers", [one.listening for one in rounds]),
        ("all jobs planned", [one.steady for one in rounds]),
        ("CPU until then", [one.cpu_seconds for one in rounds]),
    ):
        figures.print_figure(name, f"{statistics.median(values):.2f} s ({', '.join(f'{v:.2f}' for v in values)})")
    figures.print_figure("API writes", str(sum(one.writes for one in rounds)))
    figures.print_figure("pods touched", str(len(touched)))


def _measure(world: JobWorld, *, jobs: int, log: Path) -> Measured:
    mark = world.plane.audit.mark()
    [port] = free_ports(1)
    started = time.perf_counter()
    with OperatorProcess.serving(world.plane, [world.namespace], f"--metrics-port={port}", log=log) as operator:
        listening = None
        while (passes := _steady_passes(port)) is None or passes < jobs:
            if passes is not None and listening is None:
                listening = time.perf_counter() - started
            if time.perf_counter() - started > crowd.PATIENCE_SECONDS:
                raise SystemExit(f"the operator planned {passes} of {jobs} jobs")
            time.sleep(LOOK_SECONDS)
        steady, cpu = time.perf_counter() - started, common.cpu_seconds(operator.pid)
        time.sleep(QUIET_SECONDS)
    writes = world.plane.audit.writes(since=mark, user=USER)
    return Measured(listening or steady, steady, cpu, len(writes))


def _steady_passes(port: int) -> int | None:
    """How many passes have ended, 0 while any key waits; None where nobody answers."""
    metrics = common.metrics(port)
    if metrics is None:
        return None
    waiting = common.total(metrics, "workqueue_depth")
    return 0 if waiting else int(common.total(metrics, "dtj_reconcile_seconds_count"))


def _uids(world: JobWorld) -> list[tuple[str, str]]:
    pods = common.list_all(world.plane, common.pods_path(world.namespace))
    return [(common.name_of(pod), common.version_of(pod)) for pod in pods]


if __name__ == "__main__":
    main()
