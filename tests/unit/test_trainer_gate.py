"""The start gate, with sockets of this machine and a clock that the test turns."""

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import pytest

from dtj_trainer.launcher import gate
from dtj_trainer.launcher.gate import (
    Doorbell,
    Peer,
    PeersMissing,
    greet,
    knock,
    meet,
    prove_free,
    wait_for_peers,
    wait_for_server,
)

pytestmark = pytest.mark.unit


class Town:
    """Peers that come when the test says, and time that passes when the gate pauses."""

    def __init__(self, **arrivals: float) -> None:
        self.arrivals = arrivals
        self.peers: dict[str, Peer] = {name: (name, 2222) for name in arrivals}
        self.now = 0.0
        self.said: list[str] = []
        self.knocks: list[str] = []

    def knock(self, peer: Peer) -> str | None:
        self.knocks.append(peer[0])
        return None if self.now >= self.arrivals[peer[0]] else "connection refused"

    def clock(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def wait(self, timeout: float = 300.0) -> None:
        wait_for_peers(
            self.peers, timeout=timeout, say=self.said.append, knock=self.knock, clock=self.clock, pause=self.pause
        )


def test_it_opens_when_the_last_peer_is_there() -> None:
    town = Town(a=0, b=3, c=1)
    town.wait()
    assert 3 <= town.now < 3.5
    assert town.said == []


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
    assert town.said == [
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
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with closing(Doorbell(port)):
        yield port


def test_a_doorbell_is_heard_and_gives_its_port_back() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    doorbell = Doorbell(port)
    assert [knock(("127.0.0.1", port)) for _ in range(3)] == [None] * 3
    doorbell.close()
    assert knock(("127.0.0.1", port)) == "connection refused"
    with socket.create_server(("127.0.0.1", port)):
        assert knock(("127.0.0.1", port)) is None


def test_a_second_doorbell_on_one_port_is_an_error(doorbell_port: int) -> None:
    with pytest.raises(OSError, match="already in use"):
        Doorbell(doorbell_port)


class Gates:
    """Two tasks that meet, each with its doorbell."""

    def __init__(self, *, attempts: tuple[int, int] = (1, 1)) -> None:
        self.attempts = attempts
        self.doorbells = [Doorbell(0, name=f"worker {index}", attempt=attempts[index]) for index in (0, 1)]

    def address(self, index: int) -> Peer:
        return ("127.0.0.1", self.doorbells[index].port)

    def meet(self, index: int, timeout: float = 30.0) -> None:
        other = 1 - index
        meet(
            self.doorbells[index],
            {f"worker {other}": self.address(other)},
            name=f"worker {index}",
            attempt=self.attempts[index],
            timeout=timeout,
            say=print,
        )

    def close(self) -> None:
        for doorbell in self.doorbells:
            doorbell.close()


def test_two_at_their_gates_meet() -> None:
    with closing(Gates()) as gates, ThreadPoolExecutor() as pool:
        list(pool.map(gates.meet, (0, 1)))


def test_who_was_greeted_does_not_wait_for_one_that_has_gone_on() -> None:
    with closing(Gates()) as gates:
        gates.meet(0)
        gates.doorbells[0].close()
        with socket.create_server(("127.0.0.1", gates.address(0)[1])):  # as its TensorFlow, which does not greet
            gates.meet(1, timeout=3)


def test_tasks_of_two_attempts_do_not_meet() -> None:
    with closing(Gates(attempts=(2, 3))) as gates:
        with pytest.raises(PeersMissing, match=r"worker 1 at .* \(is at attempt 3, and this is 2\)"):
            gates.meet(0, timeout=0.3)
        assert gates.doorbells[1].callers == set()


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
        while "worker 1" not in leader.callers:
            time.sleep(0.01)
        assert not follows.done()
        leader.close()
        assert not follows.done()
        with foreign_server_at(port):
            follows.result(60)


def test_a_leader_that_does_not_come_is_not_followed_for_ever(doorbell_port: int) -> None:
    wait_for_server(("127.0.0.1", doorbell_port), name="worker 1", attempt=0, timeout=0.1)


def test_a_port_that_something_else_answers_on_is_the_peer_of_before_but_not_for_ever(
    foreign_server: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert knock(foreign_server) is None
    assert greet(foreign_server, name="worker 0", attempt=1) == "its process of before still ends"
    with closing(Doorbell(0, name="worker 0", attempt=1)) as doorbell:
        monkeypatch.setattr(gate, "PATIENCE_SECONDS", 0.5)
        began = time.monotonic()
        meet(doorbell, {"worker 1": foreign_server}, name="worker 0", attempt=1, timeout=60, say=print)
        assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize("noise", [b"", b"GET / HTTP/1.1\r\n\r\n", b"dtj-gate", b"dtj-gate x y\n", b"d" * 300])
def test_a_doorbell_survives_whatever_is_said_to_it(noise: bytes) -> None:
    with closing(Gates()) as gates:
        with socket.create_connection(gates.address(0)) as caller, suppress(OSError):
            caller.sendall(noise)
            caller.shutdown(socket.SHUT_WR)
            assert caller.recv(10) == b""
        gates.meet(1)
        assert gates.doorbells[0].callers == {"worker 1"}


def test_a_name_that_nobody_has_does_not_resolve() -> None:
    assert knock(("worker-1.job.invalid", 2222)) == "name does not resolve"


def test_a_port_is_proved_free_without_a_sign_to_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="Address already in use"):
            prove_free(port)

    def listen(*_: object) -> None:
        pytest.fail("a peer that knocks in this very moment finds somebody who does not serve yet")

    monkeypatch.setattr(socket.socket, "listen", listen, raising=False)
    prove_free(port)
