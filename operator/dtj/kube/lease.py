"""Leader election by a Lease (coordination.k8s.io/v1): of several operators, one works and the others stand by.

The promises, given that clocks run at the same speed, whatever they show:

- Nobody takes a lease that its holder may still believe to have. The holder gives up ``RENEW_DEADLINE`` seconds
  after it began its last successful renewal; the others wait ``DURATION`` seconds from when they saw that renewal.
- Times written by others are never compared with our clock: a record counts as renewed when it changes.
- A holder that is killed is followed within ``DURATION`` plus ``RETRY`` seconds, one that releases within ``RETRY``.

What an election cannot do is stop a process that is frozen for longer than ``DURATION`` and wakes up as a second
leader. That is harmless here: names are the idempotency key of what is created, and deletes name a UID.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NoReturn, TypeVar

from dtj.api.job import micro_time
from dtj.api.json import JsonObject, dig, fields_of, text
from dtj.api.printable import one_line
from dtj.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from dtj.kube.gateway import Gateway, Resource
from dtj.kube.waiting import Backoff, loop_time

log = logging.getLogger(__name__)

LEASES: Final = Resource("coordination.k8s.io/v1", "Lease", "leases")

RACES: Final = (AlreadyExists, Conflict, NotFound)
"""Somebody else was faster: no failure, look again."""

DURATION: Final = 15.0
"""Seconds for which others wait after the last renewal that they saw. The three times are those of Kubernetes' own
components."""

RENEW_DEADLINE: Final = 10.0
"""Seconds for which the holder goes on without a successful renewal; the rest of the duration is there to stop in."""

RETRY: Final = 2.0
"""Most seconds between two attempts to take the lease, or to renew it; the least are half of it."""

_PAUSE: Final = Backoff(base=RETRY, cap=RETRY)

LONGEST_DURATION: Final = 300.0
"""Seconds that a lease of another holder is believed to last. Ours last for seconds; anybody who may write the lease
could write one for decades, in which no operator would work."""

_MOST_TRANSITIONS: Final = 2**31 - 1
"""What ``leaseTransitions`` holds."""

_LONGEST_NAME: Final = 100

THROTTLED: Final = "training.dtj.dev/throttled"
"""Annotation by which the holder shows that the API server limits its calls: "true", or it is not there."""

T = TypeVar("T")


class LeaseLost(Exception):
    """We do not lead any more, or cannot know; whatever leads must stop at once."""


@dataclass(frozen=True, slots=True)
class _ObservedLease:
    """A record of another holder, and when we first saw it as it is (the loop's time)."""

    spec: JsonObject
    at: float


class Lease:
    """One candidate for the lease ``namespace/name``. ``identity`` must be unique among all processes."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        namespace: str,
        name: str,
        identity: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        throttled: Callable[[], bool] = lambda: False,
    ) -> None:
        """``throttled``: whether the API server limits our calls."""
        self._gateway = gateway
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._now = now
        self._observed: _ObservedLease | None = None
        self._renewed_at = 0.0
        self._complaint = ""
        self._throttled = throttled
        self.holder: str | None = None
        """The current leader, if known: an identity, empty for nobody, None before the first answer."""

    @property
    def leading(self) -> bool:
        """Whether the lease was ours when we last looked."""
        return self.holder == self._identity

    async def acquire(self) -> None:
        """Return as soon as the lease is ours. An API server that does not answer is waited for without end."""
        while not await self._attempted():
            await asyncio.sleep(self._until_next_attempt())
        log.info("leads now: holds lease %s as %s", self._title, self._identity)

    async def hold(self) -> NoReturn:
        """Renew the lease until cancelled. Raises LeaseLost if another has it, or it cannot be renewed in time."""
        while True:
            try:
                async with asyncio.timeout_at(self._renewed_at + RENEW_DEADLINE):
                    await self._renew()
            except TimeoutError as error:
                self.holder = ""
                why = self._complaint or "the process was held up"
                words = f"lease {self._title} was not renewed for {RENEW_DEADLINE:g} s: {why}"
                raise LeaseLost(words) from error

    async def release(self) -> None:
        """Give the lease up if it is ours, so that another need not wait. Call it when nothing works any more.

        A release that fails is no harm: the lease runs out.
        """
        try:
            lease = await self._in_time(self._gateway.get(LEASES, namespace=self._namespace, name=self._name))
            if _holder(lease) == self._identity:
                await self._in_time(self._write(lease, holder=""))
                log.info("released lease %s", self._title)
        except ApiError as error:
            log.warning("lease %s could not be released and must run out: %s", self._title, error.message)
        self.holder = ""

    @property
    def _title(self) -> str:
        return f"{self._namespace}/{self._name}"

    async def _renew(self) -> None:
        """Wait until it is time, and renew, as often as it takes."""
        while True:
            await asyncio.sleep(_PAUSE.delay(1))
            if await self._attempted():
                return
            if not self.leading:
                raise LeaseLost(f"lease {self._title} was taken by {_shown(self.holder or 'nobody')}")

    async def _attempted(self) -> bool:
        """Try once to take or renew the lease; a failure is logged once. Returns whether it succeeded."""
        try:
            taken = await self._in_time(self._attempt())
        except RACES:
            return False
        except ApiError as error:
            if error.message != self._complaint:
                log.warning("lease %s: %s; trying again", self._title, error.message)
            self._complaint = error.message
            return False
        self._complaint = ""
        return taken

    async def _attempt(self) -> bool:
        """Take or renew the lease. Returns False if another has it. Raises ApiError."""
        began = loop_time()
        lease: JsonObject = {}
        with suppress(NotFound):
            lease = _read(await self._gateway.get(LEASES, namespace=self._namespace, name=self._name))
        if lease and not self._is_ours_to_take(lease):
            return False
        await self._write(lease, holder=self._identity)
        self.holder, self._renewed_at = self._identity, began
        return True

    def _is_ours_to_take(self, lease: JsonObject) -> bool:
        """Whether no other operator can believe that it leads; records the holder."""
        holder = _holder(lease)
        spec = dig(lease, "spec")
        if self._observed is None or self._observed.spec != spec:
            self._observed = _ObservedLease(fields_of(spec), loop_time())
        if holder in ("", self._identity) or loop_time() >= self._runs_out_at(self._observed):
            return True
        if holder != self.holder and not self.leading:
            log.info("stands by: lease %s is held by %s", self._title, _shown(holder))
        self.holder = holder
        return False

    def _runs_out_at(self, observed: _ObservedLease) -> float:
        """When that holder's time is over, by our clock: the holder says how long it lasts."""
        seconds = observed.spec.get("leaseDurationSeconds")
        return observed.at + (min(seconds, LONGEST_DURATION) if isinstance(seconds, int) else DURATION)

    def _until_next_attempt(self) -> float:
        """Seconds to the next attempt: a usual pause, or less if the lease runs out until then."""
        pause = _PAUSE.delay(1)
        left = 0.0 if self._observed is None else self._runs_out_at(self._observed) - loop_time()
        return left if 0.0 < left < pause else pause

    async def _write(self, lease: JsonObject, *, holder: str) -> None:
        """Write the holder into ``lease`` if it still is as we have seen it; make it if it was not there.

        Raises ApiError, also if the answer does not show what was written.
        """
        spec, changes = self._spec(lease, holder=holder), self._annotations(lease)
        if lease:
            version = text(dig(lease, "metadata", "resourceVersion"))
            patch: JsonObject = {"metadata": {"resourceVersion": version, **changes}, "spec": spec}
            written = await self._gateway.patch(LEASES, namespace=self._namespace, name=self._name, patch=patch)
        else:
            metadata: JsonObject = {"name": self._name, "namespace": self._namespace, **changes}
            body: JsonObject = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": metadata,
                "spec": spec,
            }
            written = await self._gateway.create(LEASES, namespace=self._namespace, body=body)
        if _holder(_read(written)) != holder:
            raise Unavailable("the answer shows another holder than was written")

    def _annotations(self, lease: JsonObject) -> JsonObject:
        """What to change in the annotations of ``lease``, as a part of its metadata; nothing if they are right."""
        shown = "true" if self._throttled() else None
        return {"annotations": {THROTTLED: shown}} if dig(lease, "metadata", "annotations", THROTTLED) != shown else {}

    def _spec(self, lease: JsonObject, *, holder: str) -> JsonObject:
        moment = micro_time(self._now())
        spec: JsonObject = {
            "holderIdentity": holder or None,
            "leaseDurationSeconds": int(DURATION),
            "renewTime": moment,
        }
        if holder and holder != _holder(lease):
            spec["acquireTime"], spec["leaseTransitions"] = moment, 0
            transitions = dig(lease, "spec", "leaseTransitions")
            if isinstance(transitions, int) and transitions < _MOST_TRANSITIONS:
                spec["leaseTransitions"] = transitions + 1
        return spec

    async def _in_time(self, call: Coroutine[Any, Any, T]) -> T:
        """``call``, with half the deadline for it: one connection that hangs must not cost the lease."""
        seconds = RENEW_DEADLINE / 2
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as error:
            raise Unavailable(f"no answer within {seconds:g} s") from error


def _read(answer: JsonObject) -> JsonObject:
    """A lease as the API server answers it. What a proxy answers in its place is no lease that nobody holds."""
    if not text(dig(answer, "metadata", "resourceVersion")):
        raise Unavailable("the answer is no lease")
    return answer


def _shown(holder: str) -> str:
    """A holder in a line of the log."""
    return one_line(holder, _LONGEST_NAME)


def _holder(lease: JsonObject) -> str:
    return text(dig(lease, "spec", "holderIdentity"))
