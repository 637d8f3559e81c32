"""The names of jobs as a person types them: ``digits``, and of a TFJob ``tfjob/mnist``."""

from __future__ import annotations

from typing import Final

from dtj.api.job import Job
from dtj.api.tfjob.names import SINGULAR
from dtj.kube.gateway import JOBS, TFJOBS, Resource

_PREFIX: Final = f"{SINGULAR}/"


def parse(name: str) -> tuple[Resource, str]:
    """The kind that a name means, and the name within it."""
    return (TFJOBS, name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else (JOBS, name)


def typed(job: Job) -> str:
    """The inverse of :func:`parse`: how to name a job to a command."""
    return f"{_PREFIX}{job.name}" if job.form.foreign else job.name
