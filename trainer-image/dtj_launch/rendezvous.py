"""The start gate: nothing of TensorFlow begins before every peer can be reached.

Without it a task that looks up its peer two seconds too early dies of "Name or service not known", and one
whose peer never comes waits inside TensorFlow for 15 minutes and more without a word.

A peer counts as there when its name resolves **and** its port accepts a connection. Before TensorFlow's server
is up nothing would listen on that port, so each gate listens there itself (`ReadinessListener`) until its own wait is
over, and gives the port back just before TensorFlow binds it. A task that finds the port closed in that short
gap looks again and meets TensorFlow's server. A peer that was there once is not asked again: from then on its
loss is for the coordination service to notice.

Only a server that is started by other means, such as a parameter server, needs no listener.

An open port is not enough if all tasks must start again together (`rendezvous`): the process that the peer ran before
the loss may hold the port for some seconds, and TensorFlow's coordination service refuses a task that connects twice.
So the tasks exchange a handshake, and each notes the peers whose handshake it received. A pair has met when either side
reached the other; both note it, so no task waits for a peer that has gone on. With it each announces what it has
(`devices`), so that all come to the same decisions.

Standard library only: a launcher that has no TensorFlow can use it as it is.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Tuple  # noqa: UP035  # evaluated, by any Python that a foreign image may have

from .connections import HANG_UP, READ, Connections

log = logging.getLogger(__name__)

Peer = Tuple[str, int]  # noqa: UP006
"""Host and port."""

PATIENCE_SECONDS = 15.0
"""For how long a port without a handshake counts as the process that the peer ran before.

It is longer than TensorFlow needs to notice a loss. After it the peer counts as present: it has no gate that answers a
handshake, or it went on just as its handshake was lost.
"""

_CONNECT_SECONDS = 2.0
_CALLER_SECONDS = 5.0
"""Time that a caller has in total. A peer needs one round trip; another client must not hold a connection for long."""
MAX_CALLERS = 256
"""Connections to one gate at the same time; peers come and go within moments, also where there are many more."""
_MAX_NAMES = 20_000
"""Names that are noted where nobody has to prove anything: more than a job may have replicas."""
_PAUSES_SECONDS = (0.02, 0.04, 0.08, 0.2)
"""Between the first looks, and then always the last: tasks that start again together arrive within moments."""
_REPORT_SECONDS = 10.0
_NAMED_AT_MOST = 8
_GREETING = "dtj-gate"
_CALL, _ANSWER = "call", "answer"
"""What a proof is bound to besides name and attempt: an answer cannot be sent back as a call."""
_LONGEST_GREETING = 512
_ANNOUNCED = "gpus="
"""How an announcement begins, which is one word."""
NO_HANDSHAKE = "its previous process is still ending"
"""What is reported of a peer whose port is open, and which answers no handshake."""


class PeersMissing(Exception):
    """Some peers were not there in time; the message names them, and what was wrong with each."""


class ReadinessListener:
    """Accepts connections on this task's port, so that peers see that the task is there, and answers handshakes.

    With a key, only callers that have it are answered and noted: TensorFlow's port may be open to pods of other jobs.

    Raises:
        OSError: the port is in use.
    """

    def __init__(
        self, port: int, *, name: str = "", attempt: int = 0, key: str = "", host: str = "", announced: str = ""
    ) -> None:
        """Args:
        name: of this task, as its peers know it.
        announced: what it has, as `devices.Devices` writes it.
        attempt: of the job; a peer of another attempt gets an answer, and is not noted.
        key: what only tasks of this job know; empty: every handshake counts.
        host: the address to listen on; empty: all of them.
        """
        self.heard: dict[str, str] = {}
        """The peers that have exchanged a handshake with this task, with what they announced."""
        self.announced = announced
        self._key = key
        self._attempt = attempt
        self._answer = _greeting(_ANSWER, name, attempt, key, announced).encode()
        self._connections = Connections(
            host, port, self._talk, name="start gate", most=MAX_CALLERS, seconds=_CALLER_SECONDS
        )
        self.port: int = self._connections.address[1]

    def hear(self, name: str, announced: str) -> None:
        """Notes that this task and a peer have met."""
        if announced or name not in self.heard:
            self.heard[name] = announced

    def close(self) -> None:
        """Gives the port back; once this returns another server can bind it."""
        self._connections.close()

    def _talk(self, caller: socket.socket) -> Iterator[int]:
        # A reset leaves nothing on the port that TensorFlow is about to bind.
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        received = b""
        while not received.endswith(b"\n"):
            yield READ
            more = caller.recv(_LONGEST_GREETING)
            received += more
            if not more or not _may_be_greeting(received):
                return
        greeted = _parsed(received, _CALL, self._key)
        if greeted is None:
            return
        name, attempt, announced = greeted
        if attempt == self._attempt and len(self.heard) < _MAX_NAMES:
            self.hear(name, announced)
        caller.send(self._answer)
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
        yield HANG_UP


def prove_free(port: int) -> None:
    """Proves that a server can listen on this port, without a sign to the peers: it may be long until it does.

    Raises:
        OSError: the port is in use.
    """
    dual = socket.has_dualstack_ipv6()
    with socket.socket(socket.AF_INET6 if dual else socket.AF_INET) as endpoint:
        endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if dual:
            endpoint.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        endpoint.bind(("", port))


def probe(peer: Peer, timeout: float = _CONNECT_SECONDS) -> str | None:
    """Tries to reach a peer. Returns None when it is there, else why not, in a few words."""
    return _reach(peer, timeout, lambda _: None)


def handshake(
    peer: Peer,
    *,
    name: str,
    attempt: int,
    key: str = "",
    announced: str = "",
    learn: Callable[[str], object] = lambda _: None,
) -> str | None:
    """Tries to reach a peer that waits at its gate, too. Returns None when it answered, else why it did not.

    Args:
        announced: what this task has.
        learn: gets what the peer has announced.
    """

    def speak(caller: socket.socket) -> str | None:
        caller.sendall(_greeting(_CALL, name, attempt, key, announced).encode())
        answered = _parsed(_received(caller, _CONNECT_SECONDS), _ANSWER, key)
        if answered is None:
            return NO_HANDSHAKE
        if answered[1] != attempt:
            return f"is at attempt {answered[1]}, and this is {attempt}"
        learn(answered[2])
        return None

    return _reach(peer, _CONNECT_SECONDS, speak)


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
                return NO_HANDSHAKE if isinstance(error, ConnectionError) else _why(error)
    return reason


def _why(error: OSError) -> str:
    # Before Python 3.10 the one was not yet the other.
    return "no answer" if isinstance(error, (TimeoutError, socket.timeout)) else (error.strerror or str(error)).lower()


def _greeting(kind: str, name: str, attempt: int, key: str, announced: str = "") -> str:
    """A message from one task to another. With a key, all of it is signed with that, and `kind`."""
    words = f"{attempt} {name} {announced}".rstrip()
    proof = f" {_proof(kind, words, key)}" if key else ""
    return f"{_GREETING} {words}{proof}\n"


def _proof(kind: str, words: str, key: str) -> str:
    return hmac.new(key.encode(), f"{kind} {words}".encode(), hashlib.sha256).hexdigest()


def _may_be_greeting(received: bytes) -> bool:
    """Whether this is how a greeting begins, and not too long for one."""
    return received.startswith(_GREETING.encode()[: len(received)]) and len(received) <= _LONGEST_GREETING


def _parsed(received: bytes, kind: str, key: str) -> tuple[str, int, str] | None:
    """Name, attempt and announcement of a whole greeting; None if it is none, or does not prove that it has the key."""
    if not _may_be_greeting(received) or not received.endswith(b"\n"):
        return None
    word, _, words = received.decode(errors="replace").strip().partition(" ")
    if word != _GREETING:
        return None
    if key:
        words, _, proof = words.rpartition(" ")
        if not hmac.compare_digest(proof.encode(), _proof(kind, words, key).encode()):
            return None
    number, _, name = words.partition(" ")
    if not (number.isascii() and number.isdecimal()):
        return None
    others, _, last = name.rpartition(" ")
    return (others, int(number), last) if last.startswith(_ANNOUNCED) else (name, int(number), "")


def _received(caller: socket.socket, seconds: float) -> bytes:
    """What the other says up to the end of its line, within this many seconds in total. Raises OSError."""
    received, until = b"", time.monotonic() + seconds
    while not received.endswith(b"\n") and _may_be_greeting(received):
        caller.settimeout(max(0.001, until - time.monotonic()))
        more = caller.recv(_LONGEST_GREETING)
        if not more:
            break
        received += more
    return received


def rendezvous(
    listener: ReadinessListener,
    peers: Mapping[str, Peer],
    *,
    name: str,
    attempt: int,
    timeout: float,
    key: str = "",
    patience: float | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> Mapping[str, str]:
    """Returns when this task and each of its peers have met, all of them at their gates; the listener stays open.

    Returns:
        Name of a peer -> what it has announced; without those that went on before they could be heard.

    Args:
        name: of this task; its listener has the same.
        key: what only tasks of this job know; its listener has the same.
        patience: in place of `PATIENCE_SECONDS`.
        pause: waits for this many seconds between two looks; what it raises ends the wait.

    Raises:
        PeersMissing: the time is over.
    """
    names = {peer: other for other, peer in peers.items()}
    engaged_since: dict[Peer, float] = {}
    patience = min(PATIENCE_SECONDS if patience is None else patience, timeout / 2)

    def met(peer: Peer) -> str | None:
        other = names[peer]
        if other in listener.heard:
            return None
        learn = functools.partial(listener.hear, other)
        why = handshake(peer, name=name, attempt=attempt, key=key, announced=listener.announced, learn=learn)
        if why != NO_HANDSHAKE:
            engaged_since.pop(peer, None)
            return why
        since = engaged_since.setdefault(peer, time.monotonic())
        return None if time.monotonic() - since >= patience else why

    wait_for_peers(peers, timeout=timeout, probe=met, pause=pause)
    return {other: listener.heard[other] for other in peers if other in listener.heard}


def wait_for_server(peer: Peer, *, name: str, attempt: int, timeout: float, key: str = "") -> None:
    """Returns when the peer has left its gate and its own server listens, or when the time is over.

    For whom gRPC is about to connect: an attempt that is refused, it repeats a whole second later.
    """
    until = time.monotonic() + timeout
    pauses = iter(_PAUSES_SECONDS)
    while handshake(peer, name=name, attempt=attempt, key=key) != NO_HANDSHAKE and time.monotonic() < until:
        time.sleep(next(pauses, _PAUSES_SECONDS[-1]))


def wait_for_peers(
    peers: Mapping[str, Peer],
    *,
    timeout: float,
    probe: Callable[[Peer], str | None] = probe,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> None:
    """Returns when every peer has been there once; says every ten seconds which are missing.

    Args:
        peers: name for a person -> host and port.
        timeout: seconds.

    Raises:
        PeersMissing: the time is over.
    """
    started = clock()
    next_report = started + _REPORT_SECONDS
    missing = dict.fromkeys(peers, "not tried")
    pauses = iter(_PAUSES_SECONDS)
    with ThreadPoolExecutor(max_workers=min(32, len(peers) + 1), thread_name_prefix="gate") as pool:
        while True:
            reasons = pool.map(probe, [peers[name] for name in missing])
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
                log.info(f"start gate: {text}")
                next_report += _REPORT_SECONDS
            pause(next(pauses, _PAUSES_SECONDS[-1]))


def _listed(peers: Mapping[str, Peer], missing: Mapping[str, str]) -> str:
    named = [f"{name} at {peers[name][0]}:{peers[name][1]} ({why})" for name, why in missing.items()]
    rest = len(named) - _NAMED_AT_MOST
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {rest} more" if rest > 0 else "")
