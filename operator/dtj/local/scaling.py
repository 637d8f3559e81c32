"""How many workers a person wants a run to have: ``dtj scale --run`` writes the number, the runner reads it."""

from __future__ import annotations

from dtj.api.job import Job
from dtj.local.ports import most_workers
from dtj.local.run_directory import RunDirectory, RunError, write_privately
from dtj.local.run_record import read_manifest


def ask(directory: RunDirectory, workers: int) -> None:
    """Ask the process that runs this run for another number of workers. Raises RunError, and OSError."""
    if not directory.running:
        raise RunError(f"{directory.path} does not run any more: start it again with dtj run")
    job = Job.from_object(read_manifest(directory))
    if job.spec is None or job.spec.elastic is None:
        raise RunError(f"{job.name} is not elastic: run it with spec.elastic")
    least, most, here = job.spec.elastic.min_replicas, job.spec.elastic.max_replicas, most_workers(job.spec)
    if not least <= workers <= most:
        raise RunError(f"--replicas={workers}: spec.elastic of {job.name} allows from {least} to {most}")
    if workers > here:
        raise RunError(f"--replicas={workers}: a run on this machine is scaled to {here} at most")
    fresh = directory.workers.with_suffix(".new")
    write_privately(fresh, str(workers).encode())
    fresh.replace(directory.workers)


def asked(directory: RunDirectory) -> int | None:
    """The number that was asked for last; None if nobody has asked."""
    try:
        return int(directory.workers.read_text())
    except (FileNotFoundError, ValueError):
        return None
