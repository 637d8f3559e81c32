"""Free ports of this machine, kept free until the process that is to listen there starts."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_LOWEST: Final = 10_000
_OUTGOING: Final = (32_768, 60_999)
"""Linux' default range of ports for outgoing connections."""


class NoFreePort(Exception):
    """Every port that could be used is taken."""


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
    """This many ports, outside the range of outgoing connections: from there any client could take one.

    Raises NoFreePort.
    """
    low, high = _outgoing_range()
    candidates = [*range(_LOWEST, low), *range(high + 1, 65_536)]
    random.shuffle(candidates)
    found: list[ReservedPort] = []
    for number in candidates:
        if len(found) == count:
            break
        try:
            found.append(ReservedPort(number))
        except OSError:
            continue  # taken
    if len(found) < count:
        for port in found:
            port.close()
        raise NoFreePort(f"this machine has {len(found)} free ports outside {low}-{high}; the job needs {count}")
    return tuple(found)


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
