"""What a report gathers of a job on a cluster, and what it says of parts that cannot be read."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import cast

import pytest

from builders import at
from dtj.api.json import JsonObject
from dtj.api.names import Label
from dtj.cli.report import cluster
from dtj.cli.report.cluster import gather
from dtj.cli.report.evidence import SPEED
from dtj.client import AsyncClient
from dtj.kube.errors import Forbidden, NotFound
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, NODES, PODS, SERVICES
from dtj.kube.pod_logs import LogQuery
from support.fake_gateway import FakeGateway
from support.job_evidence import job, moment, pod, runs

UID = "uid-of-digits"


def progress(step: int, loss: float, speed: float | None = None) -> str:
    """A line of a trainer that logs JSON."""
    rate = {} if speed is None else {"examplesPerSecond": speed}
    return json.dumps({"progress": {"step": step, "metrics": {"loss": str(loss)}, **rate}})


class Cluster(FakeGateway):
    """A job of two workers that run, and what they print."""

    server = "https://cluster.example"

    def __init__(self) -> None:
        super().__init__()
        body = job({"state": "Running", "attempt": 1, "startTime": at(0)})
        metadata: JsonObject = {"name": "digits", "namespace": "default", "uid": UID, "creationTimestamp": at(0)}
        self.put(JOBS, {**body, "metadata": metadata})
        self.lines = {
            "digits-worker-0": ["versions: python 3.11.9", progress(20, 2.3, 1200.0)],
            "digits-worker-1": ["reads"],
        }
        self.put(PODS, owned("worker-0"))
        self.put(PODS, owned("worker-1", volumes=[{"persistentVolumeClaim": {"claimName": "data"}}]))
        for name in ("data", "other"):
            self.put(CLAIMS, {"metadata": {"name": name}})
        self.put(NODES, {"metadata": {"name": "node-b"}, "status": {"capacity": {"cpu": "8"}, "images": ["x"]}})
        self.put(EVENTS, event("1", "digits-worker-0-r1"))
        self.put(EVENTS, event("2", "digits-2-worker-0"))
        self.put(EVENTS, {**event("3", "digits-worker-0-r2"), "eventTime": at(-600)})

    async def log(self, query: LogQuery, *, namespace: str, pod: str) -> AsyncGenerator[bytes, None]:
        if pod not in self.lines:
            raise NotFound("it is gone")
        for second, line in enumerate(self.lines[pod]):
            yield f"{at(second)} {line}".encode()


def owned(name: str, **spec: object) -> JsonObject:
    body = pod(name, runs(3, 9))
    labels: JsonObject = {Label.JOB_UID: UID, Label.JOB_NAME: "digits", Label.ROLE: "worker", Label.INDEX: name[-1]}
    owner: JsonObject = {"uid": UID, "controller": True}
    body["metadata"] = {**body["metadata"], "labels": labels, "ownerReferences": [owner]}  # type: ignore[dict-item]
    body["spec"] = {**body["spec"], **spec}  # type: ignore[dict-item]
    return body


def event(name: str, about: str) -> JsonObject:
    return {"metadata": {"name": name}, "reason": "Killing", "eventTime": at(5), "regarding": {"name": about}}


@pytest.fixture
def world() -> Cluster:
    return Cluster()


def client(world: Cluster) -> AsyncClient:
    return cast(AsyncClient, SimpleNamespace(gateway=world, namespace="default"))


async def test_all_that_a_person_may_read_is_gathered(world: Cluster) -> None:
    known = await gather(client(world), "digits", logs=True)
    assert known.unread == ()
    assert len(known.pods) == 2
    assert [claim["metadata"]["name"] for claim in known.objects["claims"]] == ["data"], "which a pod mounts"
    assert "images" not in known.objects["nodes"][0]["status"]
    assert [event.about for event in known.events] == ["digits-worker-0-r1"], "of a gone pod, of no other job"
    assert [log.name for log in known.logs] == ["worker-0", "worker-1"]


async def test_the_leaders_log_is_read_for_its_curves_and_versions_and_shown_only_if_asked_for(world: Cluster) -> None:
    known = await gather(client(world), "digits", logs=False)
    assert known.logs == ()
    assert [(each.name, each.number, each.at) for each in known.scalars] == [
        ("loss", 2.3, moment(1)),
        (SPEED, 1200.0, moment(1)),
    ]
    assert [(each.name, each.words) for each in known.settings] == [("python", "3.11.9")]


async def test_the_logs_of_the_first_leader_and_of_its_successor_are_read_in_the_order_of_time(world: Cluster) -> None:
    """Worker 0 of an elastic job was given up, and has come back."""
    body = world.body(JOBS, "digits")
    elastic: JsonObject = {**body["spec"], "elastic": {"maxReplicas": 2}}  # type: ignore[dict-item]
    status: JsonObject = {**body["status"], "world": {"generation": 1, "members": {"worker": "1"}}}  # type: ignore[dict-item]
    world.put(JOBS, {**body, "spec": elastic, "status": status})
    world.lines["digits-worker-0"] = [progress(20, 2.3), *8 * ["waiting"], progress(80, 2.0)]
    world.lines["digits-worker-1"] = [*3 * ["waiting"], progress(40, 2.1)]
    known = await gather(client(world), "digits", logs=False)
    assert [(each.step, each.at) for each in known.scalars] == [(20, moment(0)), (40, moment(3)), (80, moment(9))]


async def test_what_may_not_be_read_is_listed_and_hides_nothing_else(world: Cluster) -> None:
    for resource in (SERVICES, CLAIMS, EVENTS, NODES):
        world.fail("list", resource, Forbidden(f"cannot list {resource.plural}"))
    del world.lines["digits-worker-1"]
    known = await gather(client(world), "digits", logs=True)
    assert [(item.what, item.why) for item in known.unread] == [
        ("its Service", "cannot list services"),
        ("claims", "cannot list persistentvolumeclaims"),
        ("events", "cannot list events"),
        ("nodes", "cannot list nodes"),
        ("a log", "digits-worker-1: its log is gone"),
    ]
    assert [log.name for log in known.logs] == ["worker-0"]


async def test_of_too_many_pods_the_leader_and_the_one_that_failed_first_are_read(
    world: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "MAX_AT_ONCE", 2)
    for index in (2, 3):
        world.put(PODS, owned(f"worker-{index}"))
        world.lines[f"digits-worker-{index}"] = ["reads"]
    body = world.body(JOBS, "digits")
    cause: JsonObject = {"pod": "digits-worker-3", "role": "worker", "index": 3}
    world.put(JOBS, {**body, "status": {**body["status"], "rootCause": cause}})  # type: ignore[dict-item]
    known = await gather(client(world), "digits", logs=True)
    assert {log.name for log in known.logs} == {"worker-0", "worker-3"}
    assert [(item.what, item.why) for item in known.unread] == [("logs of 2 more pods", "2 are read")]


async def test_a_job_that_is_not_there_is_an_error(world: Cluster) -> None:
    with pytest.raises(NotFound):
        await gather(client(world), "nope", logs=False)
