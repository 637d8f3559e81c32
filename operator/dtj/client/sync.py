"""The client for code that does not know asyncio: scripts, and notebooks, where a loop runs already."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any, Self, TypeVar

from dtj.api.job import Job
from dtj.client.aio import AsyncClient
from dtj.client.checks import Source
from dtj.client.code_pack import CodePack
from dtj.client.logs import LogLine, LogNote, LogSelection
from dtj.client.overview import Event
from dtj.core.observed import Pod

T = TypeVar("T")

_CANCEL_SECONDS = 1.0
"""How long a call that was interrupted gets to close what it has opened."""


class Client:
    """:class:`~dtj.client.aio.AsyncClient` with calls that return when they are done; the methods promise and raise
    the same.

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

    # -- looking --------------------------------------------------------------------------------------------------

    def list(
        self, *, namespace: str | None = None, all_namespaces: bool = False, selector: str = ""
    ) -> tuple[Job, ...]:
        """The jobs that carry the labels of ``selector``, by namespace and name."""
        return self._loop.run(
            lambda: self._client.list(namespace=namespace, all_namespaces=all_namespaces, selector=selector)
        )

    def get(self, name: str, *, namespace: str | None = None) -> Job:
        """One job, with its status."""
        return self._loop.run(lambda: self._client.get(name, namespace=namespace))

    def follow(self, name: str, *, namespace: str | None = None) -> Iterator[Job]:
        """The job as it is now, and after each change, until it is deleted or replaced."""
        return self._loop.iterate(lambda: self._client.follow(name, namespace=namespace))

    def pods(self, job: Job) -> tuple[Pod, ...]:
        """The job's pods, by role, index and age."""
        return self._loop.run(lambda: self._client.pods(job))

    def events(self, job: Job) -> tuple[Event, ...]:
        """The events of the job and of its pods, the newest last."""
        return self._loop.run(lambda: self._client.events(job))

    def logs(
        self, name: str, selection: LogSelection | None = None, *, follow: bool = False, namespace: str | None = None
    ) -> Iterator[LogLine | LogNote]:
        """What the replicas of a job print, merged by time; with ``follow`` also what comes, until its end."""
        return self._loop.iterate(lambda: self._client.logs(name, selection, follow=follow, namespace=namespace))

    def wait(
        self, name: str, for_: str | None = None, *, timeout: float | None = None, namespace: str | None = None
    ) -> Job:
        """The job, once ``for_`` is True, or once it has ended; ``timeout`` in seconds."""
        return self._loop.run(lambda: self._client.wait(name, for_, timeout=timeout, namespace=namespace))

    # -- acting ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        manifest: Source,
        *,
        code: str | os.PathLike[str] | CodePack | None = None,
        namespace: str | None = None,
    ) -> Job:
        """Create the one job of a manifest; ``code`` is a directory whose files its pods find."""
        return self._loop.run(lambda: self._client.submit(manifest, code=code, namespace=namespace))

    def submit_all(self, manifest: Source, *, namespace: str | None = None) -> tuple[Job, ...]:
        """Create the jobs of a manifest, in order."""
        return self._loop.run(lambda: self._client.submit_all(manifest, namespace=namespace))

    def suspend(self, name: str, *, namespace: str | None = None) -> Job:
        """Have the job's pods save a checkpoint and end; the job stays."""
        return self._loop.run(lambda: self._client.suspend(name, namespace=namespace))

    def resume(self, name: str, *, namespace: str | None = None) -> Job:
        """Let a suspended job go on."""
        return self._loop.run(lambda: self._client.resume(name, namespace=namespace))

    def stop(self, name: str, *, timeout: float | None = None, namespace: str | None = None) -> Job:
        """Suspend the job, and return when its pods are gone."""
        return self._loop.run(lambda: self._client.stop(name, timeout=timeout, namespace=namespace))

    def scale(self, name: str, replicas: int, *, namespace: str | None = None) -> None:
        """Set the number of workers of an elastic job."""
        self._loop.run(lambda: self._client.scale(name, replicas, namespace=namespace))

    def delete(
        self, name: str, *, wait: bool = False, timeout: float | None = None, namespace: str | None = None
    ) -> None:
        """Delete the job, and with it its pods; ``wait`` returns when they are gone."""
        self._loop.run(lambda: self._client.delete(name, wait=wait, timeout=timeout, namespace=namespace))


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
