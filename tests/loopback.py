"""Ports and servers on the loopback interface, for tests and benches. Linux only, standard library only."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import BaseServer
from threading import Thread

_OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """``count`` loopback ports that nothing listens on now, outside the range of outgoing connections.

    A port from that range (what binding to port 0 gives) could be taken by any client while a server restarts.
    Raises OSError if there are too few.
    """
    low, high = map(int, _OUTGOING.read_text().split())
    candidates = [*range(10_000, low), *range(high + 1, 65_536)]
    ports: list[int] = []
    # Not by the seed of a test: several processes look at the same time.
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"found {len(ports)} of {count} free ports outside {low}-{high}")


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Within the block a server answers, from a thread. It is asked to end at each look, of which there are many."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class JsonHandler(BaseHTTPRequestHandler):
    """A handler of requests that replies in JSON, and logs nothing."""

    def reply(self, body: bytes, *, status: int = 200) -> None:
        """Send what is JSON already."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""
