"""The ports of a local run: two of the loopback address for each replica, kept free until its process listens."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dtj.api.spec import JobSpec, Role
from dtj.core.replicas import Replica, replicas

HOST: Final = "127.0.0.1"


class LocalNetwork:
    """Two ports of the loopback address for each replica: one for TensorFlow's server, one for its progress."""

    def __init__(self, ports: dict[Replica, tuple[ReservedPort, ReservedPort]]) -> None:
        self._ports = ports

    def address(self, *, namespace: str, job: str, role: str, index: int, port: int) -> str:
        return f"{HOST}:{self._ports[Replica(Role(role), index)][0].number}"

    def pattern(self, *, namespace: str, job: str, port: int) -> None:
        """Each replica has a port of its own."""

    def status_port(self, *, role: Role, index: int) -> int:
        return self._ports[Replica(role, index)][1].number

    def release(self, replica: Replica) -> None:
        """The replica's process is about to start and will listen."""
        for port in self._ports[replica]:
            port.release()


_SCALED_TO: Final = 16
"""Workers that an elastic job may be scaled to here, if it does not begin with more: each takes two ports."""


def most_workers(spec: JobSpec) -> int:
    """How many workers a job may get on this machine."""
    workers = spec.replicas(Role.WORKER)
    return workers if spec.elastic is None else min(spec.elastic.max_replicas, max(workers, _SCALED_TO))


@contextmanager
def local_network(spec: JobSpec) -> Iterator[LocalNetwork]:
    """Ports for all replicas that a job may get, until the end of the block. Raises NoFreePort."""
    others = (replica for replica in replicas(spec) if replica.role is not Role.WORKER)
    wanted = (*others, *(Replica(Role.WORKER, index) for index in range(most_workers(spec) + spec.spares)))
    ports = reserve(2 * len(wanted))
    try:
        yield LocalNetwork(dict(zip(wanted, zip(ports[::2], ports[1::2], strict=True), strict=True)))
    finally:
        _give_back(ports)


_LOWEST: Final = 10_000
_OUTGOING: Final = (32_768, 60_999)
"""Linux' default range of ports for outgoing connections."""


class NoFreePort(Exception):
    """Every port that could be used is taken, or the process may open no more sockets."""


class ReservedPort:
    """A TCP port that nothing listens on.

    It is bound until :meth:`release`, so that nobody else gets it. The UDP port of the same number stays bound
    until :meth:`close`: another runner tries that too, so it keeps off in the seconds between the release and
    the moment when the process listens.
    """

    def __init__(self, number: int) -> None:
        """Bind the port. Raises OSError where it is taken."""
        self.number = number
        self._claim = _bound(number, socket.SOCK_DGRAM)
        try:
            self._held: socket.socket | None = _bound(number, socket.SOCK_STREAM)
        except OSError:
            self._claim.close()
            raise

    def release(self) -> None:
        """Let the process that is about to start have it."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def close(self) -> None:
        """Give it back."""
        self.release()
        self._claim.close()


def reserve(count: int) -> tuple[ReservedPort, ...]:
    """This many ports. Raises NoFreePort."""
    found: list[ReservedPort] = []
    for number in _candidates():
        if len(found) == count:
            break
        try:
            found.append(ReservedPort(number))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                _give_back(found)
                raise NoFreePort(f"it needs {count} ports, and more open files than allowed: see ulimit -n") from error
            continue  # taken
    if len(found) < count:
        _give_back(found)
        raise NoFreePort(f"this machine has {len(found)} free ports from {_LOWEST} on; the job needs {count}")
    return tuple(found)


def _candidates() -> Iterator[int]:
    """The ports outside the range of outgoing connections, from where any client could take one, in any order; then
    those inside: some machines have no others."""
    low, high = _outgoing_range()
    for ports in (
        [*range(_LOWEST, low), *range(max(high + 1, _LOWEST), 65_536)],
        [*range(max(low, _LOWEST), high + 1)],
    ):
        random.shuffle(ports)
        yield from ports


def _give_back(ports: Iterable[ReservedPort]) -> None:
    for port in ports:
        port.close()


def _bound(number: int, kind: socket.SocketKind) -> socket.socket:
    bound = socket.socket(socket.AF_INET, kind)
    try:
        bound.bind(("", number))  # all addresses, as TensorFlow's server does
    except OSError:
        bound.close()
        raise
    return bound


def _outgoing_range() -> tuple[int, int]:
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    except FileNotFoundError:
        return _OUTGOING
    return int(low), int(high)
