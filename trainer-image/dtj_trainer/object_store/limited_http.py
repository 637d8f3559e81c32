"""Requests over HTTP that end after a time, even if the answer arrives byte by byte.

`requests` limits the time to connect and the time between two bytes, not the time of a whole request.
"""

import io
import socket
import time
from collections.abc import Callable
from http.client import HTTPResponse
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_PART = 2**16
"""Bytes that are sent between two looks at the clock."""


class LimitedAdapter(HTTPAdapter):
    """For `requests.Session.mount`: a request ends with a time-out after this time, its answer included."""

    def __init__(self, seconds: float) -> None:
        self._pools = _pools(seconds)
        super().__init__()

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, *arguments: Any, **options: Any) -> Any:
        manager = super().proxy_manager_for(*arguments, **options)
        manager.pool_classes_by_scheme = self._pools
        return manager


def _pools(seconds: float) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(_Limited, HTTPConnection):  # type: ignore[misc]
        limit = seconds

    class Secure(_Limited, HTTPSConnection):  # type: ignore[misc]
        limit = seconds

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


class _Limited:
    """What a connection does in another way."""

    limit: float
    sock: socket.socket | None
    _until = 0.0

    def connect(self) -> None:
        self._until = time.monotonic() + self.limit
        super().connect()  # type: ignore[misc]

    def request(self, *arguments: Any, **options: Any) -> None:
        self._until = time.monotonic() + self.limit
        super().request(*arguments, **options)  # type: ignore[misc]

    def send(self, data: Any) -> None:
        parts = [data]
        if isinstance(data, bytes) and len(data) > _PART:
            parts = [data[at : at + _PART] for at in range(0, len(data), _PART)]
        for part in parts:
            if self.sock is not None:
                self.sock.settimeout(self._left())
            super().send(part)  # type: ignore[misc]

    def response_class(self, sock: socket.socket, *arguments: Any, **options: Any) -> HTTPResponse:
        return _LimitedResponse(sock, self._left, *arguments, **options)

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no whole answer after {self.limit:g} s")
        return left


class _LimitedResponse(HTTPResponse):
    def __init__(self, sock: socket.socket, left: Callable[[], float], *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        # Any: the stubs know its type as the one that the standard library happens to give it.
        file: Any = self.fp
        self.fp = io.BufferedReader(_LimitedReader(file.detach(), sock, left))


class _LimitedReader(io.RawIOBase):
    """What a socket receives while there is time left."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, left: Callable[[], float]) -> None:
        self._raw = raw
        self._sock = sock
        self._left = left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(self._left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
