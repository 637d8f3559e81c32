"""The start gate, with sockets of this machine and a clock that the test turns."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtj_launch import rendezvous as start_gate
from dtj_launch.rendezvous import (
    NO_HANDSHAKE,
    Peer,
    PeersMissing,
    ReadinessListener,
    handshake,
    probe,
    prove_free,
    rendezvous,
    wait_for_peers,
    wait_for_server,
)
from dtj_launch.world import gate_patience
from log_lines import log_lines
from loopback import free_ports


class Town:
    """Peers that come when the test says, and time that passes when the gate pauses."""

    def __init__(self, **arrivals: float) -> None:
        self.arrivals = arrivals
        self.peers: dict[str, Peer] = {name: (name, 2222) for name in arrivals}
        self.now = 0.0
        self.printed: list[str] = []
        self.knocks: list[str] = []

    def probe(self, peer: Peer) -> str | None:
        self.knocks.append(peer[0])
        return None if self.now >= self.arrivals[peer[0]] else "connection refused"

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, timeout: float = 300.0) -> None:
        with log_lines("dtj_launch") as printed:
            wait_for_peers(self.peers, timeout=timeout, probe=self.probe, clock=self.clock, pause=self.pause)
        self.printed += printed


def test_it_opens_when_the_last_peer_is_there() -> None:
    town = Town(a=0, b=3, c=1)
    town.wait()
    assert 3 <= town.now < 3.5
    assert town.printed == []


def test_nobody_to_wait_for_is_no_wait() -> None:
    town = Town()
    town.wait()
    assert town.now == 0


def test_a_peer_that_was_there_once_is_not_asked_again() -> None:
    town = Town(a=0, b=2)
    town.wait()
    assert town.knocks.count("a") == 1


def test_it_says_every_ten_seconds_who_is_missing_and_why() -> None:
    town = Town(a=0, b=25)
    town.wait()
    assert town.printed == [
        "start gate: 1 of 2 peers missing after 10 s: b at b:2222 (connection refused)",
        "start gate: 1 of 2 peers missing after 20 s: b at b:2222 (connection refused)",
    ]


def test_it_gives_up_in_time_and_names_the_missing_but_not_all_of_many() -> None:
    town = Town(**{f"worker-{index}": 1e9 for index in range(20)})
    with pytest.raises(PeersMissing, match=r"20 of 20 peers missing after 4\d s: worker-0 at .* and 12 more$"):
        town.wait(timeout=42)
    assert 42 <= town.now < 43


@pytest.fixture
def doorbell_port() -> Iterator[int]:
    (port,) = free_ports(1)
    with closing(ReadinessListener(port)):
        yield port


def test_a_readiness_listener_answers_and_gives_its_port_back() -> None:
    (port,) = free_ports(1)
    listener = ReadinessListener(port)
    assert [probe(("127.0.0.1", port)) for _ in range(3)] == [None] * 3
    listener.close()
    assert probe(("127.0.0.1", port)) == "connection refused"
    with socket.create_server(("127.0.0.1", port)):
        assert probe(("127.0.0.1", port)) is None


def test_a_second_doorbell_on_one_port_is_an_error(doorbell_port: int) -> None:
    with pytest.raises(OSError, match="already in use"):
        ReadinessListener(doorbell_port)


class Gates:
    """Two tasks that meet, each with its doorbell."""

    def __init__(self, *, attempts: tuple[int, int] = (1, 1), keys: tuple[str, str] = ("", "")) -> None:
        self.attempts = attempts
        self.keys = keys
        self.doorbells = [
            ReadinessListener(0, name=f"worker {index}", attempt=attempts[index], key=keys[index]) for index in (0, 1)
        ]

    def address(self, index: int) -> Peer:
        return ("127.0.0.1", self.doorbells[index].port)

    def rendezvous(self, index: int, timeout: float = 30.0) -> None:
        other = 1 - index
        rendezvous(
            self.doorbells[index],
            {f"worker {other}": self.address(other)},
            name=f"worker {index}",
            attempt=self.attempts[index],
            key=self.keys[index],
            timeout=timeout,
        )

    def close(self) -> None:
        for listener in self.doorbells:
            listener.close()


def test_two_at_their_gates_meet() -> None:
    with closing(Gates()) as gates, ThreadPoolExecutor() as pool:
        list(pool.map(gates.rendezvous, (0, 1)))


def test_who_was_greeted_does_not_wait_for_one_that_has_gone_on() -> None:
    with closing(Gates()) as gates:
        gates.rendezvous(0)
        gates.doorbells[0].close()
        with socket.create_server(("127.0.0.1", gates.address(0)[1])):  # as its TensorFlow, which does not greet
            gates.rendezvous(1, timeout=3)


def test_tasks_of_two_attempts_do_not_meet() -> None:
    with closing(Gates(attempts=(2, 3))) as gates:
        with pytest.raises(PeersMissing, match=r"worker 1 at .* \(is at attempt 3, and this is 2\)"):
            gates.rendezvous(0, timeout=0.3)
        assert gates.doorbells[1].heard == {}


@contextmanager
def foreign_server_at(port: int) -> Iterator[Peer]:
    """Hangs up on whoever says something, as TensorFlow's server does."""
    server = socket.create_server(("127.0.0.1", port))

    def hang_up() -> None:
        with suppress(OSError):
            while True:
                caller, _ = server.accept()
                with closing(caller):
                    caller.recv(1)

    threading.Thread(target=hang_up, daemon=True).start()
    with closing(server):
        yield server.getsockname()[:2]


@pytest.fixture
def foreign_server() -> Iterator[Peer]:
    with foreign_server_at(0) as peer:
        yield peer


def test_who_follows_the_leader_waits_until_its_gate_is_left_and_its_server_listens() -> None:
    with closing(Gates()) as gates, ThreadPoolExecutor() as pool:
        leader, port = gates.doorbells[0], gates.address(0)[1]
        follows = pool.submit(wait_for_server, ("127.0.0.1", port), name="worker 1", attempt=1, timeout=60)
        while "worker 1" not in leader.heard:
            time.sleep(0.01)
        assert not follows.done()
        leader.close()
        assert not follows.done()
        with foreign_server_at(port):
            follows.result(60)


def test_a_leader_that_does_not_come_is_not_followed_forever(doorbell_port: int) -> None:
    wait_for_server(("127.0.0.1", doorbell_port), name="worker 1", attempt=0, timeout=0.1)


def test_a_port_that_something_else_answers_on_is_the_peer_of_before_but_not_forever(
    foreign_server: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert probe(foreign_server) is None
    assert handshake(foreign_server, name="worker 0", attempt=1) == "its previous process is still ending"
    with closing(ReadinessListener(0, name="worker 0", attempt=1)) as listener:
        monkeypatch.setattr(start_gate, "PATIENCE_SECONDS", 0.5)
        began = time.monotonic()
        rendezvous(listener, {"worker 1": foreign_server}, name="worker 0", attempt=1, timeout=60)
        assert time.monotonic() - began >= 0.5


def test_a_peer_of_an_elastic_job_with_the_members_of_before_is_waited_for_until_its_kubelet_syncs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(start_gate, "PATIENCE_SECONDS", 0.0)
    assert gate_patience({}) is None
    patience = gate_patience({"DTJ_WORLD": "3"})
    assert patience is not None
    assert patience > 90
    with closing(Gates(keys=("uid 3", "uid 2"))) as gates:
        began = time.monotonic()
        peers = {"worker 1": gates.address(1)}
        rendezvous(gates.doorbells[0], peers, name="worker 0", attempt=1, key="uid 3", timeout=1, patience=patience)
        assert time.monotonic() - began >= 0.5  # half of the time limit at most


NOISE = [
    b"",
    b"GET / HTTP/1.1\r\n\r\n",
    b"dtj-gate",
    b"dtj-gate x y\n",
    "dtj-gate ² x\n".encode(),
    "dtj-gate ١ worker 1\n".encode(),
    b"dtj-gate " + b"9" * 240 + b" x\n",
    b"dtj-gate 1 \xff\xfe\n",
    b"dtj-gate 1 worker 1 \xc3\xa9\n",
    b"d" * 300,
]
"""What no gate can read, or what must not count without the key."""


def say_to(peer: Peer, printed: bytes) -> bytes:
    """What the gate answers to a caller that says this and nothing more."""
    received = b""
    with socket.create_connection(peer, 60) as caller, suppress(OSError):
        caller.sendall(printed)
        caller.shutdown(socket.SHUT_WR)
        while more := caller.recv(1000):
            received += more
    return received


@pytest.mark.parametrize("noise", NOISE)
def test_a_gate_survives_whatever_is_sent_to_it(noise: bytes) -> None:
    with closing(Gates(keys=("uid", "uid"))) as gates:
        assert say_to(gates.address(0), noise) == b""
        gates.rendezvous(1)
        assert gates.doorbells[0].heard == {"worker 1": ""}


@pytest.fixture(scope="module")
def gate_under_fire() -> Iterator[ReadinessListener]:
    with closing(ReadinessListener(0, name="worker 0", attempt=1, key="uid")) as listener:
        yield listener


@settings(max_examples=150, deadline=None)
@given(
    pieces=st.lists(
        st.one_of(
            st.binary(max_size=300),
            st.sampled_from([b"dtj-gate ", b"dtj-gate 1 worker 7", b"1 ", b" ", b"\n", b"\r\n", b"\0", *NOISE]),
            st.text(max_size=20).map(str.encode),
        ),
        max_size=6,
    ),
    hangs_up=st.booleans(),
)
def test_a_gate_answers_its_peers_whatever_others_sent_before(
    gate_under_fire: ReadinessListener, pieces: list[bytes], hangs_up: bool
) -> None:
    peer = ("127.0.0.1", gate_under_fire.port)
    with socket.create_connection(peer, 60) as client, suppress(OSError):
        for piece in pieces:
            client.sendall(piece)
        if hangs_up:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    while (why := handshake(peer, name="worker 1", attempt=1, key="uid")) is not None:
        assert why == "no answer"  # of a machine that is busy with other tests
    assert gate_under_fire.heard == {"worker 1": ""}


def test_a_client_that_sends_byte_after_byte_keeps_no_peer_waiting_and_does_not_hold_the_port() -> None:
    with closing(Gates()) as gates, socket.create_connection(gates.address(0), 60) as client:
        client.sendall(b"dtj-gate 1 ")
        gates.rendezvous(1)
        gates.doorbells[0].close()
        with socket.create_server(gates.address(0)), suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_a_gate_hangs_up_on_who_says_nothing_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_gate, "_CALLER_SECONDS", 0.2)
    with (
        closing(Gates()) as gates,
        socket.create_connection(gates.address(0), 60) as silent,
        suppress(ConnectionResetError),
    ):
        assert silent.recv(1) == b""  # or a reset: a time-out of the test's would be an error


def test_a_flood_of_connections_takes_no_threads_and_keeps_no_peer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_gate, "MAX_CALLERS", 20)
    with closing(Gates()) as gates, ExitStack() as flood:
        before = threading.active_count()
        for _ in range(200):
            caller = flood.enter_context(socket.create_connection(gates.address(0), 60))
            with suppress(OSError):
                caller.sendall(b"dtj-gate 1 x")
        assert threading.active_count() == before
        assert len(gates.doorbells[0]._connections._until) <= 20
        gates.rendezvous(1)


def test_who_does_not_have_the_jobs_key_is_not_taken_for_a_peer() -> None:
    with closing(Gates(keys=("uid", "uid"))) as gates:
        for printed in (b"dtj-gate 1 worker 7\n", b"dtj-gate 1 worker 7 " + b"0" * 64 + b"\n"):
            assert say_to(gates.address(0), printed) == b""
        assert handshake(gates.address(0), name="worker 7", attempt=1, key="other") == NO_HANDSHAKE
        assert handshake(gates.address(0), name="worker 1", attempt=1, key="uid") is None
        assert gates.doorbells[0].heard == {"worker 1": ""}


def test_an_answer_that_another_client_received_is_of_no_use_as_a_greeting() -> None:
    with closing(Gates(keys=("uid", "uid"))) as gates:
        with socket.create_connection(gates.address(0), 60) as peer:
            peer.sendall(start_gate._greeting("call", "worker 1", 1, "uid").encode())
            answer = peer.recv(1000)
        assert answer.startswith(b"dtj-gate 1 worker 0 ")
        assert say_to(gates.address(1), answer) == b""
        assert gates.doorbells[1].heard == {}


def test_who_answers_in_a_peers_place_without_the_key_is_not_taken_for_it() -> None:
    with closing(Gates(keys=("uid", ""))) as gates:
        assert handshake(gates.address(1), name="worker 0", attempt=1, key="uid") == NO_HANDSHAKE


def test_a_gate_of_a_local_run_listens_on_loopback_alone() -> None:
    with closing(ReadinessListener(0, host="127.0.0.1")) as listener:
        assert listener._connections.address[0] == "127.0.0.1"
        assert probe(("127.0.0.1", listener.port)) is None


def test_a_name_that_nobody_has_does_not_resolve() -> None:
    assert probe(("worker-1.job.invalid", 2222)) == "name does not resolve"


def test_a_port_is_proved_free_without_a_sign_to_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="Address already in use"):
            prove_free(port)

    def listen(*_: object) -> None:
        pytest.fail("a peer that knocks in this very moment finds somebody who does not serve yet")

    monkeypatch.setattr(socket.socket, "listen", listen, raising=False)
    prove_free(port)


def test_each_learns_what_the_other_has_announced_whoever_calls() -> None:
    said = ("gpus=2,nccl=2.27.5", "gpus=0")
    listeners = [
        ReadinessListener(0, name=f"worker {index}", attempt=1, key="uid", announced=said[index]) for index in (0, 1)
    ]

    def meet(index: int) -> object:
        other = ("127.0.0.1", listeners[1 - index].port)
        return rendezvous(
            listeners[index], {f"worker {1 - index}": other}, name=f"worker {index}", attempt=1, key="uid", timeout=30
        )

    with closing(listeners[0]), closing(listeners[1]):
        assert meet(0) == {"worker 1": said[1]}  # by the answer
        assert meet(1) == {"worker 0": said[0]}  # by the call


def test_an_announcement_that_was_changed_on_its_way_counts_for_nothing() -> None:
    with closing(ReadinessListener(0, name="worker 0", attempt=1, key="uid")) as listener:
        peer = ("127.0.0.1", listener.port)
        call = start_gate._greeting("call", "worker 1", 1, "uid", "gpus=2")
        assert say_to(peer, call.replace("gpus=2", "gpus=8").encode()) == b""
        assert listener.heard == {}
        assert say_to(peer, call.encode()).startswith(b"dtj-gate 1 worker 0 ")
        assert listener.heard == {"worker 1": "gpus=2"}
