"""Operators that stand for election while others write the lease: composed at random, played in memory, and judged.

The API server stores of a lease what its types hold: integers of 32 bits, times, and texts of any length. A process of
an operator that loses the lease ends, and is started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from builders import at
from dtj.api.json import JsonObject, dig
from dtj.kube.clock import ServerClock
from dtj.kube.errors import ApiError
from dtj.kube.lease import DURATION, LEASES, LONGEST_DURATION, RENEW_DEADLINE, RETRY, Lease, LeaseLost
from operator_adversaries import extremes, troubles
from operator_adversaries.cluster import edited
from operator_adversaries.extremes import Many, Row
from operator_adversaries.play import caught, now
from operator_adversaries.sample import Path
from operator_adversaries.wire import Fault, MemoryGateway, Wire
from support.fake_gateway import FakeGateway
from support.virtual_time import loop_time, virtual_time

NAME: Final = "dtj"
LOOKS_EVERY: Final = 0.25
LEADS_WITHIN: Final = LONGEST_DURATION + DURATION + 3 * RENEW_DEADLINE
"""Seconds from the last act until one operator leads, whatever the lease says."""

NOTICES_WITHIN: Final = RETRY + LOOKS_EVERY
"""Seconds until a holder whose lease others wrote or deleted knows it. Until then there may be two."""

LONGEST_LINE: Final = 2_000


@dataclass(frozen=True)
class Written:
    """Somebody writes the lease: these values at these places."""

    at: float
    edits: tuple[tuple[Path, Any], ...]


@dataclass(frozen=True)
class Deleted:
    """Somebody deletes the lease; ``stays`` where a finalizer holds it."""

    at: float
    stays: bool = False


@dataclass(frozen=True)
class Taken:
    """Somebody who is no operator of ours holds the lease, and renews it every second, so many times."""

    at: float
    duration: int
    times: int


@dataclass(frozen=True)
class Ended:
    """An operator is killed, or stopped, and starts again after so many seconds."""

    at: float
    operator: int
    killed: bool
    back: float


Act = Written | Deleted | Taken | Ended


@dataclass(frozen=True)
class Election:
    """What happens to a lease for which so many operators stand."""

    operators: int = 2
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()


@dataclass
class Seen:
    """What an election has shown."""

    errors: list[str] = field(default_factory=list)
    written: list[float] = field(default_factory=list)
    """When others wrote or deleted the lease."""

    together: list[float] = field(default_factory=list)
    """When two led."""

    leaders: int = 0
    """At the end."""

    led: bool = False
    """Whether anybody led before the first act."""

    lines: list[logging.LogRecord] = field(default_factory=list)


# -- composed ----------------------------------------------------------------------------------------------------------


def compose(seed: int) -> Election:
    """The election of a seed."""
    rng = random.Random(seed)
    acts = sorted((_act(rng) for _ in range(rng.choice((1, 2, 4)))), key=lambda act: act.at)
    faults = tuple(_fault(rng) for _ in range(rng.choice((0, 0, 0, 1, 2))))
    return Election(rng.choice((1, 2, 2, 3)), tuple(acts), faults)


def _act(rng: random.Random) -> Act:
    when = round(rng.uniform(0, 60), 2)
    match rng.choices(("written", "deleted", "taken", "ended"), (6, 1, 2, 2))[0]:
        case "deleted":
            return Deleted(when, rng.random() < 0.3)
        case "taken":
            return Taken(when, rng.choice((1, 10, 15, 60, 3600, 2**31 - 1)), rng.choice((1, 5, 60)))
        case "ended":
            return Ended(when, rng.randrange(3), rng.random() < 0.7, rng.choice((0.0, 1.0, 20.0)))
    return Written(when, tuple(_edit(rng) for _ in range(rng.choice((1, 1, 2, 3)))))


def _edit(rng: random.Random) -> tuple[Path, Any]:
    places: dict[Path, tuple[Any, ...]] = {
        ("spec", "holderIdentity"): (
            None,
            "",
            "somebody",
            "operator-0",
            "\n\x1b[31m",
            Many("x", 1_400_000),
            _text(rng),
        ),
        ("spec", "leaseDurationSeconds"): (None, 1, 10, 15, 60, 3600, 2**31 - 1),
        ("spec", "leaseTransitions"): (None, 0, 1, 2**31 - 2, 2**31 - 1),
        ("spec", "renewTime"): (None, *extremes.TIMES, "0000-01-01T00:00:00.000000Z"),
        ("spec", "acquireTime"): (None, *extremes.TIMES),
        ("spec", "strategy"): (None, "OldestEmulationVersion", "a.dev/x"),
        ("spec", "preferredHolder"): (None, "somebody"),
        ("spec",): (None, {}),
        ("metadata", "annotations"): (None, {}, {"training.dtj.dev/throttled": _text(rng)}, {"note": _text(rng)}),
        ("metadata", "labels"): (None, {"training.dtj.dev/job-name": "x"}),
        ("metadata", "ownerReferences"): (Row({"uid": "x", "name": "x", "kind": "x", "apiVersion": "v1"}, 3_000),),
    }
    path = rng.choice(sorted(places))
    return path, rng.choice(places[path])


def _text(rng: random.Random) -> Any:
    return extremes.text(rng, most=250_000)


def _fault(rng: random.Random) -> Fault:
    found = troubles.fault(rng)
    kept = {"verb": rng.choice(("", "get", "patch", "create")), "plural": rng.choice(("", "leases")), "name": ""}
    return Fault(
        **{**vars(found), **kept, "begin": max(found.begin, 0.0), "seconds": min(found.seconds, 60.0), "drops": ""}
    )


# -- played ------------------------------------------------------------------------------------------------------------


class _Server(FakeGateway):
    """It refuses what the types of a Lease cannot hold."""

    def _announce(self, resource: Any, event: Any, body: JsonObject) -> JsonObject:
        for name in ("leaseDurationSeconds", "leaseTransitions"):
            value = dig(body, "spec", name)
            if isinstance(value, int) and not 0 <= value < 2**31:
                raise ApiError(f"cannot unmarshal number {value} into LeaseSpec.spec.{name} of type int32", status=400)
        return super()._announce(resource, event, body)


class _Operator:
    """A process that stands for election, leads, and ends with the lease; it is started again then."""

    def __init__(self, name: str, wire: Wire, seen: Seen) -> None:
        self.name, self.wire, self.seen = name, wire, seen
        self.leads = False
        self.lease: Lease
        self.starts = 0
        self.task = asyncio.create_task(self._runs(0.0))

    async def _runs(self, after: float) -> None:
        await asyncio.sleep(after)
        while True:
            gateway = MemoryGateway(self.wire)
            gateway.clock = ServerClock(local=now, monotonic=loop_time)
            self.starts += 1
            identity = f"{self.name}_{self.starts}"
            self.lease = Lease(gateway, namespace="default", name=NAME, identity=identity, now=gateway.clock.now)
            try:
                await self.lease.acquire()
                self.leads = True
                await self.lease.hold()
            except LeaseLost:
                self.leads = False
                await asyncio.sleep(1.0)
            except Exception as error:  # noqa: BLE001 - it is to be reported
                self.seen.errors.append(f"{type(error).__name__}: {error}"[:300])
                await asyncio.sleep(1.0)
            finally:
                self.leads = False

    async def ends(self, *, killed: bool, back: float) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])
        if not killed:
            try:
                await self.lease.release()
            except Exception as error:  # noqa: BLE001 - it is to be reported
                self.seen.errors.append(f"release: {type(error).__name__}: {error}"[:300])
        self.task = asyncio.create_task(self._runs(back))


def play(election: Election) -> Seen:
    """Play it from its beginning to its end."""
    seen = Seen()
    random.seed(0)  # of waits and their jitter
    with caught(seen.lines):
        virtual_time(_play)(election, seen)
    return seen


async def _play(election: Election, seen: Seen) -> None:
    server = _Server()
    wire = Wire(server, faults=election.faults)
    wire.began_at = begin = 10.0
    operators = [_Operator(f"operator-{index}", wire, seen) for index in range(election.operators)]
    look = asyncio.create_task(_look(operators, seen))
    await asyncio.sleep(begin)
    seen.led = any(operator.leads for operator in operators)
    for act in election.acts:
        await asyncio.sleep(max(begin + act.at - loop_time(), 0.0))
        await _carry_out(act, server, operators, seen)
    ends = max((begin + fault.end for fault in election.faults), default=0.0)
    await asyncio.sleep(max(ends - loop_time(), 0.0) + LEADS_WITHIN)
    seen.leaders = sum(operator.leads for operator in operators)
    for task in (look, *(operator.task for operator in operators)):
        task.cancel()


async def _look(operators: list[_Operator], seen: Seen) -> None:
    while True:
        await asyncio.sleep(LOOKS_EVERY)
        if sum(operator.leads for operator in operators) > 1:
            seen.together.append(loop_time())


async def _carry_out(act: Act, server: FakeGateway, operators: list[_Operator], seen: Seen) -> None:
    if not isinstance(act, Ended):
        seen.written.append(loop_time())
    there = server._of(LEASES).get(("default", NAME))
    match act:
        case Written(edits=edits):
            with contextlib.suppress(ApiError):
                server.put(LEASES, edited(there or {"metadata": {"name": NAME}}, edits))
        case Deleted(stays=stays) if there is not None:
            if stays:
                deletion = {"deletionTimestamp": at(loop_time()), "finalizers": ["example.com/stays"]}
                server.put(LEASES, {**there, "metadata": {**there["metadata"], **deletion}})  # type: ignore[dict-item]
            else:
                server.remove(LEASES, NAME)
        case Taken(duration=duration, times=times):
            for _ in range(times):
                spec: JsonObject = {"holderIdentity": "somebody", "leaseDurationSeconds": duration}
                server.put(LEASES, {"metadata": {"name": NAME}, "spec": {**spec, "renewTime": at(loop_time())}})
                seen.written.append(loop_time())
                await asyncio.sleep(1.0)
        case Ended(operator=number, killed=killed, back=back):
            await operators[number % len(operators)].ends(killed=killed, back=back)


# -- judged ------------------------------------------------------------------------------------------------------------


def faults_of(election: Election, seen: Seen) -> Iterator[str]:
    """What an election has shown that must not be."""
    yield from seen.errors
    if not seen.led:
        yield "nobody led before anything happened"
    if seen.leaders != 1:
        yield f"{seen.leaders} operators lead {LEADS_WITHIN:.0f} s after the last act"
    notices = RENEW_DEADLINE if election.faults else NOTICES_WITHIN
    for moment in seen.together:
        if not any(0.0 <= moment - each <= notices for each in seen.written):
            yield f"two lead {moment - 10.0:.2f} s after the beginning of the acts"
            break
    for record in seen.lines:
        if record.exc_info or record.levelno >= logging.ERROR:
            yield f"it is logged: {record.getMessage()[:300]}"
        if len(record.getMessage()) > LONGEST_LINE:
            yield f"a line of {len(record.getMessage()):,} characters: {record.getMessage()[:100]}"
