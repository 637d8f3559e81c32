"""What an operator knows of jobs that run, and the status ports of their pods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace

from builders import kept
from dtj.api.job import Job
from dtj.core.observed import Pod
from dtj.core.platform import Platform
from dtj.engine.progress import SILENCE
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState, JobCache
from dtj.kube.informer import Change
from dtj.kube.records import Key
from support.virtual_time import loop_time

Answer = Callable[[str], Awaitable[bytes | None]]


class StatusPorts:
    """``asked`` is who was asked and when; ``answer`` says what the port of an address answers."""

    def __init__(self) -> None:
        self.state = ClusterState(Platform())
        self.queue: WorkQueue[Key] = WorkQueue(backoff=SILENCE)
        self.asked: list[tuple[str, float]] = []
        self.answer: Answer = self._a_step

    def add(self, job: Job, pods: Iterable[Pod], *, address: str = "") -> JobCache:
        """A job with these pods, each at the address that is its name, or all at this one."""
        self.state.jobs.put(kept(job))
        self.state.caches.begin(job.uid)
        for pod in pods:
            self.state.pods.apply(Change(None, replace(pod, ip=address or pod.name)))
        return self.state.caches.of(job.uid)

    def add_like(self, job: Job, pods: Iterable[Pod], *, number: int, namespace: str = "default") -> JobCache:
        """Another job of that kind, whose pods are at the address that is its namespace's name."""
        another = replace(job, namespace=namespace, name=f"job-{number}", uid=f"uid-{number}")
        moved = (
            replace(pod, namespace=namespace, name=pod.name.replace(job.name, another.name), owner_uid=another.uid)
            for pod in pods
        )
        return self.add(another, moved, address=namespace)

    def times(self, address: str) -> list[float]:
        """When this address was asked."""
        return [at for asked, at in self.asked if asked == address]

    async def fetch(self, host: str, port: int, **_: object) -> bytes | None:
        """In the place of :func:`dtj.engine.progress.fetch`."""
        self.asked.append((host, loop_time()))
        return await self.answer(host)

    async def _a_step(self, _: str) -> bytes:
        return b'{"step": 7}'
