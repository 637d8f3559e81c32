"""An engine over a FakeGateway, with the real planner or one of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from builders import NOW, manifest
from dtj.api.form import DTJ, Form
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at, text
from dtj.api.names import Label
from dtj.api.status import JobStatus
from dtj.core.actions import Create, CreatePod, Kind, Plan
from dtj.core.observed import Observed, TemplateVerdict
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.gateway import JOBS, jobs_of
from dtj.kube.job_body import job_from_object
from dtj.kube.records import Key
from support.fake_gateway import FakeGateway
from support.virtual_time import loop_time, settled

QUICK = EngineSettings(workers=2, rest=0.0, relist_every=None)

Planner = Callable[[Observed], Plan]


@dataclass
class Harness:
    """An engine at work. ``seen`` are the observations that were planned, in order."""

    gateway: FakeGateway
    planner: Planner | None = None
    settings: EngineSettings = QUICK
    platform: Platform = field(default_factory=Platform)
    form: Form = DTJ
    namespaces: Sequence[str | None] = (None,)
    engine: Engine = field(init=False)
    seen: list[Observed] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.engine = Engine(
            self.gateway,
            plan=self._plan,
            platform=self.platform,
            instance="test",
            form=self.form,
            namespaces=self.namespaces,
            settings=self.settings,
            now=self.now,
        )

    def now(self) -> datetime:
        """The wall clock, which follows the loop's."""
        return NOW + timedelta(seconds=loop_time())

    def _plan(self, observed: Observed, now: datetime) -> Plan:
        self.seen.append(observed)
        return plan(observed, now) if self.planner is None else self.planner(observed)

    def submit(self, name: str = "digits", *, uid: str = "", **metadata: object) -> Job:
        """Store a job at the API server and tell the engine, as kopf's watch would."""
        body = {**manifest(name), "apiVersion": self.form.api_version, "kind": self.form.kind}
        body["metadata"] = {"name": name, "generation": 1, "uid": uid, **metadata}  # type: ignore[dict-item]
        stored = self.gateway.put(jobs_of(self.form), body)
        self.tell(stored)
        return Job.from_object(stored)

    def tell(self, stored: JsonObject) -> None:
        """Tell the engine of a job as the API server has it, as kopf's watch would."""
        self.engine.feed.put(job_from_object(stored))

    async def take(self, name: str = "digits", *, uid: str = "", **metadata: object) -> Job:
        """Submit a job, and have the engine do what it does at once."""
        job = self.submit(name, uid=uid, **metadata)
        await settled()
        return job

    async def look_again(self) -> None:
        """Have the engine look at the job ``digits`` once more."""
        self.engine.queue.add(("default", "digits"))
        await settled()

    def status(self, key: Key) -> JobStatus:
        """The status of a job, as it was written last."""
        record = self.engine.state.jobs.get(key)
        assert record is not None
        return record.job().status

    @property
    def verdict(self) -> TemplateVerdict:
        """What the API server said of the templates, as last planned with."""
        found = self.seen[-1].verdict
        assert found is not None
        return found

    def retract(self, name: str = "digits") -> None:
        """Delete a job, and tell the engine."""
        uid = text(dig(self.gateway.body(JOBS, name), "metadata", "uid"))
        self.gateway.remove(JOBS, name)
        self.engine.feed.remove(("default", name), uid=uid)

    def writes(self) -> list[str]:
        return self.gateway.writes()


@asynccontextmanager
async def harnessed(
    planner: Planner | None = None,
    *,
    gateway: FakeGateway | None = None,
    settings: EngineSettings = QUICK,
    platform: Platform | None = None,
    form: Form = DTJ,
    namespaces: Sequence[str | None] = (None,),
) -> AsyncIterator[Harness]:
    """A rig that runs within the block, with the real planner unless one is given; its stores are complete by then."""
    harness = Harness(gateway or FakeGateway(), planner, settings, platform or Platform(), form, namespaces)
    task = asyncio.create_task(harness.engine.run())
    await settled()
    assert harness.engine.synced
    harness.gateway.calls.clear()
    try:
        yield harness
        assert not task.done(), "nothing may end an engine"
    finally:
        harness.engine.stop()
        await asyncio.wait([task], timeout=30.0)
        task.cancel()


def pod_manifest(job: Job, index: int = 0, *, role: str = "worker") -> JsonObject:
    """A pod as a planner would ask for."""
    return {
        "metadata": {
            "name": f"{job.name}-{role}-{index}",
            "namespace": job.namespace,
            "labels": {
                Label.JOB_NAME: job.name,
                Label.JOB_UID: job.uid,
                Label.ROLE: role,
                Label.INDEX: str(index),
                Label.ATTEMPT: "1",
            },
            "ownerReferences": [job.owner_reference()],
        },
        "spec": {"containers": [{"name": "trainer"}]},
    }


def service_manifest(job: Job) -> JsonObject:
    """A Service as a planner would ask for."""
    body = pod_manifest(job)
    metadata = object_at(body, "metadata")
    return {"metadata": {**metadata, "name": job.name}, "spec": {"selector": {Label.JOB_UID: job.uid}}}


def wants_pods(count: int) -> Planner:
    """A planner that wants a Service and this many pods, and does nothing where a name is taken."""

    def planner(observed: Observed) -> Plan:
        job = observed.job
        if any(pod.owner_uid != job.uid for pod in observed.pods):
            return ()
        present = {pod.name for pod in observed.pods}
        pods = [pod_manifest(job, index) for index in range(count) if f"{job.name}-worker-{index}" not in present]
        service = (Create(Kind.SERVICE, service_manifest(job)),) if observed.service is None else ()
        return (*service, *map(CreatePod.of, pods))

    return planner


def once(*plans: Plan) -> Planner:
    """A planner that wants these plans, one after the other, and then nothing."""
    left = list(plans)
    return lambda observed: left.pop(0) if left else ()
