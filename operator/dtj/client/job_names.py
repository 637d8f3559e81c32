"""The names of jobs as a person types them: ``digits``, and of a TFJob ``tfjob/mnist``."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, name_of, text
from dtj.api.printable import one_line
from dtj.api.tfjob.names import SINGULAR
from dtj.client.errors import InvalidRequest
from dtj.kube.errors import Unavailable
from dtj.kube.gateway import JOBS, TFJOBS, Gateway, jobs_of

_PREFIX: Final = f"{SINGULAR}/"


async def read(gateway: Gateway, name: str, *, namespace: str) -> JsonObject:
    """The job of this name as the API server has it. Raises NotFound, and InvalidRequest for what cannot be a name.

    It has that name, and a UID: who changes or deletes it can name both.
    """
    resource = TFJOBS if name.startswith(_PREFIX) else JOBS
    plain = name.removeprefix(_PREFIX)
    if problem := names.segment_problem(plain):
        raise InvalidRequest(one_line(problem))
    check_namespace(namespace)
    body = await gateway.get(resource, namespace=namespace, name=plain)
    _check_identity(body, plain)
    return body


def _check_identity(body: JsonObject, name: str) -> None:
    """Raises Unavailable for an answer that is not this one object: what is done next would be done to another."""
    if name_of(body) != name or not text(dig(body, "metadata", "uid")):
        raise Unavailable(f"asked for {name}, the answer is another object or none: is this an API server's address?")


def check_namespace(namespace: str) -> None:
    """Raises InvalidRequest for a text that is not the name of a namespace."""
    if problem := names.namespace_problem(namespace):
        raise InvalidRequest(one_line(problem))


def typed(job: Job) -> str:
    """How to name a job to a command."""
    return f"{_PREFIX}{job.name}" if jobs_of(job.form) == TFJOBS else job.name
