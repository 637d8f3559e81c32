"""A proxy in front of an HTTP object store that answers some requests badly."""

import io
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

WRITE = frozenset({"PUT", "POST"})
"""The methods of a request that writes an object."""
READ = frozenset({"GET"})
REMOVE = frozenset({"DELETE"})
ANY = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE"})
_LONG_SECONDS = 600.0
_BYTE_SECONDS = 0.2
"""Between two bytes of an answer that trickles: shorter than any time-out between two bytes."""


class Fault(Enum):
    """What happens to a request; an answer is the status, and what S3 calls the error."""

    UNAVAILABLE = 503, "SlowDown"
    FORBIDDEN = 403, "AccessDenied"
    LOST_UPLOAD = 404, "NoSuchUpload"
    NO_SUCH_KEY = 404, "NoSuchKey"
    CUT_REQUEST = "close after half of the request's body"
    CUT_ANSWER = "close after half of the answer's body"
    STALLED_REQUEST = "read half of the request's body, and nothing more"
    STALLED_ANSWER = "send half of the answer's body, and nothing more"
    TRICKLE = "send the answer byte by byte"


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that does not trust the certificate, or has given up, is part of a test."""


class FaultyProxy:
    """Forwards requests to a server, except for those that have a fault planned."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._plan: list[tuple[frozenset[str], str, Fault]] = []
        self._is_away = False
        self._delay = 0.0
        self._of_conditions: int | None = None
        self._next: tuple[str, Callable[[], object]] | None = None
        self._stalls_end = threading.Event()
        self._lock = threading.Lock()
        self.url = ""

    def fail(self, methods: frozenset[str], part: str, fault: Fault, times: int) -> None:
        """Plans a fault for the next requests of these methods that name an object whose key contains the part."""
        with self._lock:
            self._plan = [(methods, part, fault)] * times

    def go_away(self) -> None:
        """From now on, every request is answered 503."""
        with self._lock:
            self._is_away = True

    def answer_after(self, seconds: float) -> None:
        """From now on, every answer comes after this time."""
        with self._lock:
            self._delay = seconds

    def after_reading(self, part: str, act: Callable[[], object]) -> None:
        """Plans what is done between the next answer about an object whose key contains the part, and the one after."""
        with self._lock:
            self._next = part, act

    def act(self, method: str, path: str) -> None:
        """Does what is planned after this request."""
        with self._lock:
            planned = self._next if self._next and method == "GET" and self._next[0] in unquote(path) else None
            self._next = None if planned else self._next
        if planned:
            planned[1]()

    def refuse_conditions(self, status: int) -> None:
        """From now on, a request with a condition is answered with this status, and that it is not implemented."""
        with self._lock:
            self._of_conditions = status

    def refusal_of_conditions(self) -> int | None:
        """The status for a request with a condition; None if it is forwarded as any other."""
        with self._lock:
            return self._of_conditions

    def recover(self) -> None:
        """From now on, every request is forwarded at once; no fault is planned. Connections that stall are closed."""
        with self._lock:
            self._is_away = False
            self._delay = 0.0
            self._of_conditions = None
            self._plan = []
            self._next = None
            self._stalls_end.set()
            self._stalls_end = threading.Event()

    def pause(self, seconds: float | None = None) -> bool:
        """Waits for this time, by default that of every answer, or until `recover`; returns whether that ended it."""
        with self._lock:
            ended, delay = self._stalls_end, self._delay
        return ended.wait(delay if seconds is None else seconds)

    def is_spent(self) -> bool:
        """Whether all planned faults have happened."""
        return not self._plan

    def take(self, method: str, path: str, body: bytes) -> Fault | None:
        """The fault of this request, which is then no longer planned."""
        with self._lock:
            if self._is_away:
                return Fault.UNAVAILABLE
            if self._plan and method in self._plan[0][0] and self._plan[0][1] in _named(method, path, body):
                return self._plan.pop(0)[2]
        return None

    def forward(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, Any, bytes]:
        """The server's status, headers and body."""
        connection = HTTPConnection(*self._target, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    @contextmanager
    def serving(self, tls: ssl.SSLContext | None = None) -> Iterator["FaultyProxy"]:
        server = _Server(("127.0.0.1", 0), _handler(self))
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self.url = f"http{'s' * bool(tls)}://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


def _named(method: str, path: str, body: bytes) -> str:
    """Where a request has the key of its object: Google Cloud Storage takes that of a new one from the body."""
    return unquote(path) + (body[:1000].decode(errors="replace") if method == "POST" else "")


class _Trickle(io.BufferedIOBase):
    """Sends byte by byte, until the proxy recovers or the other side has had enough."""

    def __init__(self, file: Any, proxy: FaultyProxy) -> None:
        self._file = file
        self._proxy = proxy

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        for byte in bytes(content):
            if self._proxy.pause(_BYTE_SECONDS):
                raise ConnectionAbortedError
            self._file.write(bytes([byte]))
            self._file.flush()
        return len(content)


def _handler(proxy: FaultyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            body = self.rfile.read(size // 2)
            fault = proxy.take(self.command, self.path, body)
            if fault is Fault.STALLED_REQUEST:
                proxy.pause(_LONG_SECONDS)
            if fault in (Fault.CUT_REQUEST, Fault.STALLED_REQUEST):
                self.close_connection = True
                return
            body += self.rfile.read(size - len(body))
            proxy.pause()
            if fault and isinstance(fault.value, tuple):
                answered, code = fault.value
                self._send(answered, [], f"<Error><Code>{code}</Code></Error>".encode())
                return
            refused = proxy.refusal_of_conditions()
            if refused and "If-None-Match" in self.headers:
                self._send(refused, [], b"<Error><Code>NotImplemented</Code></Error>")
                return
            status, headers, content = proxy.forward(self.command, self.path, body, dict(self.headers))
            proxy.act(self.command, self.path)
            if fault is Fault.TRICKLE:
                self.wfile = _Trickle(self.wfile, proxy)
            try:
                self._send(status, headers, content, cut=fault in (Fault.CUT_ANSWER, Fault.STALLED_ANSWER))
            except ConnectionError:
                self.close_connection = True
            if fault is Fault.STALLED_ANSWER:
                proxy.pause(_LONG_SECONDS)
            elif fault is Fault.TRICKLE:
                self.close_connection = True

        def _send(self, status: int, headers: list[tuple[str, str]], content: bytes, *, cut: bool = False) -> None:
            self.send_response_only(status)
            length = str(len(content))
            for name, value in headers:
                if name.lower() == "content-length" and self.command == "HEAD":
                    length = value
                elif name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
            self.close_connection = self.close_connection or cut

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _answer

        def log_message(self, *args: Any) -> None:
            pass

    return Handler
