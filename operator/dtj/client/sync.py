"""The client for code that does not know asyncio: scripts, and notebooks, where a loop runs already."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from dtj.client.aio import AsyncClient

P = ParamSpec("P")
T = TypeVar("T")

_CANCEL_SECONDS = 1.0
"""How long a call that was interrupted gets to close what it has opened."""


def _returning(
    method: Callable[Concatenate[AsyncClient, P], Awaitable[T]],
) -> Callable[Concatenate[Client, P], T]:
    """The method, which returns when it is done."""

    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(lambda: method(self._client, *args, **kwargs))

    return call


def _yielding(
    method: Callable[Concatenate[AsyncClient, P], AsyncGenerator[T, None]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    """The method, as an iterator."""

    @functools.wraps(method)
    def call(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._loop.iterate(lambda: method(self._client, *args, **kwargs))

    return call


class Client:
    """:class:`~dtj.client.aio.AsyncClient` with calls that return when they are done.

    Its methods have the same arguments, and promise and raise the same.

    It has an event loop in a thread of its own, so that it can be used where another one runs, and from any thread.
    Use it as a context manager, or close it. Raises ConfigError where there is no usable kubeconfig.
    """

    def __init__(
        self, *, namespace: str | None = None, kubeconfig: str | None = None, context: str | None = None
    ) -> None:
        self._loop = _LoopThread()
        try:
            self._client = self._loop.run(
                lambda: AsyncClient.connect(namespace=namespace, kubeconfig=kubeconfig, context=context)
            )
        except BaseException:
            self._loop.close()
            raise

    @property
    def namespace(self) -> str:
        """The namespace of all calls that name no other."""
        return self._client.namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and end the thread. The client cannot be used any more; closing again does nothing."""
        if not self._loop.closed:
            self._loop.run(self._client.close)
            self._loop.close()

    list = _returning(AsyncClient.list)
    get = _returning(AsyncClient.get)
    follow = _yielding(AsyncClient.follow)
    pods = _returning(AsyncClient.pods)
    events = _returning(AsyncClient.events)
    logs = _yielding(AsyncClient.logs)
    wait = _returning(AsyncClient.wait)
    submit = _returning(AsyncClient.submit)
    submit_all = _returning(AsyncClient.submit_all)
    suspend = _returning(AsyncClient.suspend)
    resume = _returning(AsyncClient.resume)
    stop = _returning(AsyncClient.stop)
    scale = _returning(AsyncClient.scale)
    delete = _returning(AsyncClient.delete)


class _LoopThread:
    """An event loop in a thread that ends with the program."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="dtj.client", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """What ``call`` gives, awaited on the loop. An interrupt here, such as Ctrl-C, cancels it there."""
        if self.closed:
            raise RuntimeError("the client is closed")

        over = threading.Event()

        async def awaited() -> T:
            try:
                return await call()
            finally:
                over.set()

        future = asyncio.run_coroutine_threadsafe(awaited(), self._loop)
        try:
            return future.result()
        except BaseException:
            if future.cancel():
                over.wait(_CANCEL_SECONDS)  # the next call must not meet what this one has left half done
            raise

    def iterate(self, call: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
        """What an asynchronous generator gives, one by one."""
        items = call()
        end: Any = object()
        try:
            while (item := self.run(lambda: anext(items, end))) is not end:
                yield item
        finally:
            if not self.closed:
                self.run(items.aclose)

    def close(self) -> None:
        self.run(self._loop.shutdown_asyncgens)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
