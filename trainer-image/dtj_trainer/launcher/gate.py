"""The start gate: nothing of TensorFlow begins before every peer can be reached.

Without it a task that looks up its peer two seconds too early dies of "Name or service not known", and one
whose peer never comes waits inside TensorFlow for 15 minutes and more without a word.

A peer counts as there when its name resolves **and** its port accepts a connection. Before TensorFlow's server
is up nothing would listen on that port, so each gate listens there itself (`Doorbell`) until its own wait is
over, and gives the port back just before TensorFlow binds it. A task that finds the port closed in that short
gap looks again and meets TensorFlow's server. A peer that was there once is not asked again: from then on its
loss is for the coordination service to notice.

Only a server that is started by other means, such as a parameter server, needs no doorbell.

An open port is not enough where all tasks must begin anew together (`meet`): the peer's process of before the loss
may still hold it for some seconds, and TensorFlow's coordination service turns away who comes to it twice. So there
the tasks greet each other, and each notes who greeted it. A pair has met when either got through to the other; since
both note it, none is left waiting for a peer that has gone on.

Standard library only, and nothing of this project: a launcher that has no TensorFlow can use it as it is.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

Peer = Tuple[str, int]  # noqa: UP006
"""Host and port."""

PATIENCE_SECONDS = 15.0
"""For how long a port that something else answers on is taken for the peer's process of before.

Longer than TensorFlow needs to notice a loss. Then it counts as there: its task has no gate that greets, or went on
in the very moment when its greeting got lost.
"""

_CONNECT_SECONDS = 2.0
_DOORBELL_SECONDS = 0.05
_PAUSES_SECONDS = (0.02, 0.04, 0.08, 0.2)
"""Between the first looks, and then always the last: tasks that begin anew together come within moments."""
_NAMED_AT_MOST = 8
_GREETING = "dtj-gate"
_LONGEST_GREETING = 256
OTHERWISE_ENGAGED = "its process of before still ends"
"""What is said of a peer whose port is open, and which does not greet."""


class PeersMissing(Exception):
    """Some peers were not there in time; the message names them, and what was wrong with each."""


class Doorbell:
    """Accepts connections on this task's port, so that peers see that the task is there, and answers greetings.

    Raises:
        OSError: the port is in use.
    """

    def __init__(self, port: int, *, name: str = "", attempt: int = 0) -> None:
        """Args:
        name: of this task, as its peers know it.
        attempt: of the job; who greets from another one is told so, and not noted.
        """
        self.callers: set[str] = set()
        """The names of the peers that have greeted this task."""
        self._attempt = attempt
        self._answer_text = _greeting(name, attempt).encode()
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        self._listener = socket.create_server(("", port), family=family, dualstack_ipv6=dual, backlog=128)
        self.port: int = self._listener.getsockname()[1]
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
                    self._note(caller)
            except OSError:
                # No caller for a while, or one that hung up: nothing to tell it, and nobody to tell.
                continue

    def _note(self, caller: socket.socket) -> None:
        caller.settimeout(_CONNECT_SECONDS)
        greeted = _read_greeting(caller)
        if greeted is not None:
            name, attempt = greeted
            if attempt == self._attempt:
                self.callers.add(name)
            caller.sendall(self._answer_text)
            # The side that closes first keeps the port in TIME_WAIT: let that be the caller.
            caller.recv(1)


def prove_free(port: int) -> None:
    """Proves that a server can listen on this port, without a sign to the peers: it may be long until it does.

    Raises:
        OSError: the port is in use.
    """
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        probe.bind(("", port))


def knock(peer: Peer, timeout: float = _CONNECT_SECONDS) -> str | None:
    """Tries to reach a peer. Returns None when it is there, else why not, in a few words."""
    return _reach(peer, timeout, lambda _: None)


def greet(peer: Peer, *, name: str, attempt: int, timeout: float = _CONNECT_SECONDS) -> str | None:
    """Tries to reach a peer that waits at its gate, too. Returns None when it answered, else why it did not."""

    def speak(caller: socket.socket) -> str | None:
        caller.sendall(_greeting(name, attempt).encode())
        answered = _read_greeting(caller)
        if answered is None:
            return OTHERWISE_ENGAGED
        return None if answered[1] == attempt else f"is at attempt {answered[1]}, and this is {attempt}"

    return _reach(peer, timeout, speak)


def _reach(peer: Peer, timeout: float, speak: Callable[[socket.socket], str | None]) -> str | None:
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
            except OSError as error:
                reason = _why(error)
                continue
            try:
                return speak(caller)
            except OSError as error:
                # TensorFlow's server hangs up on what it does not understand.
                return OTHERWISE_ENGAGED if isinstance(error, ConnectionError) else _why(error)
    return reason


def _why(error: OSError) -> str:
    # Before Python 3.10 the one was not yet the other.
    return "no answer" if isinstance(error, (TimeoutError, socket.timeout)) else (error.strerror or str(error)).lower()


def _greeting(name: str, attempt: int) -> str:
    return f"{_GREETING} {attempt} {name}\n"


def _read_greeting(caller: socket.socket) -> tuple[str, int] | None:
    """Name and attempt; None where the other said something else, or hung up."""
    said = b""
    while not said.endswith(b"\n") and len(said) < _LONGEST_GREETING:
        more = caller.recv(_LONGEST_GREETING - len(said))
        said += more
        if not more or not said.startswith(_GREETING.encode()[: len(said)]):
            return None
    word, _, rest = said.decode(errors="replace").strip().partition(" ")
    attempt, _, name = rest.partition(" ")
    return (name, int(attempt)) if word == _GREETING and attempt.isdigit() else None


def meet(
    doorbell: Doorbell,
    peers: Mapping[str, Peer],
    *,
    name: str,
    attempt: int,
    timeout: float,
    say: Callable[[str], object],
) -> None:
    """Returns when this task and each of its peers have met, all of them at their gates; the doorbell stays.

    Args:
        name: of this task; its doorbell has the same.

    Raises:
        PeersMissing: the time is over.
    """
    names = {peer: other for other, peer in peers.items()}
    engaged_since: dict[Peer, float] = {}
    patience = min(PATIENCE_SECONDS, timeout / 2)

    def met(peer: Peer) -> str | None:
        if names[peer] in doorbell.callers:
            return None
        why = greet(peer, name=name, attempt=attempt)
        if why != OTHERWISE_ENGAGED:
            engaged_since.pop(peer, None)
            return why
        since = engaged_since.setdefault(peer, time.monotonic())
        return None if time.monotonic() - since >= patience else why

    wait_for_peers(peers, timeout=timeout, say=say, knock=met)


def wait_for_server(peer: Peer, *, name: str, attempt: int, timeout: float) -> None:
    """Returns when the peer has left its gate and its own server listens, or when the time is over.

    For whom gRPC is about to connect: an attempt that is refused, it repeats a whole second later.
    """
    until = time.monotonic() + timeout
    pauses = iter(_PAUSES_SECONDS)
    while greet(peer, name=name, attempt=attempt) != OTHERWISE_ENGAGED and time.monotonic() < until:
        time.sleep(next(pauses, _PAUSES_SECONDS[-1]))


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
    pauses = iter(_PAUSES_SECONDS)
    with ThreadPoolExecutor(max_workers=min(32, len(peers) + 1), thread_name_prefix="gate") as pool:
        while True:
            reasons = pool.map(knock, [peers[name] for name in missing])
            missing = {name: why for name, why in zip(missing, reasons) if why is not None}
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
            pause(next(pauses, _PAUSES_SECONDS[-1]))


def _listed(peers: Mapping[str, Peer], missing: Mapping[str, str]) -> str:
    named = [f"{name} at {peers[name][0]}:{peers[name][1]} ({why})" for name, why in missing.items()]
    rest = len(named) - _NAMED_AT_MOST
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")
