"""The watch on jobs, by kopf: a few settings, a login, and one handler that passes events on.

kopf is used for what it does without writing: with ``on.event`` alone it adds no finalizer, no annotation and no
patch to a job. Anything that the handler raised would be logged and forgotten, so it does nothing that can fail,
and a value that it returned would be written into the job's status, so it returns None. kopf knows of a job who it is;
the job itself is beside it (see :mod:`dtj.app.kopf_session`).

It has its own thread and event loop, and is started again when it ends. kopf ends at every ERROR line of a watch
but 410 (500 "etcdserver: leader changed", 429, 504), and on its way out it cancels all tasks of its loop that are
younger than itself, whoever made them: in the loop of the engine that would be the engine's workers.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn, TypeAlias

import kopf

from dtj.app.kopf_session import JobsBeside, KopfSession
from dtj.engine.feed import JobFeed
from dtj.kube.waiting import Backoff

log = logging.getLogger(__name__)

Connect: TypeAlias = Callable[[], Awaitable[kopf.ConnectionInfo]]
"""Asked at the start, and again when the API server answers 401."""

LASTING_SECONDS: Final = 60.0
"""A watch that lasted for so long is no failure among others in a row."""

STOP_SECONDS: Final = 2.0
"""How long kopf may take to end. It only reads: what it does later harms nobody."""

_RETRY = re.compile(r"^Request attempt #(\d+)")

_SERVERS_WORDS: Final = re.compile(r"'message': '([^']*)'")
"""What the API server says, within what kopf makes of it: all of a Status, as Python would write it."""

_LOGGED_BY_US: Final = re.compile(
    r"OS signals are ignored|.* has failed: |Unprocessed streams left|Cleanup activity is not executed"
)
"""What kopf logs of its beginning and its end in a thread."""


class JobWatch:
    """Delivers jobs to ``feed``, whatever happens to kopf."""

    def __init__(
        self,
        feed: JobFeed,
        connect: Connect,
        *,
        namespaces: Sequence[str] = (),
        backoff: Backoff | None = None,
    ) -> None:
        """``namespaces``: none means all of the cluster."""
        self._feed = feed
        self._connect = connect
        self._namespaces = tuple(namespaces)
        self._backoff = backoff or Backoff(base=1.0, cap=30.0)
        self._renew = asyncio.Event()
        feed.on_turned_back = self._renew.set

    async def run(self) -> NoReturn:
        """Watch until cancelled. After a watch ends, the jobs are listed, and the watch is started again."""
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            why = await self._watch()
            failures = 1 if loop.time() - began > LASTING_SECONDS else failures + 1
            delay = self._backoff.delay(failures)
            log.warning("the watch on jobs ended: %s; the operator lists and watches jobs again in %.1f s", why, delay)
            await asyncio.sleep(delay)
            self._feed.relist_soon()

    async def _watch(self) -> str:
        """Run kopf to its end, or until its place is known to be lost. Returns why it ended."""
        self._renew.clear()
        watching = _Kopf(self._feed, self._connect, namespaces=self._namespaces)
        renewing = asyncio.create_task(self._renew.wait(), name="renewal of the watch on jobs")
        waited_for: list[asyncio.Future[Any]] = [watching.ended, renewing]
        try:
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            renewing.cancel()
            watching.stop()
            await asyncio.wait([watching.ended], timeout=STOP_SECONDS)
        return watching.why() if not self._renew.is_set() else "the API server went back to an older history"


class _Kopf:
    """One run of kopf, in a thread. Everything but :meth:`_run` and the handlers is called in the loop of the maker."""

    def __init__(self, feed: JobFeed, connect: Connect, *, namespaces: Sequence[str]) -> None:
        self.ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._feed = feed
        self._connect = connect
        self._namespaces = tuple(namespaces)
        self._ours = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._jobs = JobsBeside()
        self._stopped = False
        threading.Thread(target=self._run, name="kopf", daemon=True).start()

    def stop(self) -> None:
        """Nothing is delivered from now on; the thread ends soon."""
        self._stopped = True
        if self._task is not None:
            with suppress(RuntimeError):  # it has ended by itself
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def why(self) -> str:
        """Why it ended, in words."""
        error = self.ended.result() if self.ended.done() else None
        if error is None:
            return "kopf ended"
        found = _SERVERS_WORDS.search(str(error))
        return found[1] if found is not None else f"{type(error).__name__}: {error}"

    def _run(self) -> None:
        """The thread."""

        async def operate() -> None:
            self._task = asyncio.current_task()
            if self._stopped:
                return
            # No stop flag: kopf leaves the task behind that waits for it, and waits 5 s for that task before it ends.
            await kopf.operator(
                registry=self._registry(),
                settings=make_settings(namespaced=bool(self._namespaces)),
                standalone=True,
                clusterwide=not self._namespaces,
                namespaces=self._namespaces,
            )

        error: BaseException | None = None
        try:
            asyncio.run(operate())
        except BaseException as raised:  # noqa: BLE001 - whatever it is, the watch has ended and is begun again
            error = raised
        with suppress(RuntimeError):  # our loop is closed: the process ends
            self._ours.call_soon_threadsafe(self._end, error)

    def _registry(self) -> kopf.OperatorRegistry:
        """The handlers, in a registry of their own: kopf's global one would outlive us."""
        resource, registry = self._feed.resource, kopf.OperatorRegistry()
        group, version = resource.api_version.split("/")

        @kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=5.0)
        async def log_in(**_: Any) -> kopf.AiohttpSession:
            return KopfSession(await self._connect(), self._jobs)

        @kopf.on.event(group, version, resource.plural, registry=registry)
        async def pass_on(event: kopf.RawEvent, namespace: str | None, name: str, uid: str, **_: Any) -> None:
            if event["type"] == "DELETED":
                self._tell(partial(self._feed.remove, (namespace or "default", name), uid=uid))
            elif (job := self._jobs.take(uid)) is not None:
                self._tell(partial(self._feed.put, job))
            if event["type"] is None:
                # From a list of kopf's own: it does not say what has vanished since its last one.
                self._tell(self._feed.relist_soon)

        return registry

    def _tell(self, news: Callable[[], None]) -> None:
        """Have the loop of our maker do this, unless we are stopped by then."""
        with suppress(RuntimeError):  # it is closed: the process ends
            self._ours.call_soon_threadsafe(lambda: None if self._stopped else news())

    def _end(self, error: BaseException | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)


def make_settings(*, namespaced: bool) -> kopf.OperatorSettings:
    """kopf's settings, where they differ from its defaults."""
    settings = kopf.OperatorSettings()
    # Where this ends, kopf ends; an API server may be away for hours.
    settings.networking.error_backoffs = Backoff(base=0.5, cap=30.0)
    # Before it lists again, because the API server has forgotten its place (410): by default a tenth of a second.
    settings.watching.reconnect_backoff = 1.0
    settings.networking.request_timeout = 60.0
    settings.networking.connect_timeout = 10.0
    # Its events are not aggregated, and of a type that is no event type; ours are dtj.kube.events.
    settings.posting.enabled = False
    # A page of kopf's list is read as a whole, and jobs may have 1.5 MiB each.
    settings.watching.chunk_size = 20
    # Looking for namespaces and CRDs needs rights in the whole cluster.
    settings.scanning.disabled = namespaced
    return settings


class QuietRetries(logging.Filter):
    """Makes one warning of the errors that kopf logs at each attempt of a request during an outage, and drops what
    :class:`JobWatch` says itself."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith("kopf"):
            return True
        if _LOGGED_BY_US.match(record.getMessage()):
            return False
        attempt = _RETRY.match(record.getMessage())
        if attempt is None:
            return True
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return int(attempt[1]) == 1
