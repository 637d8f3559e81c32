"""Jobs of a cluster from Python: :class:`Client`, and :class:`AsyncClient` for asyncio.

A room of its own above all that decides and runs: what it offers, the command line offers too, since that uses it.
Names are imported when they are used: ``dtj validate`` needs the checks of manifests, and not the Kubernetes client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dtj.api.job import Job
    from dtj.api.names import Condition
    from dtj.api.status import JobStatus
    from dtj.client.aio import AsyncClient
    from dtj.client.errors import (
        ClientError,
        CodeError,
        ConditionUnreachable,
        InvalidManifest,
        InvalidRequest,
        JobGone,
        WaitTimeout,
    )
    from dtj.client.logs import LogLine, LogNote, LogSelection, NothingToRead
    from dtj.client.overview import Event
    from dtj.client.sync import Client
    from dtj.client.training import TrainingRun, train
    from dtj.core.observed import Pod
    from dtj.kube.config import ConfigError
    from dtj.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unavailable

__all__ = [
    "AlreadyExists",
    "ApiError",
    "AsyncClient",
    "Client",
    "ClientError",
    "CodeError",
    "Condition",
    "ConditionUnreachable",
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
    "NotFound",
    "NothingToRead",
    "Pod",
    "TrainingRun",
    "Unavailable",
    "WaitTimeout",
    "train",
]

_MODULES: Final = {
    "AlreadyExists": "dtj.kube.errors",
    "ApiError": "dtj.kube.errors",
    "AsyncClient": "dtj.client.aio",
    "Client": "dtj.client.sync",
    "ClientError": "dtj.client.errors",
    "CodeError": "dtj.client.errors",
    "Condition": "dtj.api.names",
    "ConditionUnreachable": "dtj.client.errors",
    "ConfigError": "dtj.kube.config",
    "Conflict": "dtj.kube.errors",
    "Event": "dtj.client.overview",
    "Forbidden": "dtj.kube.errors",
    "InvalidManifest": "dtj.client.errors",
    "InvalidRequest": "dtj.client.errors",
    "Job": "dtj.api.job",
    "JobGone": "dtj.client.errors",
    "JobStatus": "dtj.api.status",
    "LogLine": "dtj.client.logs",
    "LogNote": "dtj.client.logs",
    "LogSelection": "dtj.client.logs",
    "NotFound": "dtj.kube.errors",
    "NothingToRead": "dtj.client.logs",
    "Pod": "dtj.core.observed",
    "TrainingRun": "dtj.client.training",
    "Unavailable": "dtj.kube.errors",
    "WaitTimeout": "dtj.client.errors",
    "train": "dtj.client.training",
}


def __getattr__(name: str) -> object:
    """Import what is asked for. Raises AttributeError."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
