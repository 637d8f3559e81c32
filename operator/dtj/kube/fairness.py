"""Fair shares of what is scarce: workers, calls of the API server in flight, and questions to pods.

Tenants are namespaces. Nobody is interrupted for another, so there must be a free place when a new tenant comes: a
tenant may take one only while it holds fewer than are free. One alone gets half of all places, a second one half of the
rest, and so on: the dynamic thresholds of Choudhury and Hahne (IEEE/ACM Transactions on Networking 6(2), 1998) with a
factor of 1. Waiting callers take turns, tenant by tenant.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, NoReturn, TypeVar

T = TypeVar("T", bound=Hashable)
V = TypeVar("V")
W = TypeVar("W", bound=Hashable)


class FairShare(Generic[T]):
    """This many places, and which tenant holds how many of them."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._held: Counter[T] = Counter()

    def may_take(self, tenant: T) -> bool:
        """Whether there is a place for this tenant."""
        return self._held[tenant] < self._free

    def take(self, tenant: T) -> None:
        self._free -= 1
        self._held[tenant] += 1

    def give_back(self, tenant: T) -> None:
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]


class TakingTurns(Generic[T, V]):
    """A queue for each tenant; the next value is that of the tenant that has waited longest since its last one."""

    def __init__(self) -> None:
        self._waiting: dict[T, deque[V]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, tenant: T, value: V) -> None:
        self._waiting.setdefault(tenant, deque()).append(value)
        self._length += 1

    def pop(self, may_take: Callable[[T], bool]) -> tuple[T, V] | None:
        """The next value of a tenant that may take a place; None if there is none."""
        for tenant, values in self._waiting.items():
            if may_take(tenant):
                value = values.popleft()
                del self._waiting[tenant]
                if values:
                    self._waiting[tenant] = values  # behind all others
                self._length -= 1
                return tenant, value
        return None

    def clear(self) -> None:
        self._waiting.clear()
        self._length = 0


class FairSlots:
    """A semaphore whose slots are shared between tenants."""

    def __init__(self, slots: int) -> None:
        self._share: FairShare[str] = FairShare(slots)
        self._queue: TakingTurns[str, asyncio.Future[None]] = TakingTurns()

    @asynccontextmanager
    async def of(self, tenant: str) -> AsyncIterator[None]:
        """Hold a slot within the block; wait for one before."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.push(tenant, turn)
        self._let_in()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._share.give_back(tenant)
            else:
                turn.cancel()
            self._let_in()

    def _let_in(self) -> None:
        while (following := self._queue.pop(self._share.may_take)) is not None:
            tenant, turn = following
            if not turn.done():  # else its caller was cancelled while it waited
                self._share.take(tenant)
                turn.set_result(None)


class FairWork(Generic[W]):
    """Things to do, each in a task of its own, and none twice at the same time. Tenants take turns, and share places;
    between the beginnings of two there is a pause."""

    def __init__(self, work: Callable[[W], Awaitable[None]], *, places: int, pause: float = 0.0) -> None:
        self._work = work
        self._pause = pause
        self._share: FairShare[str] = FairShare(places)
        self._waiting: TakingTurns[str, W] = TakingTurns()
        self._undone: set[W] = set()
        self._news = asyncio.Event()

    def add(self, tenant: str, value: W) -> None:
        """Have this done, unless it is about to be."""
        if value not in self._undone:
            self._undone.add(value)
            self._waiting.push(tenant, value)
            self._news.set()

    async def run(self, look: Callable[[], None], *, every: float) -> NoReturn:
        """Do what there is until cancelled. ``look``, which adds it, is called each time that so many seconds are over,
        also while much is left to do."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_repeated(look, every))
            while True:
                while not self._undone:
                    await self._next_news()
                await self.until_done()

    async def until_done(self) -> None:
        """Do all that there is, and what is added meanwhile."""
        async with asyncio.TaskGroup() as group:
            while self._undone:
                following = self._waiting.pop(self._share.may_take)
                if following is None:
                    await self._next_news()
                    continue
                self._share.take(following[0])
                group.create_task(self._do(*following))
                await asyncio.sleep(self._pause)

    async def _do(self, tenant: str, value: W) -> None:
        try:
            await self._work(value)
        finally:
            self._share.give_back(tenant)
            self._undone.discard(value)
            self._news.set()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()


async def _repeated(look: Callable[[], None], every: float) -> NoReturn:
    while True:
        await asyncio.sleep(every)
        look()
