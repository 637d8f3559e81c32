"""The start gate: nothing of TensorFlow begins before every peer can be reached.

Without it a task that looks up its peer two seconds too early dies of "Name or service not known", and one
whose peer never comes waits inside TensorFlow for 15 minutes and more without a word.

A peer counts as there when its name resolves **and** its port accepts a connection. Before TensorFlow's server
is up nothing would listen on that port, so each gate listens there itself (`Doorbell`) until its own wait is
over, and gives the port back just before TensorFlow binds it. A task that finds the port closed in that short
gap looks again and meets TensorFlow's server. A peer that was there once is not asked again: from then on its
loss is for the coordination service to notice.

Only a server that is started by other means, such as a parameter server, needs no doorbell.

Standard library only, and nothing of this package: a launcher that has no TensorFlow can use it as it is.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

Peer = tuple[str, int]
"""Host and port."""

_CONNECT_SECONDS = 2.0
_DOORBELL_SECONDS = 0.05
_PAUSE_SECONDS = 0.2
_NAMED_AT_MOST = 8


class PeersMissing(Exception):
    """Some peers were not there in time; the message names them, and what was wrong with each."""


class Doorbell:
    """Accepts connections on this task's port and says nothing, so that peers see that the task is there.

    Raises:
        OSError: the port is in use.
    """

    def __init__(self, port: int) -> None:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=128)
        self._listener.settimeout(_DOORBELL_SECONDS)
        self._closing = False
        self._thread = threading.Thread(target=self._answer, name="doorbell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Gives the port back; once this returns another server can bind it."""
        self._closing = True
        self._thread.join()
        self._listener.close()

    def _answer(self) -> None:
        while not self._closing:
            try:
                caller, _ = self._listener.accept()
                with closing(caller):
                    # The side that closes first keeps the port in TIME_WAIT: let that be the caller.
                    caller.settimeout(_CONNECT_SECONDS)
                    caller.recv(1)
            except OSError:
                # No caller for a while, or one that hung up: nothing to tell it, and nobody to tell.
                continue


def knock(peer: Peer, timeout: float = _CONNECT_SECONDS) -> str | None:
    """Tries to reach a peer. Returns None when it is there, else why not, in a few words."""
    host, port = peer
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "name does not resolve"
    reason = "no address"
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as caller:
            caller.settimeout(timeout)
            try:
                caller.connect(address)
                return None
            except OSError as error:
                reason = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
    return reason


def wait_for_peers(
    peers: Mapping[str, Peer],
    *,
    timeout: float,
    say: Callable[[str], object],
    report_every: float = 10.0,
    knock: Callable[[Peer], str | None] = knock,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Returns when every peer has been there once; says which are missing every `report_every` seconds.

    Args:
        peers: name for a person -> host and port.
        timeout: seconds.

    Raises:
        PeersMissing: the time is over.
    """
    started = clock()
    next_report = started + report_every
    missing = dict.fromkeys(peers, "not tried")
    with ThreadPoolExecutor(max_workers=min(32, len(peers) + 1), thread_name_prefix="gate") as pool:
        while True:
            reasons = pool.map(knock, [peers[name] for name in missing])
            missing = {name: why for name, why in zip(missing, reasons, strict=True) if why is not None}
            if not missing:
                return
            now = clock()
            text = f"{len(missing)} of {len(peers)} peers missing after {now - started:.0f} s: " + _listed(
                peers, missing
            )
            if now - started >= timeout:
                raise PeersMissing(text)
            if now >= next_report:
                say(f"start gate: {text}")
                next_report += report_every
            pause(_PAUSE_SECONDS)


def _listed(peers: Mapping[str, Peer], missing: Mapping[str, str]) -> str:
    named = [f"{name} at {peers[name][0]}:{peers[name][1]} ({why})" for name, why in missing.items()]
    rest = len(named) - _NAMED_AT_MOST
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")
