"""This task's place in its job, by TF_CONFIG and DTJ_STRATEGY: whom it depends on, and who starts it again. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from . import tf_config
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
        UsageError: TF_CONFIG, DTJ_ROLE, DTJ_INDEX or DTJ_ATTEMPT cannot be used.
    """
    try:
        config = tf_config.parse(environ)
    except tf_config.TfConfigError as error:
        raise UsageError(str(error)) from None
    addresses = {
        f"{role} {number}": peer for role, listed in config.cluster.items() for number, peer in enumerate(listed)
    }
    name = f"{config.role} {config.index}"
    restart_role = _restart_role(environ.get("DTJ_STRATEGY", ""), config)
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


def _restart_role(strategy: str, config: tf_config.TfConfig) -> RestartRole:
    tasks = sum(len(listed) for listed in config.cluster.values())
    if tasks < 2 or not config.cluster.get(config.role):
        return RestartRole.ALONE  # an evaluator, too, appears in nobody's cluster
    strategy = strategy or tf_config.likely_strategy(config) or ""
    if strategy == "MultiWorkerMirrored":
        return RestartRole.MEMBER
    if strategy not in ("ParameterServer", "Pipeline"):
        return RestartRole.ALONE
    leader = "chief" if config.cluster.get("chief") else "worker"
    return RestartRole.COORDINATOR if (config.role, config.index) == (leader, 0) else RestartRole.SERVER


def _attempt(environ: Mapping[str, str]) -> int:
    text = environ.get("DTJ_ATTEMPT") or "0"
    if not text.isdecimal():
        raise UsageError(f"DTJ_ATTEMPT={text}: not a whole number; leave it to the operator, or unset it")
    return int(text)
