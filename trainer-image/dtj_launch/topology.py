"""The peers of this task and its restart role, from TF_CONFIG and DTJ_STRATEGY. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from . import tf_config
from .errors import UsageError
from .rendezvous import Peer
from .world import FILE, gate_key


class RestartRole(Enum):
    """What a task does for the others; decides whether the launcher restarts its program in the pod."""

    ALONE = "alone"
    """It has no peers, or only the operator can restart it: the launcher reports every end."""
    MEMBER = "member"
    """Part of a collective: if one member is lost, all members start again and wait for each other."""
    COORDINATOR = "coordinator"
    """It commands servers, which run on without it; it starts again if one of them is lost."""
    SERVER = "server"
    """It serves a coordinator, and waits for no peer."""


@dataclass(frozen=True)
class TaskTopology:
    """One task among its peers."""

    restart_role: RestartRole
    name: str
    attempt: int
    key: str
    """What only the tasks of this job know; empty if there is no key."""
    host: str
    """The address that its start gate listens on; empty: all interfaces."""
    port: int | None
    """Where it will listen."""
    peers: Mapping[str, Peer]
    """The tasks that it waits for at the start gate."""


def topology_of(environ: Mapping[str, str]) -> TaskTopology:
    """Reads the topology of this task; without TF_CONFIG it is alone.

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
    if environ.get(FILE) and restart_role is RestartRole.ALONE:
        restart_role = RestartRole.MEMBER  # a task that trains alone now may get peers
    waits = restart_role in (RestartRole.MEMBER, RestartRole.COORDINATOR)
    own = addresses.get(name)
    return TaskTopology(
        restart_role=restart_role,
        name=name,
        attempt=_attempt(environ),
        key=gate_key(environ),
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
    leader = next((role for role in ("chief", "master") if config.cluster.get(role)), "worker")
    return RestartRole.COORDINATOR if (config.role, config.index) == (leader, 0) else RestartRole.SERVER


def _attempt(environ: Mapping[str, str]) -> int:
    text = environ.get("DTJ_ATTEMPT") or "0"
    if not text.isdecimal():
        raise UsageError(f"DTJ_ATTEMPT={text}: not a whole number; leave it to the operator, or unset it")
    return int(text)
