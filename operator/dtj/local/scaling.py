"""How many workers a person wants a run to have: ``dtj scale --run`` writes the number, the runner reads it."""

from __future__ import annotations

import yaml

from dtj.api.job import Job
from dtj.local.platform import most_workers
from dtj.local.run_directory import RunDirectory, write_privately


class NotScalable(Exception):
    """A run whose number of workers cannot become the one that is asked for; the message says why, in one line."""


def ask(directory: RunDirectory, workers: int) -> None:
    """Ask the process that runs this run for another number of workers. Raises NotScalable, and OSError."""
    if not directory.running:
        raise NotScalable(f"{directory.path} does not run any more: start it again with dtj run")
    job = Job.from_object(yaml.safe_load(directory.manifest.read_text()))
    if job.spec is None or job.spec.elastic is None:
        raise NotScalable(f"{job.name} is not elastic: run it with spec.elastic")
    least, most, here = job.spec.elastic.min_replicas, job.spec.elastic.max_replicas, most_workers(job.spec)
    if not least <= workers <= most:
        raise NotScalable(f"--replicas={workers}: spec.elastic of {job.name} allows from {least} to {most}")
    if workers > here:
        raise NotScalable(f"--replicas={workers}: a run on this machine is scaled to {here} at most")
    fresh = directory.workers.with_suffix(".new")
    write_privately(fresh, str(workers).encode())
    fresh.replace(directory.workers)


def asked(directory: RunDirectory) -> int | None:
    """The number that was asked for last; None if nobody has asked."""
    try:
        return int(directory.workers.read_text())
    except (FileNotFoundError, ValueError):
        return None
