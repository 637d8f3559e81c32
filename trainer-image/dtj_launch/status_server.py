"""What a training answers on its status port: GET /status, /metrics and /healthz, and POST /stacks.

A client that reaches the port occupies one thread and some connections for moments, and no more: see `connections`.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import re
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING

from .connections import HANG_UP, READ, WRITE, Connections

if TYPE_CHECKING:
    from .progress import ProgressStore

log = logging.getLogger(__name__)

_READERS = 16
"""Connections at the same time. The operator and Prometheus need one each."""
_READER_SECONDS = 10.0
_STACKS_SECONDS = 10.0
_LONGEST_REQUEST = 8192
_HEADS_END = re.compile(rb"\r?\n\r?\n")
_TEXT = "text/plain; charset=utf-8"


def serve_status(store: ProgressStore, port: int, *, host: str = "") -> Connections | None:
    """Serves until the process ends; on all interfaces, or on the address `host`.

    Returns None, after one warning, if it cannot.
    """
    try:
        return Connections(host, port, _Pages(store).talk, name="status", most=_READERS, seconds=_READER_SECONDS)
    except OSError as error:
        log.warning(f"no status on port {port}: {error.strerror}; the training continues without it")
        return None


class _Pages:
    """What there is to read."""

    def __init__(self, store: ProgressStore) -> None:
        self._store, self._printed = store, float("-inf")

    def talk(self, reader: socket.socket) -> Iterator[int]:
        """The course of one connection."""
        head, more = b"", b"?"
        while more and not _HEADS_END.search(head) and len(head) <= _LONGEST_REQUEST:
            yield READ
            more = reader.recv(4096)
            head += more
        left = memoryview(self._answer(head))
        while left:
            yield WRITE
            left = left[reader.send(left) :]
        reader.shutdown(socket.SHUT_WR)
        while more:  # what it still sends is let go: to close before that would cut the answer off
            yield HANG_UP
            more = reader.recv(4096)

    def _answer(self, head: bytes) -> bytes:
        """The answer to a request with this head, whatever bytes it is made of."""
        code, kind, text = self._page(head)
        body = text.encode(errors="replace")
        fields = f"Allow: GET, POST\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}"
        return f"HTTP/1.1 {code.value} {code.phrase}\r\n{fields}\r\n\r\n".encode() + body

    def _page(self, head: bytes) -> tuple[HTTPStatus, str, str]:
        words = head.partition(b"\n")[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or len(head) > _LONGEST_REQUEST:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"not a request of HTTP/1 in {_LONGEST_REQUEST} bytes\n"
        method, path, _ = words
        if method == b"POST":
            return self._stacks(path)
        if method != b"GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, "only GET, and POST /stacks\n"
        if path == b"/status":
            return HTTPStatus.OK, "application/json", json.dumps(self._store.document())
        if path == b"/metrics":
            return HTTPStatus.OK, "text/plain; version=0.0.4; charset=utf-8", self._store.exposition()
        if path == b"/healthz":
            return HTTPStatus.OK, _TEXT, "ok\n"
        return HTTPStatus.NOT_FOUND, _TEXT, "not found; try /status, /metrics or /healthz\n"

    def _stacks(self, path: bytes) -> tuple[HTTPStatus, str, str]:
        if path == b"/stacks" and time.monotonic() - self._printed >= _STACKS_SECONDS:
            self._printed = time.monotonic()
            faulthandler.dump_traceback(file=2, all_threads=True)
            return HTTPStatus.OK, _TEXT, "the stacks are in the log\n"
        return HTTPStatus.NOT_FOUND, _TEXT, "not found, or the stacks were printed a moment ago\n"
