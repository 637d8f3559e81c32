"""The status port of a trainer that a test plays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

from dtj.api import names
from dtj.api.json import JsonObject
from loopback import JsonHandler, serving


@contextmanager
def status_port(says: JsonObject) -> Iterator[str]:
    """A port that says this, on a loopback address of its own, which it gives."""

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            self.reply(json.dumps(says).encode())

    address = f"127.{random.randint(1, 250)}.{random.randint(1, 250)}.{random.randint(2, 250)}"
    with serving(ThreadingHTTPServer((address, names.STATUS_PORT), Handler)):
        yield address
