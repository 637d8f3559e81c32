"""Many jobs at once, as the benchmarks of an operator that has much to look after need them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import common
from builders import manifest
from dtj.api.json import dig
from support.job_world import JobWorld
from support.operator_process import OperatorProcess

PATIENCE_SECONDS = 900.0


@contextmanager
def settled_operator(world: JobWorld, *arguments: str, log: Path, settle: float) -> Iterator[OperatorProcess]:
    """An operator that knows what there is, and has had ``settle`` seconds to come to rest."""
    with OperatorProcess.serving(world.plane, [world.namespace], *arguments, log=log) as operator:
        operator.await_line("runs jobs")
        time.sleep(settle)
        yield operator


def start_jobs(world: JobWorld, prefix: str, *, number: int, workers: int) -> None:
    """Have the operator start this many jobs, and their pods run."""
    path = common.pods_path(world.namespace)
    before = common.count(world.plane, path)
    jobs = [manifest(f"{prefix}-{index}", roles={"worker": workers}) for index in range(number)]
    common.create(world.plane, common.jobs_path(world.namespace), jobs)
    wanted = before + number * workers
    common.await_true(
        lambda: common.count(world.plane, path) >= wanted, seconds=PATIENCE_SECONDS, what=f"{wanted} pods"
    )
    common.play_kubelet(world.plane, world.namespace, None, prefix=f"{prefix}-")
    await_states(world, "Running", prefix=prefix, number=number)


def finish_jobs(world: JobWorld, prefix: str, *, number: int) -> None:
    """Have the pods of these jobs complete, and the jobs succeed."""
    common.play_kubelet(world.plane, world.namespace, 0, prefix=f"{prefix}-")
    await_states(world, "Succeeded", prefix=prefix, number=number)


def await_states(world: JobWorld, state: str, *, prefix: str, number: int) -> None:
    """Wait until all jobs with this prefix are in this state."""

    def reached() -> bool:
        jobs = common.list_all(world.plane, common.jobs_path(world.namespace))
        return number == sum(
            dig(job, "status", "state") == state and common.name_of(job).startswith(f"{prefix}-") for job in jobs
        )

    common.await_true(reached, seconds=PATIENCE_SECONDS, what=f"{number} jobs to be {state}", every=1.0)
