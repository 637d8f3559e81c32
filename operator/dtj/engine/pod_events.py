"""What only events say: why a pod that has a node does not start, such as a volume that cannot be attached.

A pod's status says nothing of it: it is Pending, and its containers are being created. Events of a namespace are read
while pods of jobs there wait so, at growing intervals as long as these are the same pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NoReturn

from dtj.api.json import dig, text
from dtj.core.blockers import waits_without_a_word
from dtj.core.observed import Blocker, Pod
from dtj.engine.job_store import JobRecord
from dtj.engine.queue import WorkQueue
from dtj.engine.state import ClusterState
from dtj.engine.supervision import Supervisor
from dtj.kube.blockers import start_trouble
from dtj.kube.decoding import Unreadable, decode_object
from dtj.kube.errors import ApiError
from dtj.kube.events import reported_at
from dtj.kube.gateway import EVENTS, Gateway
from dtj.kube.records import Key
from dtj.kube.waiting import Backoff, loop_time

INTERVAL: Final = 10.0
"""Seconds between two looks for pods that wait."""

_PATIENCE: Final = Backoff(base=INTERVAL, cap=120.0)
"""After how long the events of a namespace are read again while the same pods wait."""

_RECENT: Final = timedelta(minutes=10)
"""How old an event may be that still counts: a kubelet reports what goes on every two minutes or so, and its client
sends no more than one event in five minutes about a pod that has many."""

_MOST_PAGES: Final = 20
"""Pages of events that are read at a time: anybody may make events."""

_OF_PODS: Final = "regarding.kind=Pod,type=Warning"


@dataclass(slots=True)
class _Reading:
    """Of one namespace: for which pods, how often in a row, and when again, by the event loop."""

    pods: frozenset[str]
    times: int
    again_at: float


class PodEventReader:
    """Reads events of pods that wait, and has a job planned when they say something else than before."""

    def __init__(
        self,
        gateway: Gateway,
        state: ClusterState,
        queue: WorkQueue[Key],
        *,
        now: Callable[[], datetime],
        supervisor: Supervisor,
    ) -> None:
        self._supervisor = supervisor
        self._gateway = gateway
        self._state = state
        self._queue = queue
        self._now = now
        self._readings: dict[str, _Reading] = {}

    async def run(self) -> NoReturn:
        """Read until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.read_all()

    async def read_all(self) -> None:
        """Read the events of each namespace whose turn it is."""
        waiting = self._waiting()
        for namespace in self._readings.keys() - waiting.keys():
            del self._readings[namespace]
        for namespace, jobs in waiting.items():
            if self._is_due(namespace, frozenset(pod.uid for _, pods in jobs for pod in pods)):
                with self._supervisor.sparing("events of pods"):
                    await self._read(namespace, jobs)

    def _waiting(self) -> dict[str, list[tuple[JobRecord, list[Pod]]]]:
        """The jobs with pods that wait without a word, by namespace."""
        found: dict[str, list[tuple[JobRecord, list[Pod]]]] = {}
        for record in self._state.jobs:
            if record.deleting or record.terminal:
                continue
            own = (pod for pod in self._state.pods.of(record).values() if pod.owner_uid == record.uid)
            if pods := [pod for pod in own if waits_without_a_word(pod, self._now())]:
                found.setdefault(record.namespace, []).append((record, pods))
        return found

    def _is_due(self, namespace: str, pods: frozenset[str]) -> bool:
        before = self._readings.get(namespace)
        same = before is not None and pods <= before.pods
        if before is not None and same and loop_time() < before.again_at:
            return False
        times = before.times + 1 if before is not None and same else 1
        self._readings[namespace] = _Reading(pods, times, loop_time() + _PATIENCE.delay(times))
        return True

    async def _read(self, namespace: str, jobs: list[tuple[JobRecord, list[Pod]]]) -> None:
        waiting = {pod.uid for _, pods in jobs for pod in pods}
        latest: dict[str, tuple[datetime, Blocker]] = {}
        since = self._now() - _RECENT
        pages = self._gateway.pages(EVENTS, namespace=namespace, field_selector=_OF_PODS)
        try:
            for _ in range(_MOST_PAGES):
                for uid, at, trouble in _troubles((await anext(pages)).items):
                    if uid in waiting and at >= since and (uid not in latest or latest[uid][0] < at):
                        latest[uid] = at, trouble
        except StopAsyncIteration:
            pass
        except ApiError:
            return  # jobs can do without, also where the right is missing
        for job, pods in jobs:
            cache = self._state.caches.of(job.uid)
            own = {pod.uid: latest[pod.uid][1] for pod in pods if pod.uid in latest}
            if own != cache.start_troubles:
                cache.start_troubles = own
                self._queue.add(job.key)


def _troubles(events: Iterable[bytes]) -> Iterator[tuple[str, datetime, Blocker]]:
    """What these events say keeps pods from starting: the UID of each pod, when that was reported, and what it is."""
    for item in events:
        try:
            event = decode_object(item)
        except Unreadable:
            continue  # anybody may write events
        trouble, at = start_trouble(text(event.get("reason")), text(event.get("note"))), reported_at(event)
        if trouble is not None and at is not None:
            yield text(dig(event, "regarding", "uid")), at, trouble
