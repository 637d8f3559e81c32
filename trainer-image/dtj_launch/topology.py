"""This task's place in its job, by TF_CONFIG and DTJ_STRATEGY: whom it depends on, and who starts it again. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .errors import UsageError
from .rendezvous import Peer


class RestartRole(Enum):
    """What a task is to the others; decides whether its program is started again in its place."""

    ALONE = "alone"
    """It has no peers, or what it has cannot go on without the operator: every end of it is told."""
    MEMBER = "member"
    """Of a collective: when one member is lost, all begin anew, and have to meet."""
    COORDINATOR = "coordinator"
    """It commands servers, which live on without it, and it begins anew when one of them is lost."""
    SERVER = "server"
    """It does what a coordinator says, and waits for nobody."""


@dataclass(frozen=True)
class TaskTopology:
    """One task among its peers."""

    restart_role: RestartRole
    name: str
    attempt: int
    key: str
    """By it the tasks of a job know each other; empty where there is none."""
    host: str
    """The address that its start gate listens on; all interfaces where it is empty."""
    port: int | None
    """Where it will listen."""
    peers: Mapping[str, Peer]
    """Whom it waits for at the start gate."""


def topology_of(environ: Mapping[str, str]) -> TaskTopology:
    """Reads where this task stands; alone, where there is no TF_CONFIG.

    Raises:
        UsageError: TF_CONFIG or DTJ_ATTEMPT cannot be read.
    """
    cluster, role, index = _tf_config(environ)
    addresses = {
        f"{task} {number}": _peer(f"cluster.{task}[{number}]", text)
        for task, listed in cluster.items()
        for number, text in enumerate(listed)
    }
    name = f"{role} {index}"
    restart_role = _restart_role(environ.get("DTJ_STRATEGY", ""), cluster, role, index)
    waits = restart_role in (RestartRole.MEMBER, RestartRole.COORDINATOR)
    own = addresses.get(name)
    return TaskTopology(
        restart_role=restart_role,
        name=name,
        attempt=_attempt(environ),
        key=environ.get("DTJ_JOB_UID", ""),
        host=environ.get("DTJ_BIND_ADDRESS", ""),
        port=own[1] if own is not None else None,
        peers={other: peer for other, peer in addresses.items() if other != name} if waits else {},
    )


def _restart_role(strategy: str, cluster: Mapping[str, list[Any]], role: str, index: int) -> RestartRole:
    tasks = sum(len(listed) for listed in cluster.values())
    if tasks < 2 or index >= len(cluster.get(role, ())):
        return RestartRole.ALONE  # an evaluator, too, appears in nobody's cluster
    if not strategy:
        strategy = "ParameterServer" if cluster.get("ps") else "MultiWorkerMirrored"
    if strategy == "MultiWorkerMirrored":
        return RestartRole.MEMBER
    if strategy not in ("ParameterServer", "Pipeline"):
        return RestartRole.ALONE
    leader = "chief" if cluster.get("chief") else "worker"
    return RestartRole.COORDINATOR if (role, index) == (leader, 0) else RestartRole.SERVER


def _tf_config(environ: Mapping[str, str]) -> tuple[Mapping[str, list[Any]], str, int]:
    raw = environ.get("TF_CONFIG", "").strip()
    try:
        config = json.loads(raw) if raw else {}
        cluster, task = config.get("cluster", {}), config.get("task", {})
        role = str(task.get("type") or environ.get("DTJ_ROLE") or "worker")
        index = int(task.get("index") or environ.get("DTJ_INDEX") or 0)
        return {str(name): list(listed) for name, listed in cluster.items()}, role, index
    except (ValueError, TypeError, AttributeError):
        short = raw if len(raw) <= 60 else raw[:57] + "..."
        raise UsageError(
            f"TF_CONFIG={short}: cannot be read; give e.g. "
            '{"cluster": {"worker": ["host:2222"]}, "task": {"type": "worker", "index": 0}}'
        ) from None


def _peer(path: str, text: object) -> Peer:
    host, _, port = str(text).rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"TF_CONFIG: {path} is {text}, not host:port; name each task by host and port")
    return (host[1:-1] if host.startswith("[") and host.endswith("]") else host, int(port))


def _attempt(environ: Mapping[str, str]) -> int:
    text = environ.get("DTJ_ATTEMPT") or "0"
    if not text.isdecimal():
        raise UsageError(f"DTJ_ATTEMPT={text}: not a whole number; leave it to the operator, or unset it")
    return int(text)
