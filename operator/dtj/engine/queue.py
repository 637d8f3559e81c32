"""Work queue: which jobs are to be looked at, each at most once at a time.

A key that is added while it is being processed is processed again afterwards, so that no change is missed and no
job is ever planned by two workers at once. Same contract as client-go's workqueue. Time is the event loop's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dtj.kube.fairness import FairShare, TakingTurns
from dtj.kube.waiting import Backoff, loop_time

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue gives out no more keys."""


class QueueObserver:
    """Observes what the queue does; this one ignores it, metrics override what they count."""

    def added(self) -> None:
        """A key became ready."""

    def started(self, *, waited: float) -> None:
        """A worker took a key that had been ready for ``waited`` seconds."""

    def finished(self, *, worked: float) -> None:
        """A pass ended after ``worked`` seconds."""

    def retried(self) -> None:
        """A key failed and will be tried again."""


@dataclass(frozen=True, slots=True)
class _Timer:
    at: float
    handle: asyncio.TimerHandle


class WorkQueue(Generic[K]):
    """A deduplicating queue with delays.

    ``rest`` is the least time in seconds between the end of one pass over a key and the start of the next: a
    burst of changes then costs a few passes instead of one for each change.

    ``tenant_of`` says whose a key is: tenants take turns, and share the ``places`` at which keys are worked on as
    :mod:`dtj.kube.fairness` says.
    """

    def __init__(
        self,
        *,
        backoff: Backoff,
        rest: float = 0.0,
        observer: QueueObserver | None = None,
        tenant_of: Callable[[K], Hashable] = lambda key: None,
        places: int = sys.maxsize,
    ) -> None:
        self._backoff = backoff
        self._rest = rest
        self._observer = observer or QueueObserver()
        self._tenant_of = tenant_of
        self._share: FairShare[Hashable] = FairShare(places)
        self._ready: TakingTurns[Hashable, K] = TakingTurns()
        self._waiting_since: dict[K, float] = {}
        self._working_since: dict[K, float] = {}
        self._advanced_at: dict[K, float] = {}
        """When each pass began, or last advanced."""

        self._resting: dict[K, asyncio.TimerHandle] = {}
        self._again: set[K] = set()
        self._timers: dict[K, _Timer] = {}
        self._failures: dict[K, int] = {}
        self._not_before: dict[K, float] = {}
        self._news = asyncio.Event()
        self._shut_down = False

    def __len__(self) -> int:
        """Keys that are ready and wait for a worker."""
        return len(self._ready)

    def longest_running(self) -> float:
        """Seconds for which the oldest pass has been running; 0 if none is."""
        return max((loop_time() - since for since in self._working_since.values()), default=0.0)

    def advanced(self, key: K) -> None:
        """The pass over ``key`` goes on: a call that it waited for has been answered."""
        if key in self._advanced_at:
            self._advanced_at[key] = loop_time()

    def longest_standstill(self) -> float:
        """Seconds since a pass began or last advanced, of the one that has waited longest; 0 if none is running."""
        return max((loop_time() - at for at in self._advanced_at.values()), default=0.0)

    def unfinished_work(self) -> float:
        """Seconds of all running passes together."""
        return sum(loop_time() - since for since in self._working_since.values())

    def add(self, key: K) -> None:
        """Have ``key`` processed; again, if that is happening right now."""
        if self._shut_down or key in self._waiting_since:
            return
        held = self._not_before.get(key, 0.0) - loop_time()
        if held > 0.0:
            self.add_after(key, held)
            return
        self._not_before.pop(key, None)
        self._cancel_timer(key)
        if key in self._working_since or key in self._resting:
            self._again.add(key)
            return
        self._waiting_since[key] = loop_time()
        self._ready.push(self._tenant_of(key), key)
        self._observer.added()
        self._news.set()

    def add_after(self, key: K, delay: float) -> None:
        """Have ``key`` processed in ``delay`` seconds; of several delays the one that ends first counts."""
        if delay <= 0.0:
            self.add(key)
            return
        if self._shut_down:
            return
        at = loop_time() + delay
        timer = self._timers.get(key)
        if timer is not None and timer.at <= at:
            return
        self._cancel_timer(key)
        handle = asyncio.get_running_loop().call_at(at, self._fire, key)
        self._timers[key] = _Timer(at, handle)

    def add_failed(self, key: K, *, at_least: float = 0.0) -> float:
        """Have ``key`` processed after a back-off that grows with each failure. Returns the delay in seconds.

        A change of the key may cut the back-off short, but not below ``at_least``: that is what the server asked for.
        """
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(at_least, self._backoff.delay(self._failures[key]))
        if at_least > 0.0:
            self._not_before[key] = loop_time() + at_least
        self._observer.retried()
        self.add_after(key, delay)
        return delay

    def failures(self, key: K) -> int:
        """How often in a row ``key`` has failed."""
        return self._failures.get(key, 0)

    def forget(self, key: K) -> None:
        """``key`` succeeded: the next failure is the first again."""
        self._failures.pop(key, None)
        self._not_before.pop(key, None)

    async def get(self) -> K:
        """The next key for which there is a place; the caller must call :meth:`done` with it. Raises QueueShutDown."""
        while (following := self._ready.pop(self._share.may_take)) is None:
            if self._shut_down:
                raise QueueShutDown
            self._news.clear()
            await self._news.wait()
        tenant, key = following
        self._share.take(tenant)
        now = loop_time()
        self._observer.started(waited=now - self._waiting_since.pop(key))
        self._working_since[key] = self._advanced_at[key] = now
        return key

    def done(self, key: K) -> None:
        """The pass over ``key`` is over."""
        self._share.give_back(self._tenant_of(key))
        self._news.set()
        self._observer.finished(worked=loop_time() - self._working_since.pop(key))
        del self._advanced_at[key]
        if self._rest > 0.0 and not self._shut_down:
            self._resting[key] = asyncio.get_running_loop().call_later(self._rest, self._rested, key)
        else:
            self._rested(key)

    def shut_down(self) -> None:
        """Give out no more keys; getters that wait get QueueShutDown."""
        self._shut_down = True
        self._ready.clear()
        for timer in self._timers.values():
            timer.handle.cancel()
        for handle in self._resting.values():
            handle.cancel()
        self._timers.clear()
        self._resting.clear()
        self._news.set()

    def _rested(self, key: K) -> None:
        self._resting.pop(key, None)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    def _fire(self, key: K) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()
