"""A proxy in front of an HTTP object store that answers some requests badly."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Fault(Enum):
    UNAVAILABLE = 503
    FORBIDDEN = 403
    CUT_REQUEST = "close after half of the request's body"
    CUT_ANSWER = "close after half of the answer's body"


class FaultyProxy:
    """Forwards requests to a server, except for those that have a fault planned."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._plan: list[tuple[str, str, Fault]] = []
        self._is_away = False
        self._lock = threading.Lock()
        self.url = ""

    def fail(self, method: str, part: str, fault: Fault, times: int) -> None:
        """Plans a fault for the next requests of this method whose path contains the part."""
        with self._lock:
            self._plan = [(method, part, fault)] * times

    def go_away(self) -> None:
        """From now on, every request is answered 503."""
        with self._lock:
            self._is_away = True

    def recover(self) -> None:
        """From now on, every request is forwarded; no fault is planned."""
        with self._lock:
            self._is_away = False
            self._plan = []

    def is_spent(self) -> bool:
        """Whether all planned faults have happened."""
        return not self._plan

    def take(self, method: str, path: str) -> Fault | None:
        """The fault of this request, which is then no longer planned."""
        with self._lock:
            if self._is_away:
                return Fault.UNAVAILABLE
            if self._plan and self._plan[0][0] == method and self._plan[0][1] in path:
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
    def serving(self) -> Iterator["FaultyProxy"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


def _handler(proxy: FaultyProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            fault = proxy.take(self.command, self.path)
            size = int(self.headers.get("Content-Length", 0))
            if fault is Fault.CUT_REQUEST:
                self.rfile.read(size // 2)
                self.close_connection = True
                return
            body = self.rfile.read(size)
            if fault in (Fault.UNAVAILABLE, Fault.FORBIDDEN):
                self._send(fault.value, [], b"<Error><Code>Refused</Code></Error>")
                return
            status, headers, content = proxy.forward(self.command, self.path, body, dict(self.headers))
            self._send(status, headers, content, cut=fault is Fault.CUT_ANSWER)

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
