"""The status port of a trainer that a test plays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dtj.api import names
from dtj.api.json import JsonObject
from loopback import serving


@contextmanager
def status_port(says: JsonObject) -> Iterator[str]:
    """A port that says this, on a loopback address of its own, which it gives."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(says).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    address = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"
    with serving(ThreadingHTTPServer((address, names.STATUS_PORT), Handler)):
        yield address
