"""A real API server that refuses: rights that are missing, quotas, policies and webhooks, a namespace that ends.

One operator serves a namespace for each refusal. Where the API lets it be, the job says in its status what is refused,
in the server's words; it is asked ever more rarely meanwhile, and when the refusal ends, the job comes to its end with
each pod created once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import pytest

from dtj.api.names import Condition
from dtj.api.status import JobStatus
from support.job_world import OF_NO_SCHEDULER, JobWorld
from support.operator_process import USER, OperatorProcess
from support.refusals import REFUSALS, Refusal
from support.waiting import always, eventually, eventually_equal
from testbed import AuditRecord, ControlPlane

REFUSED_SECONDS = 20.0
"""For how long something is refused."""

REQUESTS = 40
"""While something is refused. More is a hot loop: waits between calls double, on any machine."""


@dataclass(frozen=True)
class Story:
    """What became of a job that was refused something."""

    last_message: str
    """The message of a condition that holds the refusal's words."""

    status: JobStatus
    created: Counter[str]
    requests: int


def tell(world: JobWorld, refusal: Refusal) -> Story:
    """A job loses a worker, is suspended, resumed and completes; something is refused at some moment."""
    mark = world.plane.audit.mark()
    if refusal.moment != "start":
        submit(world)
        world.await_running("worker-0", "worker-1")
    refusal.begin(world)
    since = world.plane.audit.mark()
    go_on(world, refusal.moment)
    world.eventually(lambda: refused(world, since))
    met = world.plane.audit.mark()
    last_message = world.eventually(lambda: words(world, refusal))
    time.sleep(REFUSED_SECONDS)
    requests = len(calls(world, met))
    refusal.end(world)
    if refusal.moment == "start":
        world.await_running("worker-0", "worker-1")
        go_on(world, "restart")
    if refusal.moment != "suspend":
        world.await_running("worker-1", "worker-0-r1", "worker-1-r1")
        go_on(world, "suspend")
    world.await_state("Suspended")
    world.await_pods([])
    world.change_spec({"runPolicy": {"suspend": False}})
    attempt = 1 if refusal.moment == "suspend" else 2
    world.await_running(f"worker-0-r{attempt}", f"worker-1-r{attempt}")
    world.end_pod(f"digits-worker-0-r{attempt}", exit_code=0)
    job = world.await_condition(Condition.COMPLETE)
    return Story(last_message, job.status, creations(world, mark), requests)


def submit(world: JobWorld) -> None:
    world.submit(template=OF_NO_SCHEDULER)


def go_on(world: JobWorld, moment: str) -> None:
    """Have the operator do what is refused at this moment."""
    if moment == "start":
        submit(world)
    elif moment == "restart":
        world.end_pod("digits-worker-1", exit_code=3)
    else:
        world.change_spec({"runPolicy": {"suspend": True}})


def words(world: JobWorld, refusal: Refusal) -> str:
    """What the job says of the refusal."""
    if not refusal.words:
        return ""
    messages = [condition.message for condition in world.job().status.conditions]
    found = [message for message in messages if refusal.words in message]
    assert found, f"{refusal.words!r} is in none of {messages}"
    return found[0]


def refused(world: JobWorld, since: int) -> None:
    """The operator may just have been started."""
    assert [one for one in calls(world, since) if one.code is not None and one.code >= HTTPStatus.BAD_REQUEST]


def calls(world: JobWorld, since: int) -> list[AuditRecord]:
    return world.plane.audit.calls(since=since, user=USER, namespace=world.namespace)


def creations(world: JobWorld, since: int) -> Counter[str]:
    writes = world.plane.audit.writes(since=since, user=USER, namespace=world.namespace)
    return Counter(one.name for one in writes if (one.verb, one.resource, one.code) == ("create", "pods", 201))


@pytest.fixture(scope="module")
def stories(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Story]]]:
    """All stories at the same time: most of a story is waiting."""
    worlds = {refusal: JobWorld.new(cluster) for refusal in REFUSALS}
    log = tmp_path_factory.mktemp("refusals") / "log"
    with (
        OperatorProcess.serving(cluster, [world.namespace for world in worlds.values()], log=log) as operator,
        ThreadPoolExecutor(len(worlds)) as pool,
    ):
        yield {refusal.name: pool.submit(tell, world, refusal) for refusal, world in worlds.items()}
        pool.shutdown()
        assert operator.running, log.read_text()
        assert not operator.defects, log.read_text()
    for world in worlds.values():
        cluster.delete_namespace(world.namespace)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_what_is_refused_is_reported_and_requested_ever_more_rarely_until_it_is_granted(
    refusal: Refusal, stories: dict[str, Future[Story]], record_property: Callable[[str, object], None]
) -> None:
    story = stories[refusal.name].result()
    record_property("report", f"{refusal.name}: {story.requests} requests; {story.last_message or 'not told'}")
    status = story.status
    restarts = 0 if refusal.moment == "suspend" else 1
    assert (status.state, status.attempt, status.restarts.user) == ("Succeeded", 2 + restarts, restarts)
    assert set(story.created.values()) == {1}, story.created
    assert story.requests <= REQUESTS


def test_a_namespace_that_ends_is_not_filled_again_and_ends(
    cluster: ControlPlane, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    world = JobWorld.new(cluster)
    world.create("configmaps", {"metadata": {"name": "hold", "finalizers": ["example.com/hold"]}})
    with OperatorProcess.serving(cluster, [world.namespace], log=tmp_path / "log") as operator:
        submit(world)
        world.await_running("worker-0", "worker-1")
        mark = cluster.audit.mark()
        cluster.delete_namespace(world.namespace)

        def emptied() -> None:
            assert (world.pods(), world.services(), world.jobs()) == ({}, {}, [])

        eventually(emptied)
        always(emptied, seconds=5.0)
        assert creations(world, mark) == Counter()
        requests = len(calls(world, mark))
        record_property("report", f"namespace that ends: {requests} requests")
        assert requests <= REQUESTS
        assert operator.running
    namespace = f"/api/v1/namespaces/{world.namespace}"
    cluster.api.request("PATCH", f"{namespace}/configmaps/hold", {"metadata": {"finalizers": None}})
    eventually_equal(lambda: cluster.api.find(namespace), None)
