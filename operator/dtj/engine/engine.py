"""The engine, assembled: everything between a Gateway and a plan function.

The operator feeds it the jobs that kopf watches, the local runner the one job of a manifest. Pods, Services and
claims it watches itself, through the Gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from dtj.api.form import DTJ, Form
from dtj.core.actions import Plan
from dtj.core.observed import Child, GangObject, Observed, Pod
from dtj.core.platform import Platform
from dtj.engine.child_store import C, ChildStore, job_of
from dtj.engine.controller import Controller, PlanFunction
from dtj.engine.creation import Creator
from dtj.engine.executor import Executor
from dtj.engine.expectations import Expectation, Operation, told
from dtj.engine.feed import JobFeed
from dtj.engine.gang_informers import Gangs
from dtj.engine.metrics import Metrics
from dtj.engine.pod_events import PodEventReader
from dtj.engine.progress import ProgressReader, StackRequests
from dtj.engine.queue import WorkQueue
from dtj.engine.record_guard import RecordGuard
from dtj.engine.state import ClusterState
from dtj.engine.step_timings import StragglerFinder
from dtj.engine.supervision import Supervisor
from dtj.kube.events import EventRecorder
from dtj.kube.gateway import CLAIMS, NETWORK_POLICIES, PODS, SERVICES, Gateway, Resource, jobs_of
from dtj.kube.informer import Change, Informer
from dtj.kube.observed import claim_from, network_policy_from, pod_from, service_from
from dtj.kube.records import Key, Record, decode_plain, decode_pod, decode_service
from dtj.kube.waiting import Backoff

R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine works; the defaults suit a cluster."""

    workers: int = 32
    """Jobs of one namespace that are worked on at the same time. There are as many workers again for the others."""

    rest: float = 0.05
    """Least seconds between two passes over a job, so that a burst of pod events costs few passes."""

    relist_every: float | None = 300.0
    """Seconds between two full lists of jobs, the safety net under the watch that feeds them; None for never."""

    stop_within: float = 5.0
    """Seconds that passes which have begun, and events, get to finish when the engine stops."""


class Engine:
    """Runs ``plan`` for every job that :attr:`feed` is given. Must be made within a running event loop."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        plan: PlanFunction,
        platform: Platform,
        instance: str,
        form: Form = DTJ,
        namespaces: Sequence[str | None] = (None,),
        settings: EngineSettings | None = None,
        metrics: Metrics | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        keeps_record: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """``form`` is that of the jobs. ``keeps_record`` asks the API server whether it keeps our record of a job,
        where that is no matter of course."""
        metrics = metrics or Metrics()
        self._metrics = metrics
        self._form = form
        self._gateway = gateway
        self._namespaces = tuple(namespaces)
        self._settings = settings or EngineSettings()
        self._stopping = asyncio.Event()
        self._supervisor = Supervisor(count=metrics.defects)
        self._recorder = EventRecorder(gateway, instance=instance, now=now)
        self.state = ClusterState(platform)
        self.queue: WorkQueue[Key] = WorkQueue(
            backoff=Backoff(base=0.2, cap=60.0),
            rest=self._settings.rest,
            observer=metrics,
            tenant_of=lambda key: key[0],
            places=2 * self._settings.workers,
        )
        self.feed = JobFeed(
            state=self.state,
            queue=self.queue,
            recorder=self._recorder,
            supervisor=self._supervisor,
            resource=jobs_of(form),
            on_unreadable=metrics.unreadable,
        )
        supervisor = self._supervisor
        self._progress = ProgressReader(self.state, self.queue, metrics=metrics, now=now, supervisor=supervisor)
        self._stragglers = StragglerFinder(self.state, self.queue, supervisor=supervisor)
        self._pod_events = PodEventReader(gateway, self.state, self.queue, now=now, supervisor=supervisor)
        self._gangs = Gangs(
            gateway,
            self.state,
            namespaces=self._namespaces,
            form=form,
            on_change=lambda resource, change: self._on_child(resource, self.state.gangs, change),
            on_other_apis=self._plan_all,
            now=now,
            supervisor=supervisor,
            on_unreadable=metrics.unreadable,
        )
        self._guard = None if keeps_record is None else RecordGuard(form, keeps_record, self._plan_all)
        self._informers_of = {namespace: self._make_informers(namespace) for namespace in self._namespaces}
        self._informers = [informer for informers in self._informers_of.values() for informer in informers]
        self._controller = self._make_controller(self._where_complete(plan), metrics=metrics, now=now)
        metrics.watch(self.state.jobs, self.queue)

    @property
    def synced(self) -> bool:
        """Whether the stores of pods, Services and claims are complete. No job is planned before those of its namespace
        are."""
        return all(informer.synced.is_set() for informer in self._informers)

    @property
    def drops_record(self) -> bool:
        """Whether nothing is done for any job, because the API server does not keep our record of it."""
        return self._guard is not None and self._guard.dropped

    @property
    def failing(self) -> str:
        """Which task fails although it is started again and again; empty if there is none."""
        return self._supervisor.failing()

    def _plan_all(self) -> None:
        for record in self.state.jobs:
            self.queue.add(record.key)

    def stop(self) -> None:
        """Have :meth:`run` return soon."""
        self._stopping.set()

    async def run(self, *, watch: Callable[[], Awaitable[object]] | None = None) -> None:
        """Work until :meth:`stop`. Each task is kept going by :mod:`dtj.engine.supervision`, and so is ``watch``, which
        feeds the jobs."""
        try:
            await self._run(watch)
        finally:
            self._metrics.unwatch(self.state.jobs)

    async def _run(self, watch: Callable[[], Awaitable[object]] | None) -> None:
        async with asyncio.TaskGroup() as group:

            def keep(name: str, work: Callable[[], Awaitable[object]]) -> asyncio.Task[None]:
                return group.create_task(self._supervisor.keep(name, work), name=name)

            background = [
                keep("event recorder", self._recorder.run),
                keep("gangs", self._gangs.run),
                keep("progress", self._progress.run),
                keep("stragglers", self._stragglers.run),
                keep("events of pods", self._pod_events.run),
                *(keep(f"informer of {informer.resource.plural}", informer.run) for informer in self._informers),
            ]
            if self._guard is not None:
                background.append(keep("guard of the record", self._guard.run))
            if (every := self._settings.relist_every) is not None:
                listing = partial(self.feed.keep_listing, self._gateway, self._namespaces, every=every)
                background.append(keep("list of jobs", listing))
            watching = [] if watch is None else [keep("watch on jobs", watch)]
            workers = keep("controller", self._work)
            await self._stopping.wait()
            self.queue.shut_down()
            for task in watching:
                task.cancel()
            if any(map(self._is_complete, self._namespaces)):
                await self._finish(workers)
            for task in (workers, *background):
                task.cancel()

    async def _finish(self, workers: asyncio.Task[None]) -> None:
        """Give what has begun its time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.stop_within):
                await asyncio.wait([workers])
                await self._recorder.flush()

    async def _work(self) -> None:
        """Work on the jobs of each namespace from when its stores are complete: one that cannot be listed holds no
        other. All are planned, also where this is begun again: passes were cut off."""
        async with asyncio.TaskGroup() as group:
            begin = [group.create_task(self._begin(namespace)) for namespace in self._namespaces]
            await asyncio.wait(begin, return_when=asyncio.FIRST_COMPLETED)
            if self._guard is not None:
                await self._guard.know()
            await self._controller.run()
            for task in begin:
                task.cancel()

    async def _begin(self, namespace: str | None) -> None:
        for informer in self._informers_of[namespace]:
            await informer.synced.wait()
        for record in self.state.jobs:
            if namespace in (None, record.namespace):
                self.queue.add(record.key)

    def _where_complete(self, plan: PlanFunction) -> PlanFunction:
        """Plans nothing for a job in a namespace whose stores are not complete yet."""

        def planned(observed: Observed, now: datetime) -> Plan:
            return plan(observed, now) if self._is_complete(observed.job.namespace) else ()

        return planned

    def _is_complete(self, namespace: str | None) -> bool:
        informers = self._informers_of.get(namespace, self._informers)
        return all(informer.synced.is_set() for informer in informers)

    def _make_controller(self, plan: PlanFunction, *, metrics: Metrics, now: Callable[[], datetime]) -> Controller:
        creator = Creator(self._gateway, state=self.state, now=now, advanced=self.queue.advanced)
        executor = Executor(
            self._gateway,
            state=self.state,
            creator=creator,
            gangs=self._gangs,
            recorder=self._recorder,
            metrics=metrics,
            stacks=StackRequests(self.state.platform),
            guard=self._guard,
            now=now,
            advanced=self.queue.advanced,
        )
        return Controller(
            queue=self.queue,
            state=self.state,
            plan=plan,
            executor=executor,
            creator=creator,
            metrics=metrics,
            supervisor=self._supervisor,
            now=now,
            in_doubt=self.feed.relist_soon,
            hands_off=lambda: self.drops_record,
        )

    def _make_informers(self, namespace: str | None) -> list[Informer[Any, Any]]:
        def watching(
            resource: Resource,
            store: ChildStore[C],
            decode: Callable[[bytes], R],
            convert: Callable[[R], C],
        ) -> Informer[R, C]:
            return Informer(
                self._gateway,
                resource,
                namespace=namespace,
                selector=self._form.selector,
                decode=decode,
                convert=convert,
                on_change=lambda change: self._on_child(resource, store, change),
                on_turned_back=self.feed.relist_soon,
                on_unreadable=self._metrics.unreadable,
            )

        policies = [watching(NETWORK_POLICIES, self.state.network_policies, decode_plain, network_policy_from)]
        return [
            *(policies if self.state.platform.job_access is not None else []),
            watching(PODS, self.state.pods, decode_pod, partial(pod_from, form=self._form)),
            watching(SERVICES, self.state.services, decode_service, partial(service_from, form=self._form)),
            watching(CLAIMS, self.state.claims, decode_plain, claim_from),
        ]

    def _on_child(self, resource: Resource, store: ChildStore[C], change: Change[C]) -> None:
        """The informer saw something: take it over, settle what we expected, have its job planned."""
        store.apply(change)
        if change.after is not None:
            child = change.after
            self._settle(child, Expectation(Operation.CREATED, resource.plural, child.name))
            if isinstance(child, Pod) and child.world:
                self._settle(child, told(child.uid, child.world))
        if change.before is not None:
            child = change.before
            if change.after is None or getattr(change.after, "terminating", False):
                self._settle(child, Expectation(Operation.DELETED, resource.plural, child.uid))
        for key in {job_of(child) for child in (change.before, change.after) if child is not None}:
            self.queue.add(key)

    def _settle(self, child: Pod | Child | GangObject, expectation: Expectation) -> None:
        self.state.expectations.settle((child.namespace, child.owner_uid), expectation)
