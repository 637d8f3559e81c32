"""Watching and waiting: objects as they are now, and again after each change, across broken connections.

The operator's informer waits out whatever happens; who asks from a terminal or a notebook wants to know at once
what cannot work, and after some minutes what no longer does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, TypeVar

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.client.errors import ConditionUnreachable, InvalidRequest
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Gone, TooManyRequests, Unavailable
from dtj.kube.gateway import Resource, WatchEvent
from dtj.kube.records import decode_plain
from dtj.kube.waiting import Backoff, loop_time

OUTAGE_SECONDS: Final = 300.0
"""How long an API server that has answered before may be silent; managed control planes are upgraded in minutes."""

T = TypeVar("T")


async def snapshots(
    gateway: KubeGateway,
    resource: Resource,
    *,
    decode: Callable[[bytes], T],
    namespace: str | None,
    selector: str = "",
    field_selector: str = "",
) -> AsyncGenerator[Mapping[str, T], None]:
    """The objects by UID: now, and after each change, without end.

    States in between may be missed, the newest never. Raises ApiError at once where the first list is refused; later
    an outage is waited out for :data:`OUTAGE_SECONDS`.
    """
    outage = _Outage()
    while True:
        try:
            listing = await gateway.list(
                resource, namespace=namespace, selector=selector, field_selector=field_selector
            )
        except ApiError as error:
            await outage.wait(error)
            continue
        outage.answered()
        found = {decode_plain(item).metadata.uid: decode(item) for item in listing.items}
        yield dict(found)
        events = gateway.watch(
            resource,
            namespace=namespace,
            selector=selector,
            field_selector=field_selector,
            resource_version=listing.resource_version,
        )
        try:
            async with aclosing(events):
                async for event in events:
                    outage.over()
                    if event.type != "BOOKMARK":
                        _apply(event, found, decode)
                        yield dict(found)
        except ApiError as error:
            if error.status != HTTPStatus.UNAUTHORIZED:  # the next list has a fresh token, or says that there is none
                await outage.wait(error)


def _apply(event: WatchEvent, found: dict[str, T], decode: Callable[[bytes], T]) -> None:
    uid = decode_plain(event.object).metadata.uid
    if event.type == "DELETED":
        found.pop(uid, None)
    else:
        found[uid] = decode(event.object)


class _Outage:
    """Since when the API server has not answered, and whether to go on asking."""

    def __init__(self) -> None:
        self._backoff = Backoff(base=0.2, cap=10.0)
        self._failures = 0
        self._answered_at: float | None = None

    def answered(self) -> None:
        """A list came."""
        self._answered_at = loop_time()

    def over(self) -> None:
        """The watch lives, too."""
        self._answered_at = loop_time()
        self._failures = 0

    async def wait(self, error: ApiError) -> None:
        """Some time, before the next attempt. Raises ``error`` where another one makes no sense."""
        passing = isinstance(error, Gone | Unavailable | TooManyRequests)
        if not passing or self._answered_at is None or loop_time() - self._answered_at > OUTAGE_SECONDS:
            raise error
        self._failures += 1
        await asyncio.sleep(self._backoff.delay(self._failures, at_least=error.retry_after))


# -- what can be waited for -------------------------------------------------------------------------------------

_KNOWN: Final = {kind.lower(): kind for kind in Condition}
_ENDS: Final = (Condition.COMPLETE, Condition.FAILED)


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """A condition to become True, or where it is None, the end of the job, whichever it is."""

    condition: Condition | None

    @classmethod
    def parse(cls, word: str | None) -> WaitCondition:
        """``complete``, ``failed``, ``ready`` or any condition of a job, in any case of letters, which may follow
        ``condition=`` as with kubectl; None is either end.

        Raises InvalidRequest.
        """
        if word is None:
            return cls(None)
        found = _KNOWN.get(word.lower().removeprefix("condition="))
        if found is None:
            known = ", ".join(sorted(_KNOWN))
            raise InvalidRequest(f'"{word}" is not a condition of a job: wait for one of {known}')
        return cls(found)

    def met(self, job: Job) -> bool:
        """Whether it is so. Raises ConditionUnreachable where it cannot be any more.

        A condition that was computed before the job was changed, such as PodsReady right after a resume, says nothing
        about the job as it is wanted now; ends are for good.
        """
        if self.condition is None:
            return job.status.terminal
        condition = job.status.when_true(self.condition)
        if condition is not None:
            current = not condition.observed_generation or condition.observed_generation >= job.generation
            if current or self.condition in _ENDS:
                return True
        if job.status.terminal:
            raise ConditionUnreachable(f"{job.name}: has ended ({job.status.state}), and will never be {self}", job=job)
        return False

    def __str__(self) -> str:
        return str(self.condition) if self.condition is not None else "at its end"


def where_it_is(job: Job) -> str:
    """The job's state in a few words: ``Starting (1/2 ready): Unschedulable``."""
    status = job.status
    if not status.state:
        return "new: no operator has seen it yet (is one running?)"
    ready = f" ({status.ready} ready)" if status.ready else ""
    return f"{status.state}{ready}" + (f": {status.reason}" if status.reason else "")
