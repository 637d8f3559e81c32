"""Leader election by a Lease (coordination.k8s.io/v1): of several operators, one works and the others stand by.

The promises, given that clocks run at the same speed, whatever they show:

- Nobody takes a lease that its holder may still believe to have. The holder gives up ``renew_deadline`` seconds
  after it began its last successful renewal; the others wait ``duration`` seconds from when they saw that renewal.
- Times written by others are never compared with our clock: a record counts as renewed when it changes.
- A holder that is killed is followed within ``duration`` plus ``retry`` seconds, one that releases within ``retry``.

What an election cannot do is stop a process that is frozen for longer than ``duration`` and wakes up as a second
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
from dtj.kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable
from dtj.kube.gateway import Gateway, Resource
from dtj.kube.waiting import Backoff, loop_time

log = logging.getLogger(__name__)

LEASES: Final = Resource("coordination.k8s.io/v1", "Lease", "leases")

RACES: Final = (AlreadyExists, Conflict, NotFound)
"""Somebody else was faster: no failure, look again."""

WANTED_BY: Final = "training.dtj.dev/wanted-by"
"""Annotation in which another candidate asks the holder to release the lease. The holder's next renewal removes it."""

SHARDS: Final = "training.dtj.dev/shards"
"""Annotation in which the holder writes into how many shards it divides the namespaces, if they are more than one."""

THROTTLED: Final = "training.dtj.dev/throttled"
"""Annotation by which the holder shows that the API server limits its calls: "true", or it is not there."""

T = TypeVar("T")


class LeaseLost(Exception):
    """We do not lead any more, or cannot know; whatever leads must stop at once."""


class ShardsDiffer(Exception):
    """The holder of a lease divides the namespaces into another number of shards than we do."""


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Times in seconds; the defaults are those of Kubernetes' own components."""

    duration: float = 15.0
    """How long others wait after the last renewal that they saw."""

    renew_deadline: float = 10.0
    """How long the holder goes on without a successful renewal; the rest of ``duration`` is there to stop in."""

    retry: float = 2.0
    """Longest time between two attempts to take the lease, or to renew it; the shortest is half of it."""


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
        settings: LeaseSettings | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        patience: Callable[[], float] = lambda: 0.0,
        asks: Callable[[], bool] = lambda: False,
        shards: int = 1,
        throttled: Callable[[], bool] = lambda: False,
    ) -> None:
        """``patience``: for how many seconds a lease that nobody holds is left to others. ``asks``: whether to ask the
        holder to release it. ``shards``: into how many shards we divide the namespaces. ``throttled``:
        whether the API server limits our calls."""
        self._gateway = gateway
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._settings = settings or LeaseSettings()
        self._now = now
        self._pause = Backoff(base=self._settings.retry, cap=self._settings.retry)
        self._observed: _ObservedLease | None = None
        self._renewed_at = 0.0
        self._complaint = ""
        self._difference = ""
        self._patience = patience
        self._asks = asks
        self._shards = shards
        self._throttled = throttled
        self._free_since: float | None = None
        self.wanted = asyncio.Event()
        """Set while we hold the lease and another candidate has asked for it."""

        self.holder: str | None = None
        """The current leader, if known: an identity, empty for nobody, None before the first answer."""

    @property
    def leading(self) -> bool:
        """Whether the lease was ours when we last looked."""
        return self.holder == self._identity

    async def acquire(self) -> None:
        """Return as soon as the lease is ours. An API server that does not answer is waited for without end.

        Raises ShardsDiffer if we have several shards and the holder has another number of them.
        """
        while not await self._attempted():
            await asyncio.sleep(self._until_next_attempt())
        self.wanted.clear()
        log.info("leads now: holds lease %s as %s", self._title, self._identity)

    async def hold(self) -> NoReturn:
        """Renew the lease until cancelled. Raises LeaseLost if another has it, or it cannot be renewed in time."""
        while True:
            try:
                async with asyncio.timeout_at(self._renewed_at + self._settings.renew_deadline):
                    await self._renew()
            except TimeoutError as error:
                self.holder = ""
                why = self._complaint or "the process was held up"
                seconds = self._settings.renew_deadline
                raise LeaseLost(f"lease {self._title} was not renewed for {seconds:g} s: {why}") from error

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
            await asyncio.sleep(self._pause.delay(1))
            if await self._attempted():
                return
            if not self.leading:
                raise LeaseLost(f"lease {self._title} was taken by {self.holder or 'nobody'}")

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
        """Take or renew the lease. Returns False if another has it. Raises ApiError and ShardsDiffer."""
        began = loop_time()
        lease: JsonObject = {}
        with suppress(NotFound):
            lease = await self._gateway.get(LEASES, namespace=self._namespace, name=self._name)
        if lease and not self._is_ours_to_take(lease):
            self._compare_shards(lease)
            await self._ask_for(lease)
            return False
        if self._is_left_to_others():
            return False
        if self.leading and text(dig(lease, "metadata", "annotations", WANTED_BY)):
            self.wanted.set()
        await self._write(lease, holder=self._identity)
        self.holder, self._renewed_at, self._free_since = self._identity, began, None
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
            log.info("stands by: lease %s is held by %s", self._title, holder)
        self.holder, self._free_since = holder, None
        return False

    def _compare_shards(self, lease: JsonObject) -> None:
        """Raise ShardsDiffer if the holder has another number of shards and we have several.

        With one, wait: in a rolling update back to one shard, the new operator starts before the old ones end.
        """
        theirs = text(dig(lease, "metadata", "annotations", SHARDS)) or "1"
        if theirs == str(self._shards):
            return
        difference = f"lease {self._title} is held with --shards={theirs} by {_holder(lease)}"
        if self._shards > 1:
            raise ShardsDiffer(f"{difference}, but --shards is {self._shards} here: give all operators the same number")
        if difference != self._difference:
            log.warning("%s; this operator, with one shard, waits for the lease", difference)
            self._difference = difference

    def _is_left_to_others(self) -> bool:
        """Whether others, who have fewer leases, get more time to take this one, which nobody holds."""
        if self._free_since is None:
            self._free_since = loop_time()
        if self.leading or loop_time() >= self._free_since + self._patience():
            return False
        self.holder = ""
        return True

    async def _ask_for(self, lease: JsonObject) -> None:
        """Ask the holder to release the lease, once until it has seen that."""
        if self._asks() and not text(dig(lease, "metadata", "annotations", WANTED_BY)):
            metadata = {"resourceVersion": text(dig(lease, "metadata", "resourceVersion"))}
            patch: JsonObject = {"metadata": {**metadata, "annotations": {WANTED_BY: self._identity}}}
            await self._gateway.patch(LEASES, namespace=self._namespace, name=self._name, patch=patch)

    def _runs_out_at(self, observed: _ObservedLease) -> float:
        """When that holder's time is over, by our clock: the holder says how long it lasts."""
        seconds = observed.spec.get("leaseDurationSeconds")
        return observed.at + (seconds if isinstance(seconds, int) else self._settings.duration)

    def _until_next_attempt(self) -> float:
        """Seconds to the next attempt: a usual pause, or less if the lease runs out or is left to others until then."""
        pause = self._pause.delay(1)
        moments = [] if self._observed is None else [self._runs_out_at(self._observed)]
        if self._free_since is not None:
            moments.append(self._free_since + self._patience())
        return min((left for moment in moments if 0.0 < (left := moment - loop_time()) < pause), default=pause)

    async def _write(self, lease: JsonObject, *, holder: str) -> None:
        """Write the holder into ``lease`` if it still is as we have seen it; make it if it was not there."""
        spec, changes = self._spec(lease, holder=holder), self._annotations(lease)
        if lease:
            version = text(dig(lease, "metadata", "resourceVersion"))
            patch: JsonObject = {"metadata": {"resourceVersion": version, **changes}, "spec": spec}
            await self._gateway.patch(LEASES, namespace=self._namespace, name=self._name, patch=patch)
        else:
            metadata: JsonObject = {"name": self._name, "namespace": self._namespace, **changes}
            body: JsonObject = {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": metadata,
                "spec": spec,
            }
            await self._gateway.create(LEASES, namespace=self._namespace, body=body)

    def _annotations(self, lease: JsonObject) -> JsonObject:
        """What to change in the annotations of ``lease``, as a part of its metadata; nothing if they are right."""
        wanted = {
            WANTED_BY: None,
            SHARDS: str(self._shards) if self._shards > 1 else None,
            THROTTLED: "true" if self._throttled() else None,
        }
        changes: JsonObject = {k: v for k, v in wanted.items() if dig(lease, "metadata", "annotations", k) != v}
        return {"annotations": changes} if changes else {}

    def _spec(self, lease: JsonObject, *, holder: str) -> JsonObject:
        moment = micro_time(self._now())
        spec: JsonObject = {
            "holderIdentity": holder or None,
            "leaseDurationSeconds": int(self._settings.duration),
            "renewTime": moment,
        }
        if holder and holder != _holder(lease):
            transitions = dig(lease, "spec", "leaseTransitions")
            spec["acquireTime"] = moment
            spec["leaseTransitions"] = transitions + 1 if isinstance(transitions, int) else 0
        return spec

    async def _in_time(self, call: Coroutine[Any, Any, T]) -> T:
        """``call``, with half the deadline for it: one connection that hangs must not cost the lease."""
        seconds = self._settings.renew_deadline / 2
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError as error:
            raise Unavailable(f"no answer within {seconds:g} s") from error


def _holder(lease: JsonObject) -> str:
    return text(dig(lease, "spec", "holderIdentity"))
