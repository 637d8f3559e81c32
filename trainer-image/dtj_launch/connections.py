"""Serves the connections to a port on one thread, whatever clients send, and however slowly. Standard library only."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
HANG_UP = READ | 4
"""What a talk waits for when its client has all that it gets: whoever closes first keeps the port in TIME_WAIT."""
_LAST_SECONDS = 0.5
"""For how long a server that closes waits until such clients hang up."""


class Connections:
    """A port with a server, until it is closed.

    A client has its connection for a limited time in total, and if there are too many, the oldest is ended.
    """

    def __init__(
        self,
        host: str,
        port: int,
        talk: Callable[[socket.socket], Iterator[int]],
        *,
        name: str,
        most: int,
        seconds: float,
    ) -> None:
        """Args:
        host: the address to listen on; empty: all of them.
        talk: the course of one connection, which yields what it waits for: READ, WRITE or HANG_UP. It ends the
            connection by its end, and by any exception.
        name: of the thread.
        most: connections at the same time.
        seconds: of each connection.

        Raises:
            OSError: the port is in use.
        """
        dual = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=128, dualstack_ipv6=dual)
        self._listener.setblocking(False)
        self.address: tuple[Any, ...] = self._listener.getsockname()
        self._talk, self._most, self._seconds = talk, most, seconds
        self._until: dict[socket.socket, float] = {}  # of each connection, oldest first, when its time is over
        self._closing = False
        self._wakeup, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Gives the port back; once this returns another server can bind it. Waits for no other clients than those of
        HANG_UP, and for these half a second."""
        self._closing = True
        self._wakeup.close()
        self._thread.join()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            with closing(self._woken), closing(self._listener):
                selector.register(self._woken, READ)
                selector.register(self._listener, READ)
                while not self._closing:
                    self._look(selector, min(self._until.values(), default=None))
                selector.unregister(self._woken)
                selector.unregister(self._listener)
            for key in list(selector.get_map().values()):
                if key.data[1] != HANG_UP:
                    self._end(selector, key.fileobj)
            until = time.monotonic() + _LAST_SECONDS
            while self._until and time.monotonic() < until:
                self._look(selector, until)
            for client in list(self._until):
                self._end(selector, client)

    def _look(self, selector: selectors.BaseSelector, until: float | None) -> None:
        """Goes on with the clients that are ready until `until`, and ends those whose time is over."""
        for key, _ in selector.select(None if until is None else max(0.0, until - time.monotonic())):
            if key.fileobj is self._listener:
                self._accept(selector)
            elif key.fileobj in self._until:
                self._go_on(selector, key.fileobj, key.data[0])
        now = time.monotonic()
        for client in [client for client, until in self._until.items() if until <= now]:
            self._end(selector, client)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        if len(self._until) >= self._most:
            self._end(selector, next(iter(self._until)))
        try:
            client, _ = self._listener.accept()
        except OSError:
            # It went already; or there is no descriptor left, which the oldest gives back.
            for oldest in list(self._until)[:1]:
                self._end(selector, oldest)
            time.sleep(0.05)  # the program needs the processor more than this loop
            return
        client.setblocking(False)
        self._until[client] = time.monotonic() + self._seconds
        talk = self._talk(client)
        selector.register(client, READ, (talk, READ))
        self._go_on(selector, client, talk)

    def _go_on(self, selector: selectors.BaseSelector, client: Any, talk: Iterator[int]) -> None:
        try:
            wanted = next(talk)
            selector.modify(client, wanted & (READ | WRITE), (talk, wanted))
        except Exception:  # noqa: BLE001 - whatever it is, the others are still to be served
            self._end(selector, client)

    def _end(self, selector: selectors.BaseSelector, client: Any) -> None:
        del self._until[client]
        selector.unregister(client)
        client.close()
