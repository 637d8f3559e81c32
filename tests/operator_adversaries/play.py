"""Plays a sample: an operator's engine at work in a cluster in memory, in virtual time.

Three jobs run, two of them in one namespace. The sample happens to the first; then a fourth job comes, and must run
like the others. Objects that were made stay there for the next operator, which meets them in its first list.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from unittest import mock

import msgspec

from builders import NOW
from dtj.api.json import JsonObject, dig, objects, text
from dtj.app.kopf_session import JobsBeside
from dtj.core.actions import Plan
from dtj.core.observed import Observed
from dtj.core.planner import plan
from dtj.core.platform import PLATFORM_OF_TFJOBS, JobAccess, Platform
from dtj.engine.engine import EngineSettings
from dtj.kube.clock import ServerClock
from dtj.kube.errors import ApiError, Gone
from dtj.kube.lease import Lease
from operator_adversaries.cluster import AFTER, BYSTANDER, HERS, LATE, PEER, THEIRS, VICTIM, Cluster
from operator_adversaries.places import raising
from operator_adversaries.sample import Sample, Submit
from operator_adversaries.wire import STARTS_WITHIN, Fault, MemoryGateway, written
from support.engine_harness import Harness
from support.fake_gateway import FakeGateway
from support.traced import lines_of
from support.virtual_time import VirtualTimeLoop, loop_time, settled

SETTINGS: Final = EngineSettings(workers=2, rest=0.05, relist_every=300.0)
SETTLES_WITHIN, QUIET, COMES_WITHIN = 150.0, 300.0, 150.0
"""Seconds: from the last act or fault until all is as it was, of the time in which nothing is written any more, and
until the last job runs."""

CPU_SECONDS: Final = 15
"""After which a sample hangs; each pod of a load takes a fiftieth of a second more."""

TRACED: Final = 480
"""Most pods of a load of whose plans the lines are counted, which takes ten times as long."""


class Hang(KeyboardInterrupt):
    """A sample takes too long. No supervisor catches it."""


@dataclass
class Facts:
    """What a sample has shown."""

    died: BaseException | None = None
    cut_off: bool = False
    """Whether it took more than ``CPU_SECONDS``."""

    states: dict[str, str] = field(default_factory=dict)
    same_pods: bool = True
    in_time: bool = True
    """Whether the late job ran although something that it does not need failed."""

    touched: list[str] = field(default_factory=list)
    """What is nobody's, and is another now."""

    lines: list[logging.LogRecord] = field(default_factory=list)
    defects: dict[str, float] = field(default_factory=dict)
    watch_ends: list[str] = field(default_factory=list)
    writes: Counter[str] = field(default_factory=Counter)
    """Of the quiet time, by what was written."""

    sizes: dict[str, int] = field(default_factory=dict)
    """Bytes of the largest object of each kind in memory."""

    unnamed: list[str] = field(default_factory=list)
    """Objects that are not known, and that no line, Event or condition names."""

    cost: int = 0
    """Lines of Python that the longest plan for a load runs."""

    standstill: float = 0.0
    """Seconds for which no call of a pass was answered."""

    lease_lost: str = ""

    longest: float = 0.0
    """Seconds of CPU for which the loop was held."""

    to_be_said: bool = False
    """Whether something was raised that nobody may take for an answer."""

    reached: bool = True
    """Whether the place that was to raise was come to."""


class _Loop(VirtualTimeLoop):
    """Measures for how long it is held; ``works`` says whether work takes time, too."""

    def __init__(self, *, works: bool = False) -> None:
        super().__init__()
        self.longest = 0.0
        self.last = time.thread_time()
        select = self._selector.select  # type: ignore[attr-defined]

        def measured(timeout: float | None = None) -> Any:
            held = time.thread_time() - self.last
            self.longest = max(self.longest, held)
            # Each turn takes a nanosecond at least: tasks that wait for less would wake each other without end.
            self._jumping.now += held if works else 1e-9
            found = select(timeout)
            self.last = time.thread_time()
            return found

        self._selector.select = measured  # type: ignore[attr-defined]


def play(sample: Sample) -> Facts:
    """Play it from its beginning to its end."""
    facts = Facts()
    random.seed(0)  # of waits and their jitter
    with caught(facts.lines), contextlib.ExitStack() as stack:
        calls = [stack.enter_context(raising(each.where, each.call, each.error)) for each in sample.raises]
        pods = sample.load.pods if sample.load is not None else 0
        loop = _Loop(works=pods > TRACED)
        before = signal.signal(signal.SIGPROF, _hang)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS + pods / 50)
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                stage = _Stage(sample, facts)
                runner.run(stage.run())
        except Hang:
            facts.cut_off, facts.writes = True, stage.wire.writes()
            loop.longest = max(loop.longest, time.thread_time() - loop.last)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)
        facts.longest = loop.longest
        reached = [raises for called, raises in zip(calls, sample.raises, strict=True) if len(called) >= raises.call]
        facts.reached = bool(reached) or not sample.raises
        facts.to_be_said = any(raises.error == "ZeroDivisionError" for raises in reached)
    return facts


def _hang(*_: object) -> None:
    raise Hang


@contextlib.contextmanager
def caught(lines: list[logging.LogRecord]) -> Iterator[None]:
    """Keep what is logged."""

    class Keeper(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record)

    logs, keeper = [logging.getLogger(name) for name in ("dtj", "asyncio")], Keeper(logging.WARNING)
    others = [log.propagate for log in logs]
    for log in logs:
        log.addHandler(keeper)
        log.propagate = False
    try:
        yield
    finally:
        for log, propagate in zip(logs, others, strict=True):
            log.removeHandler(keeper)
            log.propagate = propagate


class _Harness(Harness):
    """It goes by the API server's time, as the operator does."""

    facts: Facts | None = None
    """Where the lines of plans are counted."""

    def _plan(self, observed: Observed, now: datetime) -> Plan:
        if self.facts is None:
            return plan(observed, now)
        lines, actions = lines_of(lambda: plan(observed, now))
        self.facts.cost = max(self.facts.cost, lines)
        return actions

    def now(self) -> datetime:
        return self.gateway.clock.now()  # type: ignore[attr-defined,no-any-return]


def now() -> datetime:
    return NOW + timedelta(seconds=loop_time())


class _Stage(Cluster):
    """A cluster in which a sample is played."""

    def __init__(self, sample: Sample, facts: Facts) -> None:
        super().__init__(sample)
        self.facts = facts
        self.harness: Harness
        self.engine: asyncio.Task[None]
        """The operator that works now."""

        load = sample.load
        self.takes = 3 * load.pods / load.pace if load is not None else 0.0
        """Seconds in which the API server serves three calls for each pod of the load."""

    async def run(self) -> None:
        with mock.patch.object(asyncio, "open_connection", self.connect):
            kubelets = asyncio.create_task(self.kubelets())
            async with self._operator():
                await self._before()
            await self._acts_and_settles()
            kubelets.cancel()

    async def _before(self) -> None:
        self.submit(VICTIM, HERS, self.sample.shape)
        self.submit(PEER, HERS, "fixed")
        self.submit(BYSTANDER, THEIRS, "fixed")
        await self._wait(STARTS_WITHIN + self.takes)
        for name in (VICTIM, PEER, BYSTANDER):
            started = self.state(name) == "Running" or (name, self.sample.shape) == (VICTIM, "waits")
            spared = not self.sample.raises and all(fault.begin >= 0 for fault in self.sample.faults)
            if not started and spared:
                raise AssertionError(f"{name} does not run before anything happens: {self.status(name)}")
        self.pods = {name: self.pods_of(name) for name in (PEER, BYSTANDER) if self.state(name) == "Running"}
        await self._act()

    async def _act(self) -> None:
        """The acts, and the time after them."""
        self.wire.began_at = begin = loop_time()
        for fault in self.sample.faults:
            if fault.breaks:
                asyncio.get_running_loop().call_later(fault.begin, self.store.break_watches, Gone("too old"))
        for act in self.sample.acts:
            await self._wait(begin + act.at - loop_time())
            self.carry_out(act)
            await settled()
        if any(act == Submit(act.at, LATE, ()) for act in self.sample.acts) and all(
            map(_is_narrow, self.sample.faults)
        ):
            await self._wait(COMES_WITHIN)
            self.facts.in_time = self.state(LATE) == "Running"
        ends = [fault.end for fault in self.sample.faults if fault.seconds < 10**6]
        await self._wait(max([begin + max(ends, default=0.0) - loop_time(), 0.0]) + SETTLES_WITHIN + 2 * self.takes)
        self.wire.calls.clear()
        await self._wait(QUIET)
        self.facts.writes = self.wire.writes()
        if self.sample.raises or self.sample.faults:
            await self._comes_after()

    async def _acts_and_settles(self) -> None:
        """The next operator meets all of it in its first list."""
        if self.facts.died is not None or self.sample.raises or self.sample.faults:
            return
        async with self._operator():
            await self._wait(STARTS_WITHIN + self.takes)
            self.store.expire_watches()
            await self._comes_after()

    async def _comes_after(self) -> None:
        self.submit(AFTER, THEIRS, "fixed")
        await self._wait(COMES_WITHIN)
        facts, state = self.facts, self.harness.engine.state
        facts.states = {name: self.state(name) for name in (VICTIM, PEER, BYSTANDER, AFTER, LATE) if self.there(name)}
        facts.same_pods = all(self.pods_of(name) == pods for name, pods in self.pods.items())
        stores = {
            "pods": state.pods,
            "services": state.services,
            "claims": state.claims,
            "gangs": state.gangs,
            "policies": state.network_policies,
        }
        for kind, store in stores.items():
            facts.sizes[kind] = max(map(size, store._by_key.values()), default=0)  # type: ignore[attr-defined]
        facts.sizes["jobs"] = max(map(size, state.jobs), default=0)
        facts.sizes["caches"] = max(map(size, state.caches._by_uid.values()), default=0)
        facts.sizes["events"] = max(map(size, self.harness.engine._recorder._series), default=0)
        facts.touched = self.touched()
        facts.unnamed = list(self._unnamed(stores))

    def _unnamed(self, stores: dict[str, Any]) -> Iterator[str]:
        said = "\n".join(record.getMessage() for record in self.facts.lines)
        told = {text(dig(event, "regarding", "name")) for event in self.store._objects.get("events", {}).values()}
        for plural, kind in {"pods": "pods", "services": "services", "persistentvolumeclaims": "claims"}.items():
            for (namespace, name), body in self.store._objects.get(plural, {}).items():
                labels = dig(body, "metadata", "labels")
                selected = isinstance(labels, dict) and all(
                    key in labels for key, _, _ in (part.partition("=") for part in self.form.selector.split(","))
                )
                if (
                    selected
                    and "=" not in self.form.selector
                    and stores[kind].get((namespace, name)) is None
                    and f"{namespace}/{name}" not in said
                ):
                    yield f"{plural} {namespace}/{name}"
        for (namespace, name), body in self.store._objects.get(self.jobs.plural, {}).items():
            ours = dig(body, "spec", "managedBy") is None and dig(body, "spec", "runPolicy", "managedBy") is None
            silent = not isinstance(body.get("status"), dict) or not body["status"]
            if (
                ours
                and silent
                and name not in told
                and f"{namespace}/{name}" not in said
                and dig(body, "metadata", "deletionTimestamp") is None
            ):
                yield f"job {namespace}/{name}"

    # -- the operator ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _operator(self) -> AsyncIterator[None]:
        access = JobAccess(status=({"podSelector": {}},)) if self.sample.policies else None
        platform = PLATFORM_OF_TFJOBS if self.form.chart_section else Platform(job_access=access)
        gateway = MemoryGateway(self.wire)
        gateway.clock = ServerClock(local=now, monotonic=loop_time)
        self.harness = _Harness(gateway, None, SETTINGS, platform, self.form)  # type: ignore[arg-type]
        if (load := self.sample.load) is not None and load.pods <= TRACED:
            self.harness.facts = self.facts
        engine, watch = asyncio.create_task(self.harness.engine.run()), asyncio.create_task(self._watch())
        leads = asyncio.create_task(self._leads())
        self.engine = engine
        try:
            with contextlib.suppress(_Died):
                yield
        finally:
            watch.cancel()
            leads.cancel()
            if engine.done():
                self.facts.died = engine.exception() or AssertionError("the engine returned")
            for name, value in _defects(self.harness).items():
                self.facts.defects[name] = self.facts.defects.get(name, 0) + value
            self.harness.engine.stop()
            await asyncio.wait([engine], timeout=30.0)
            engine.cancel()
            await gateway.close()

    async def _leads(self) -> None:
        """Renew a lease next to the engine, and look for passes that stand still, as /healthz does."""
        lease = Lease(FakeGateway(), namespace=HERS, name="dtj", identity="a", now=now)
        await lease.acquire()
        holding = asyncio.create_task(lease.hold())
        try:
            while not holding.done():
                await asyncio.wait([holding], timeout=10.0)
                self.facts.standstill = max(self.facts.standstill, self.harness.engine.queue.longest_standstill())
            self.facts.lease_lost = str(holding.exception())
        finally:
            holding.cancel()

    async def _watch(self) -> None:
        """In place of kopf: the jobs as it gets and hands them on."""
        feed, jobs = self.harness.engine.feed, JobsBeside()

        def pass_on(kind: str | None, body: JsonObject) -> None:
            namespace, name, uid = (text(dig(body, "metadata", each)) for each in ("namespace", "name", "uid"))
            if kind == "DELETED":
                feed.remove((namespace, name), uid=uid)
            elif (job := jobs.take(uid)) is not None:
                feed.put(job)

        while True:
            try:
                listing = await self.store.list(self.jobs, namespace=None)
                head = {"kind": f"{self.jobs.kind}List", "apiVersion": self.jobs.api_version, "metadata": {}}
                told = jobs.page(written({**head, "items": [msgspec.Raw(item) for item in listing.items]}))
                for item in objects(told["items"]):
                    pass_on(None, item)
                feed.relist_soon()
                version = listing.resource_version
                async for event in self.store.watch(self.jobs, namespace=None, resource_version=version):
                    line = b'{"type":"%s","object":%s}' % (event.type.encode(), written(msgspec.Raw(event.object)))
                    if short := jobs.line(line):
                        told = json.loads(short)
                        pass_on(told["type"], told["object"])
            except ApiError:
                await asyncio.sleep(1.0)
            except Exception as error:  # noqa: BLE001 - it is to be reported
                self.facts.watch_ends.append(f"{type(error).__name__}: {error}"[:300])
                await asyncio.sleep(30.0)

    async def _wait(self, seconds: float) -> None:
        """Let time pass; an engine that has ended ends the sample."""
        if seconds > 0.0:
            await asyncio.wait([self.engine], timeout=seconds)
        if self.engine.done():
            raise _Died


def _is_narrow(fault: Fault) -> bool:
    """Whether a fault concerns nothing that the late job needs."""
    needless = ("workloads", "podgroups", "kueue.x-k8s.io", "scheduling.volcano.sh", "events", "events.k8s.io", "apis")
    return bool(fault.date) or fault.plural in needless or (fault.name.startswith(VICTIM) and fault.status > 0)


class _Died(Exception):
    """The engine has ended."""


def _defects(harness: Harness) -> dict[str, float]:
    registry = harness.engine._metrics.registry
    samples = [sample for metric in registry.collect() for sample in metric.samples]
    return {s.labels["part"]: s.value for s in samples if s.name == "dtj_defects_total" and s.value}


def size(value: Any) -> int:
    """About how many bytes a value keeps in memory, without what is shared by all."""
    seen: set[int] = set()
    total, left = 0, [value]
    while left:
        each = left.pop()
        if id(each) in seen or each is None or isinstance(each, type):
            continue
        seen.add(id(each))
        total += sys.getsizeof(each)
        if isinstance(each, dict):
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset):
            left += each
        else:
            slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
            left += [getattr(each, name) for name in slots if name.startswith("_") is False and hasattr(each, name)]
            left += list(getattr(each, "__dict__", {}).values())
    return total
