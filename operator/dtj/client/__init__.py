"""Jobs of a cluster from Python: :class:`Client`, and :class:`AsyncClient` for asyncio.

A room of its own above all that decides and runs: what it offers, the command line offers too, since that uses it.
"""

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.api.status import JobStatus
from dtj.client.aio import AsyncClient
from dtj.client.errors import ClientError, InvalidManifest, InvalidRequest, JobGone, NeverComes, WaitTimeout
from dtj.client.logs import LogLine, LogNote, LogSelection, NothingToRead
from dtj.client.overview import Event
from dtj.client.sync import Client
from dtj.core.observed import Pod
from dtj.kube.config import ConfigError
from dtj.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unavailable

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "Condition",
    "ConfigError",
    "Conflict",
    "Event",
    "Forbidden",
    "InvalidManifest",
    "InvalidRequest",
    "Job",
    "JobGone",
    "JobStatus",
    "LogLine",
    "LogNote",
    "LogSelection",
    "NeverComes",
    "NotFound",
    "NothingToRead",
    "Pod",
    "Unavailable",
    "WaitTimeout",
]
