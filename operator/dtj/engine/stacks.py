"""Has the pods of a job that stands still print where they are: what a collective waits for is in no other place.

A word to the pods, as an event is one to people: it is sent once, nobody waits for an answer, and an image that does
not know it answers 404.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from dtj.core.observed import Pod
from dtj.core.platform import Platform
from dtj.core.pod_state import replica_of
from dtj.engine.status_port import fetch
from dtj.kube.fairness import FairSlots

AT_ONCE: Final = 16
"""Pods that are asked at the same time; one namespace has half of them."""

REQUEST: Final = "POST /stacks"


class StackRequests:
    """Asks pods to print the stacks of all their threads."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._slots = FairSlots(AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, pods: Sequence[Pod]) -> None:
        """Tell them; returns at once."""
        for pod in pods:
            task = asyncio.create_task(self._ask(pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, pod: Pod) -> None:
        replica = replica_of(pod)
        assert replica is not None
        port = self._platform.network.status_port(role=replica.role, index=replica.index)
        async with self._slots.of(pod.namespace):
            await fetch(pod.ip, port, request=REQUEST)
