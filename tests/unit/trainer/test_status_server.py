"""The status server of a training, against any client that reaches its port: any bytes, slow readers, floods."""

import io
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dtj_launch import status_server
from dtj_launch.connections import Connections
from dtj_launch.progress import ProgressStore
from dtj_launch.status_server import serve_status
from log_lines import log_lines

STATUS = b"GET /status HTTP/1.0\r\nHost: x\r\n\r\n"


@contextmanager
def serving(host: str = "127.0.0.1") -> Iterator[Connections]:
    board = ProgressStore()
    board.update(step=7, total_steps=10)
    server = serve_status(board, 0, host=host)
    assert server is not None
    yield server
    server.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Connections]:
    with serving() as server:
        yield server


def connect(server: Connections) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.address[1]), 60)


def ask(server: Connections, request: bytes) -> bytes:
    """All that is answered to a caller that says this and hangs up its half of the line."""
    answer = b""
    with connect(server) as caller, suppress(ConnectionError):
        caller.sendall(request)
        caller.shutdown(socket.SHUT_WR)
        while more := caller.recv(65536):
            answer += more
    return answer


def is_well(server: Connections) -> bool:
    return bool(json.loads(ask(server, STATUS).partition(b"\r\n\r\n")[2])["percent"] == 70)


@pytest.mark.parametrize(
    ("path", "kind", "words"),
    [
        ("/status", "application/json", b'"percent": 70'),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8", b"\ndtj_training_step 7\n"),
        ("/healthz", "text/plain; charset=utf-8", b"ok\n"),
    ],
)
def test_what_it_serves_is_whole_and_says_what_it_is(server: Connections, path: str, kind: str, words: bytes) -> None:
    head, _, body = ask(server, f"GET {path} HTTP/1.0\r\n\r\n".encode()).partition(b"\r\n\r\n")
    first_line, *fields = head.decode().splitlines()
    assert first_line == "HTTP/1.1 200 OK"
    assert {f"Content-Type: {kind}", f"Content-Length: {len(body)}"} <= {*fields}
    assert words in body


@pytest.mark.parametrize(
    ("request_line", "first_line", "body"),
    [
        (b"GET /nothing HTTP/1.1", b"404 Not Found", b"not found; try /status, /metrics or /healthz\n"),
        (b"GET /stacks HTTP/1.1", b"404 Not Found", b"not found; try /status, /metrics or /healthz\n"),
        (b"POST /status HTTP/1.1", b"404 Not Found", b"not found, or the stacks were printed a moment ago\n"),
        (b"PUT /status HTTP/1.1", b"405 Method Not Allowed", b"only GET, and POST /stacks\n"),
        (b"DELETE /status HTTP/1.1", b"405 Method Not Allowed", b"only GET, and POST /stacks\n"),
        (b"get /status HTTP/1.1", b"405 Method Not Allowed", b"only GET, and POST /stacks\n"),
        (b"GET /status", b"400 Bad Request", b"not a request of HTTP/1 in 8192 bytes\n"),
        (b"PRI * HTTP/2.0", b"400 Bad Request", b"not a request of HTTP/1 in 8192 bytes\n"),
        (b"GET /" + b"x" * 8200 + b" HTTP/1.1", b"400 Bad Request", b"not a request of HTTP/1 in 8192 bytes\n"),
    ],
)
def test_what_it_does_not_serve_is_refused_in_one_line(
    server: Connections, request_line: bytes, first_line: bytes, body: bytes
) -> None:
    head, _, text = ask(server, request_line + b"\r\n\r\n").partition(b"\r\n\r\n")
    assert head.splitlines()[0] == b"HTTP/1.1 " + first_line
    assert text == body


WORDS = [b"GET", b"POST", b"/status", b"/metrics", b" ", b"HTTP/1.1", b"\r\n", b"\n", b"\r\n\r\n", b"\0", b"\xff"]


@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(st.one_of(st.binary(max_size=200), st.sampled_from(WORDS)), max_size=12))
def test_it_survives_any_bytes_and_answers_the_next_reader(server: Connections, pieces: list[bytes]) -> None:
    answer = ask(server, b"".join(pieces))
    assert answer.startswith((b"HTTP/1.1 2", b"HTTP/1.1 4")) or answer == b""
    assert is_well(server)


def test_a_flood_of_connections_takes_no_threads_and_keeps_no_reader_out() -> None:
    with serving() as server, ExitStack() as flood:
        before = threading.active_count()
        for _ in range(300):
            with suppress(ConnectionError):
                flood.enter_context(connect(server)).sendall(b"G")
        assert threading.active_count() <= before
        assert len(server._until) <= status_server._READERS
        assert is_well(server)


def test_a_reader_that_sends_byte_after_byte_is_ended_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "_READER_SECONDS", 0.5)
    with serving() as server, connect(server) as slow, suppress(ConnectionError):
        slow.settimeout(0.05)
        while True:  # without a limit in total, this goes on until the test's own limit
            slow.sendall(b"x")
            with suppress(TimeoutError):
                answer = slow.recv(1000)
                assert answer == b"" or answer.startswith(b"HTTP/1.1 400 ")
                break


def test_a_reader_that_does_not_read_is_ended_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_server, "_READER_SECONDS", 0.5)
    board = ProgressStore()
    board.update(metrics={"m" * 20_000_000: 1.0})
    server = serve_status(board, 0, host="127.0.0.1")
    assert server is not None
    with connect(server) as deaf:
        deaf.sendall(STATUS)
        while not server._until:
            time.sleep(0.01)
        while server._until:
            time.sleep(0.01)
    server.close()


def test_the_stacks_are_printed_once_in_ten_seconds_whatever_a_script_has_put_in_place_of_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with serving() as server:
        first, *others = (ask(server, b"POST /stacks HTTP/1.0\r\n\r\n") for _ in range(5))
    assert first.endswith(b"the stacks are in the log\n")
    assert [answer.split(b" ", 2)[1] for answer in others] == [b"404"] * 4
    assert capfd.readouterr().err.count("Current thread") == 1


def test_a_port_that_is_taken_is_one_warning_and_the_training_goes_on() -> None:
    with serving() as server, log_lines("dtj_launch") as printed:
        port = server.address[1]
        assert serve_status(ProgressStore(), port, host="127.0.0.1") is None
    (line,) = printed
    assert line.startswith(f"warning: no status on port {port}: ")


def test_in_a_local_run_it_listens_on_loopback_alone() -> None:
    with serving("127.0.0.1") as server:
        assert server.address[0] == "127.0.0.1"
    with serving("") as server:
        assert server.address[0] in ("::", "0.0.0.0")
