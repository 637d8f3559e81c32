"""The names of jobs as a person types them: ``digits``, and of a TFJob ``tfjob/mnist``."""

from __future__ import annotations

from typing import Final

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.tfjob.names import SINGULAR
from dtj.kube.gateway import JOBS, TFJOBS, Gateway, jobs_of

_PREFIX: Final = f"{SINGULAR}/"


async def read(gateway: Gateway, name: str, *, namespace: str) -> JsonObject:
    """The job of this name as the API server has it. Raises NotFound."""
    resource = TFJOBS if name.startswith(_PREFIX) else JOBS
    return await gateway.get(resource, namespace=namespace, name=name.removeprefix(_PREFIX))


def typed(job: Job) -> str:
    """How to name a job to a command."""
    return f"{_PREFIX}{job.name}" if jobs_of(job.form) == TFJOBS else job.name
