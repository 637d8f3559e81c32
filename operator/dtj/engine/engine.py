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
from dtj.core.observed import Child, GangObject, Pod
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
from dtj.kube.events import EventRecorder
from dtj.kube.gateway import CLAIMS, NETWORK_POLICIES, PODS, SERVICES, Gateway, Keep, Resource, everywhere, jobs_of
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
        keep: Keep = everywhere,
        keeps_record: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """``form`` is that of the jobs; ``keep`` says of a namespace whether its jobs are ours. ``keeps_record`` asks
        the API server whether it keeps our record of a job, where that is no matter of course."""
        metrics = metrics or Metrics()
        self._metrics = metrics
        self._form = form
        self._keep = keep
        self._gateway = gateway
        self._namespaces = tuple(namespaces)
        self._settings = settings or EngineSettings()
        self._stopping = asyncio.Event()
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
            resource=jobs_of(form),
            keep=keep,
        )
        self._progress = ProgressReader(self.state, self.queue, metrics=metrics, now=now)
        self._stragglers = StragglerFinder(self.state, self.queue)
        self._pod_events = PodEventReader(gateway, self.state, self.queue, now=now)
        self._gangs = Gangs(
            gateway,
            self.state,
            namespaces=self._namespaces,
            form=form,
            on_change=lambda resource, change: self._on_child(resource, self.state.gangs, change),
            now=now,
            keep=keep,
        )
        self._guard = None if keeps_record is None else RecordGuard(form, keeps_record, self._plan_all)
        self._controller = self._make_controller(plan, metrics=metrics, now=now)
        self._informers = [informer for namespace in self._namespaces for informer in self._make_informers(namespace)]
        metrics.watch(self.state.jobs, self.queue)

    @property
    def synced(self) -> bool:
        """Whether the stores of pods, Services and claims are complete; no job is planned before."""
        return all(informer.synced.is_set() for informer in self._informers)

    @property
    def drops_record(self) -> bool:
        """Whether nothing is done for any job, because the API server does not keep our record of it."""
        return self._guard is not None and self._guard.dropped

    def _plan_all(self) -> None:
        for record in self.state.jobs:
            self.queue.add(record.key)

    def stop(self) -> None:
        """Have :meth:`run` return soon."""
        self._stopping.set()

    async def run(self) -> None:
        """Work until :meth:`stop`. An error here is a defect; it ends everything, as an ExceptionGroup."""
        try:
            await self._run()
        finally:
            self._metrics.unwatch(self.state.jobs)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(self._recorder.run(), name="event recorder"),
                group.create_task(self._gangs.run(), name="gangs"),
                group.create_task(self._progress.run(), name="progress"),
                group.create_task(self._stragglers.run(), name="stragglers"),
                group.create_task(self._pod_events.run(), name="events of pods"),
                *(
                    group.create_task(informer.run(), name=f"informer of {informer.resource.plural}")
                    for informer in self._informers
                ),
            ]
            if self._guard is not None:
                background.append(group.create_task(self._guard.run(), name="guard of the record"))
            if self._settings.relist_every is not None:
                listing = self.feed.keep_listing(self._gateway, self._namespaces, every=self._settings.relist_every)
                background.append(group.create_task(listing, name="list of jobs"))
            workers = group.create_task(self._work(), name="controller")
            await self._stopping.wait()
            self.queue.shut_down()
            if self.synced:
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
        for informer in self._informers:
            await informer.synced.wait()
        if self._guard is not None:
            await self._guard.know()
        await self._controller.run()

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
                keep=self._keep,
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
