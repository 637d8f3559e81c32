"""The start gate of this task: it proves that its port is free, shows itself to its peers and waits for them.

`dtj_launch.rendezvous` has the protocol. Must not import TensorFlow.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from dtj_launch import communication, devices
from dtj_launch.rendezvous import Peer, PeersMissing, ReadinessListener, prove_free, rendezvous, wait_for_peers
from dtj_launch.world import gate_patience
from dtj_trainer.config.cluster import CHIEF, EVALUATOR, PS, WORKER
from dtj_trainer.config.parsing import Config
from dtj_trainer.errors import PeerLost, UsageError
from dtj_trainer.process.watchdog import Watchdog

log = logging.getLogger(__name__)


def meet_peers(config: Config) -> Config:
    """The start gate of a script: returns when the peers that its strategy connects to are there.

    Returns:
        The same with the `communication` that the tasks have decided for.

    Raises:
        PeerLost: they are not there in time.
        UsageError: this task's port is in use, or the devices of the tasks do not fit together.
    """
    role = config.cluster.task.role
    if config.strategy == "MultiWorkerMirrored" and role != EVALUATOR:
        return rendezvous_with_peers(config, listen(config))
    if config.strategy == "ParameterServer" and role == CHIEF:
        wait_for_roles(config, WORKER, PS)
    if config.strategy == "TPU" and role == CHIEF and config.cluster.count(WORKER):
        listen(config)  # as long as this process lives, which the hosts of the TPU outlast
        wait_for_roles(config, WORKER)
    return agree_on_communication(config, {})


def started_in_time(config: Config) -> Watchdog:
    """A peer that passes the gate and then dies would be waited for in silence, and without end."""
    who = f"TPU {config.tpu_name}" if config.strategy == "TPU" else "the other tasks"
    lost = PeerLost(f"{who} passed the start gate, but did not connect within {config.start_timeout:g} s")
    return Watchdog(config.start_timeout, lost)


def wait_for_dispatcher(config: Config, address: str) -> None:
    """Returns when the dispatcher of the tf.data service answers.

    Raises:
        PeerLost: it did not in time.
    """
    host, _, port = address.rpartition(":")
    _wait_for(config, {"dispatcher of the tf.data service": (host.strip("[]"), int(port))})


def listen(config: Config) -> ReadinessListener:
    """Shows the peers that this task is there, and proves that its port is free.

    Raises:
        UsageError: it is not free.
    """
    port = _own_port(config)
    with naming_port(port, "TF_CONFIG", config):
        return ReadinessListener(
            port,
            name=str(config.cluster.task),
            attempt=config.attempt,
            key=config.gate_key,
            host=config.bind_address,
            announced=str(devices.found(os.environ, config.communication)),
        )


def prove_port_free(config: Config) -> None:
    """For a task whose server starts later. It has no gate: a peer that found the gate would not find the server."""
    port = _own_port(config)
    with naming_port(port, "TF_CONFIG", config):
        prove_free(port)


@contextmanager
def naming_port(port: int, source: str, config: Config) -> Iterator[None]:
    """Has an OSError of a port name the variable that the port comes from.

    Raises:
        UsageError: the port cannot be had.
    """
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{source}: port {port} of {config.cluster.task}: {os.strerror(error.errno or 0)}; "
            "end the process that has it, or give another port",
            restart_may_help=True,
        ) from None


def wait_for_roles(config: Config, *roles: str) -> None:
    """Returns when each peer of these roles answers, without a gate of its own.

    Raises:
        PeerLost: one did not in time.
    """
    _wait_for(config, _addresses(config, *roles))


def rendezvous_with_peers(config: Config, listener: ReadinessListener) -> Config:
    """Returns when all members of the collective are here; then the port is free for TensorFlow.

    Returns, raises: see `agree_on_communication`.
    """
    with _named_in_time():
        heard = rendezvous(
            listener,
            _addresses(config, CHIEF, WORKER),
            name=str(config.cluster.task),
            attempt=config.attempt,
            key=config.gate_key,
            timeout=config.start_timeout,
            patience=gate_patience(os.environ),
        )
    listener.close()
    return agree_on_communication(config, heard)


def agree_on_communication(config: Config, heard: Mapping[str, str]) -> Config:
    """Returns the same with the `communication` that this task and its peers come to, each by itself.

    Args:
        heard: name of a peer -> what it has announced.

    Raises:
        UsageError: their devices do not fit together.
    """
    if config.strategy not in communication.STRATEGIES or config.cluster.task.role == EVALUATOR:
        return config
    own = devices.found(os.environ, config.communication)
    try:
        chosen, line = communication.agree(heard, name=str(config.cluster.task), own=own)
    except communication.CommunicationError as error:
        raise UsageError(f"start gate: {error}") from None
    if line:
        log.log(config.cluster.common_log_level, line)
    return replace(config, communication=chosen)


def _own_port(config: Config) -> int:
    address = config.cluster.own_address
    assert address is not None  # a task of a checked cluster
    return address.port


def _wait_for(config: Config, peers: Mapping[str, Peer]) -> None:
    with _named_in_time():
        wait_for_peers({**peers, **config.tpu_runtimes}, timeout=config.start_timeout)


def _addresses(config: Config, *roles: str) -> dict[str, Peer]:
    return {str(task): (a.host, a.port) for task, a in config.cluster.peers(*roles).items()}


@contextmanager
def _named_in_time() -> Iterator[None]:
    try:
        yield
    except PeersMissing as missing:
        raise PeerLost(f"start gate: {missing}; see why they did not start, or raise --start-timeout") from None
