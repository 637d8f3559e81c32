"""What a person sees of a run on this machine: how its replicas start and restart, and the warnings in their logs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from builders import job, pod
from dtj.api.status import JobStatus
from dtj.core.observed import Pod
from dtj.engine.engine import Engine
from dtj.local.kubelet import Kubelet
from dtj.local.platform import LocalNetwork
from dtj.local.replica_logs import ReplicaLog, warnings_of
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


def log(folder: Path, index: int, *lines: str) -> ReplicaLog:
    file = folder / f"worker-{index}.log"
    file.write_text("".join(f"{line}\n" for line in lines))
    return ReplicaLog("worker", index, file)


def test_a_warning_of_several_replicas_is_shown_once(tmp_path: Path) -> None:
    first = log(tmp_path, 0, "step 1/2", "warning: train.py trains alone")
    second = log(tmp_path, 1, "warning: train.py trains alone", "WARNING:tensorflow: retracing", "warning: \x1b[2Jslow")
    assert warnings_of([first, second]) == ("train.py trains alone", "slow")


def test_of_many_warnings_the_first_are_shown_with_the_number_of_the_others(tmp_path: Path) -> None:
    many = log(tmp_path, 0, *(f"warning: step {number}" for number in range(5)))
    assert warnings_of([many]) == ("step 0", "step 1", "step 2", "2 more in the logs")


def test_a_log_that_cannot_be_read_has_none(tmp_path: Path) -> None:
    assert warnings_of([ReplicaLog("worker", 0, tmp_path / "none.log")]) == ()
