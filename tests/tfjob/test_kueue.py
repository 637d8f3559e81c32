"""TFJobs in queues of the real Kueue: by Kueue's integration for them, as long as there is one, and by our operator.

The integration's webhook is played: a queued job is created suspended. Our operator needs none.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from dtj.api.json import JsonObject, dig, object_at
from support import tfjob_operators
from support.job_world import JobWorld
from support.kueue_queues import Queues
from support.tfjob_world import TfJobWorld, tfjob
from support.waiting import always, eventually, eventually_true
from testbed import ApiError, ControlPlane
from testbed.kueue import Kueue, Limits

READY_SECONDS = 20


INTEGRATION, OWN = "kubeflow.org/tfjob", "--tfjob-queues"


@pytest.fixture(scope="class", params=[INTEGRATION, OWN])
def queued_by(request: pytest.FixtureRequest) -> str:
    """Who queues the TFJobs: Kueue's integration, or our operator."""
    who: str = request.param
    if who == OWN and tfjob_operators.SERVED_BY == tfjob_operators.THEIRS:
        pytest.skip("training-operator queues nothing itself")
    return who


@pytest.fixture(scope="class")
def plane(
    queued_by: str, own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """A control plane of its own, with Kueue and whoever serves TFJobs."""
    log = tmp_path_factory.mktemp("kueue") / "operator.log"
    with tfjob_operators.serving(own_control_plane, log, *([OWN] if queued_by == OWN else [])):
        kueue = Kueue(own_control_plane)
        kueue.install()
        kueue.start(
            Limits(ready=READY_SECONDS, backoff=5), frameworks=(INTEGRATION,) if queued_by == INTEGRATION else ()
        )
        yield own_control_plane
        print(kueue.log[-20_000:], log.read_text() if log.exists() else "", sep="\n")
        kueue.stop()


@dataclass(frozen=True)
class QueuedWorld(TfJobWorld):
    """A world whose queued jobs Kueue's integration resumes, or does not."""

    resumed: bool


@pytest.fixture
def world(plane: ControlPlane, queued_by: str) -> QueuedWorld:
    """A namespace of the test's own."""
    return QueuedWorld(plane, plane.new_namespace(), resumed=queued_by == INTEGRATION)


@pytest.fixture
def queues(world: TfJobWorld) -> Iterator[Queues]:
    """Queues and quota of the test's own."""
    made = Queues(JobWorld(world.plane, world.namespace), f"test-{uuid.uuid4().hex[:8]}")
    yield made
    for name in [str(dig(job, "metadata", "name")) for job in world.jobs()]:
        world.delete(name)
    made.delete()


def submit(world: QueuedWorld, name: str, *, priority: str = "") -> None:
    """A job of two workers, each of which needs a CPU of the queue."""
    body = tfjob(name, {"Worker": 2}, restarts="OnFailure", **({"suspend": True} if world.resumed else {}))
    labels: JsonObject = {"kueue.x-k8s.io/queue-name": "team"}
    object_at(body, "metadata")["labels"] = labels | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    worker = dig(body, "spec", "tfReplicaSpecs", "Worker", "template", "spec", "containers", 0)
    assert isinstance(worker, dict)
    worker["resources"] = {"requests": {"cpu": "1"}}
    world.create(body)


def await_running(world: TfJobWorld, name: str) -> None:
    """Have the pods run until the job does. On a slow machine Kueue may evict it before."""

    def runs() -> None:
        with contextlib.suppress(ApiError):
            world.run_pods(name)
        assert world.condition(name, "Running").get("status") == "True"

    eventually(runs)


class TestAQueueOfKueue:
    def test_a_job_is_admitted_runs_and_is_not_evicted_while_another_waits(
        self, world: QueuedWorld, queues: Queues
    ) -> None:
        queues.make("team", cpus=2)
        submit(world, "first")
        world.await_pods("first", "worker-0", "worker-1")
        await_running(world, "first")
        queues.await_condition("PodsReady", "True", "first")
        submit(world, "second")
        queues.await_condition("QuotaReserved", "False", "second")
        pods = set(world.pods("first"))

        def stays() -> None:
            assert set(world.pods("first")) == pods
            assert not world.pods("second")
            assert not queues.conditions("first").get("Evicted", "").startswith("True")

        always(stays, seconds=READY_SECONDS + 5.0)
        for pod in pods:
            world.end_pod(pod, 0)
        world.await_condition("first", "Succeeded")
        queues.await_condition("Finished", "True", "first")
        eventually_true(lambda: len(world.pods("second")) == 2)

    def test_quota_of_a_job_that_is_not_ready_in_time_is_back_after_its_last_pod(
        self, world: QueuedWorld, queues: Queues
    ) -> None:
        queues.make("team", cpus=2)
        submit(world, "slow")
        world.await_pods("slow", "worker-0", "worker-1")
        queues.await_used("team", 2)
        world.hold_pods("slow")
        queues.await_condition("Evicted", "True/PodsReadyTimeout", "slow")
        world.await_condition("slow", "Suspended")
        eventually_true(lambda: not world.pods("slow"))

        def holds() -> None:
            assert queues.used("team") == 2, f"its pods stop: {queues.conditions('slow')}, {world.job('slow')}"

        always(holds, seconds=3.0)
        world.hold_pods("slow", hold=False)
        queues.await_used("team", 0)
        eventually_true(lambda: len(world.pods("slow")) == 2)  # it comes back after a while
        await_running(world, "slow")

    def test_a_job_that_is_preempted_gives_way_and_resumes(self, world: QueuedWorld, queues: Queues) -> None:
        queues.make("team", cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
        for name, value in (("low", 1), ("high", 100)):
            queues.make_priority_class(name, value)
        submit(world, "modest", priority="low")
        eventually_true(lambda: len(world.pods("modest")) == 2)
        await_running(world, "modest")
        submit(world, "urgent", priority="high")
        queues.await_condition("Evicted", "True/Preempted", "modest")
        eventually_true(lambda: len(world.pods("urgent")) == 2)
        assert not world.pods("modest")
        await_running(world, "urgent")
        for pod in world.pods("urgent"):
            world.end_pod(pod, 0)
        world.await_condition("urgent", "Succeeded")
        eventually_true(lambda: len(world.pods("modest")) == 2)
        await_running(world, "modest")
        for pod in world.pods("modest"):
            world.end_pod(pod, 0)
        world.await_condition("modest", "Succeeded")
        queues.await_used("team", 0)
