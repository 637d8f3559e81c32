"""Jobs of a cluster from Python: :class:`Client`, and :class:`AsyncClient` for asyncio.

A room of its own above all that decides and runs: what it offers, the command line offers too, since that uses it.
Names are imported when they are used: ``dtj validate`` needs the checks of manifests, and not the Kubernetes client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dtj.api.job import Job as Job
    from dtj.api.names import Condition as Condition
    from dtj.api.status import JobStatus as JobStatus
    from dtj.client.aio import AsyncClient as AsyncClient
    from dtj.client.errors import ClientError as ClientError
    from dtj.client.errors import CodeError as CodeError
    from dtj.client.errors import ConditionUnreachable as ConditionUnreachable
    from dtj.client.errors import InvalidManifest as InvalidManifest
    from dtj.client.errors import InvalidRequest as InvalidRequest
    from dtj.client.errors import JobGone as JobGone
    from dtj.client.errors import WaitTimeout as WaitTimeout
    from dtj.client.logs import LogLine as LogLine
    from dtj.client.logs import LogNote as LogNote
    from dtj.client.logs import LogSelection as LogSelection
    from dtj.client.logs import NothingToRead as NothingToRead
    from dtj.client.overview import Event as Event
    from dtj.client.sync import Client as Client
    from dtj.client.training import TrainingRun as TrainingRun
    from dtj.client.training import train as train
    from dtj.core.observed import Pod as Pod
    from dtj.kube.config import ConfigError as ConfigError
    from dtj.kube.errors import AlreadyExists as AlreadyExists
    from dtj.kube.errors import ApiError as ApiError
    from dtj.kube.errors import Conflict as Conflict
    from dtj.kube.errors import Forbidden as Forbidden
    from dtj.kube.errors import NotFound as NotFound
    from dtj.kube.errors import Unavailable as Unavailable

_NAMES: Final = {
    "dtj.api.job": "Job",
    "dtj.api.names": "Condition",
    "dtj.api.status": "JobStatus",
    "dtj.client.aio": "AsyncClient",
    "dtj.client.errors": "ClientError CodeError ConditionUnreachable InvalidManifest InvalidRequest JobGone "
    "WaitTimeout",
    "dtj.client.logs": "LogLine LogNote LogSelection NothingToRead",
    "dtj.client.overview": "Event",
    "dtj.client.sync": "Client",
    "dtj.client.training": "TrainingRun train",
    "dtj.core.observed": "Pod",
    "dtj.kube.config": "ConfigError",
    "dtj.kube.errors": "AlreadyExists ApiError Conflict Forbidden NotFound Unavailable",
}
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    """Import what is asked for. Raises AttributeError."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
