"""A job at a FakeGateway, a kubelet that is played, and operators (the real planner and engine) that come and go."""

from __future__ import annotations

import asyncio
from collections import Counter

from builders import CLAIM_TEMPLATE, manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.core.planner import plan
from dtj.kube.gateway import CLAIMS, JOBS, PODS, SERVICES
from support.engine_harness import Harness
from support.fake_gateway import FakeGateway

WORKERS = 3


class Cluster:
    """A FakeGateway with a job in it, a kubelet, and operators that come and go."""

    def __init__(self) -> None:
        self.gateway = FakeGateway(latency=0.01)
        body = manifest(roles={"worker": WORKERS}, checkpoint={"claimTemplate": CLAIM_TEMPLATE})
        self.gateway.put(JOBS, {**body, "metadata": {"name": "digits", "generation": 1}})

    @property
    def job(self) -> Job:
        return Job.from_object(self.gateway.body(JOBS, "digits"))

    def operator(self) -> asyncio.Task[None]:
        """Start an operator."""
        return asyncio.create_task(self._operate())

    async def _operate(self) -> None:
        harness = Harness(self.gateway, lambda observed: plan(observed, harness.now()))
        async with asyncio.TaskGroup() as group:
            group.create_task(harness.engine.run())
            group.create_task(self._watch_jobs(harness))

    async def _watch_jobs(self, harness: Harness) -> None:
        """What kopf does in an operator: tell of each version of the job, sooner or later."""
        while True:
            harness.engine.feed.put(self.gateway.body(JOBS, "digits"))
            await asyncio.sleep(0.05)

    def play_kubelet(self) -> None:
        """All pods become ready; once all are, the first worker completes."""
        pods = {name: self.gateway.body(PODS, name) for name in self.gateway.names(PODS)}
        running = self.job.status.state == "Running"
        for name, pod in pods.items():
            phase = dig(pod, "status", "phase")
            if phase is None:
                self.gateway.put(PODS, {**pod, "status": _READY})
            elif running and phase == "Running" and name == "digits-worker-0":
                self.gateway.put(PODS, {**pod, "status": _COMPLETED})

    async def run_to_the_end(self, operator: asyncio.Task[None], *, seconds: float = 600.0) -> None:
        """Let an operator work until the job has ended and its Service is gone, and stop it."""
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            assert not operator.done(), "nothing may end an operator"
            self.play_kubelet()
            if self.job.status.terminal and not self.gateway.names(SERVICES):
                break
        await asyncio.sleep(5.0)
        operator.cancel()

    def check(self) -> None:
        """The one end that every story must have."""
        assert self.job.status.state == "Succeeded", self.job.status
        assert self.job.status.attempt == 1
        assert self.gateway.names(PODS) == ["digits-worker-0"], "the one that completed; the others were stopped"
        assert self.gateway.names(SERVICES) == [], "it goes with the end of the job"
        assert self.gateway.names(CLAIMS) == ["digits-checkpoint"]
        made = Counter(
            text(dig(line.body, "metadata", "name")) for line in self.gateway.history(PODS) if line.type == "ADDED"
        )
        assert made == {f"digits-worker-{index}": 1 for index in range(WORKERS)}, "each pod once"


_READY: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
_COMPLETED: JsonObject = {
    "phase": "Succeeded",
    "containerStatuses": [
        {"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:05Z"}}}
    ],
}
