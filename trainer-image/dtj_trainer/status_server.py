"""GET /status and /healthz on a thread of their own. Whatever goes wrong here, the training goes on."""

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from dtj_trainer.progress import Board


def serve(board: Board, port: int, *, say: Callable[[str], object] = print) -> ThreadingHTTPServer | None:
    """Serves the board on all interfaces until the process ends; None, and one warning, where it cannot."""
    try:
        server = _Server(("", port), _handler(board))
    except OSError as error:
        say(f"warning: no status on port {port}: {error.strerror}; the training goes on without")
        return None
    threading.Thread(target=server.serve_forever, name="status", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        """Binds both address families, and spares the reverse look-up of the host's name, which can take seconds."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that hangs up in the middle is no news."""


def _handler(board: Board) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            if self.path == "/status":
                self._answer(200, "application/json", json.dumps(board.document()))
            elif self.path == "/healthz":
                self._answer(200, "text/plain", "ok\n")
            else:
                self._answer(404, "text/plain", "not found; try /status or /healthz\n")

        def _answer(self, code: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """The task's log is for the training."""

    return Handler
