"""What a person sees of a run on this machine while it starts and restarts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

from builders import job, pod
from dtj.api.status import JobStatus
from dtj.core.observed import Pod
from dtj.engine.engine import Engine
from dtj.local.kubelet import Kubelet
from dtj.local.platform import LocalNetwork
from dtj.local.runner import RunningJob


def test_only_a_replica_that_was_started_has_stopped() -> None:
    begun = replace(job(), status=JobStatus(state="Starting", start_time="2026-01-02T03:04:05Z"))
    assert begun.spec is not None
    pods: dict[str, Pod] = {}
    started: set[str] = set()
    stores = SimpleNamespace(jobs={}, pods=SimpleNamespace(of=lambda _: pods))
    engine = cast(Engine, SimpleNamespace(state=stores))
    kubelet = cast(Kubelet, SimpleNamespace(begun=started))
    shown: list[list[str]] = []

    async def watch() -> None:
        assert begun.spec is not None
        running = RunningJob(engine, kubelet, begun, begun.spec, cast(LocalNetwork, SimpleNamespace()))

        def show(*there: str) -> None:
            pods.clear()
            pods.update({name: pod(begun, name) for name in there})
            shown.append([replica.state for replica in running.view().replicas])

        show()
        started.add("worker-1")
        show("worker-1")
        show()
        started.add("worker-0")  # its pod came and went between two views
        show()

    asyncio.run(watch())
    assert shown == [["Pending", "Pending"], ["Pending", "Starting"], ["Pending", "Stopped"], ["Stopped", "Stopped"]]
