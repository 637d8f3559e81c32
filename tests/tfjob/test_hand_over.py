"""Jobs in all states go from training-operator to this operator and back, while operators are killed at any moment.

``DTJ_HAND_OVER=3x20`` plays three rounds of twenty jobs; ``DTJ_HAND_OVER_SEED`` repeats the moments of a run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from dtj.api.json import dig, objects
from support import tfjob_operators
from support.operator_process import USER, OperatorProcess
from support.tfjob_world import TfJobWorld, tfjob
from support.waiting import eventually
from testbed import ControlPlane
from testbed.audit import AuditRecord
from testbed.peers import TrainingOperator

ROUNDS, JOBS = map(int, os.environ.get("DTJ_HAND_OVER", "1x8").split("x"))
SEED = int(os.environ.get("DTJ_HAND_OVER_SEED", "0")) or random.randrange(1, 10**6)
QUIET_SECONDS = 4.0
KILLS = 3
USERS = (USER, tfjob_operators.THEIRS)


Play: TypeAlias = Callable[[TfJobWorld, str], None]


@dataclass(frozen=True)
class State:
    """A state of a job: how it is made, and how it gets there from the creation of its pods."""

    name: str
    holds: str
    roles: dict[str, int] = field(default_factory=lambda: {"Worker": 2})
    restarts: str = "Never"
    suspended: bool = False
    play: Play = TfJobWorld.run_pods


def _nothing(world: TfJobWorld, name: str) -> None:
    """Its pods wait."""


def _end(role: str, code: int, *, then: Play = _nothing) -> Play:
    def play(world: TfJobWorld, name: str) -> None:
        world.run_pods(name)
        world.await_condition(name, "Running")
        world.end_pod(f"{name}-{role}", code)
        then(world, name)

    return play


def _start_again(world: TfJobWorld, name: str) -> None:
    def new_pod() -> None:
        pod = world.pods(name).get(f"{name}-worker-1", {})
        assert dig(pod, "status", "phase") == "Pending"

    eventually(new_pod)
    world.run_pods(name)


def _suspend(world: TfJobWorld, name: str) -> None:
    world.run_pods(name)
    world.await_condition(name, "Running")
    world.suspend(name, suspend=True)


CHIEF = {"Chief": 1, "PS": 1, "Worker": 2}
STATES = (
    State("runs", "Running", restarts="OnFailure"),
    State("waits", "Created", play=_nothing),
    State("goes-on", "Running", CHIEF, play=_end("worker-1", 0)),
    State("done", "Succeeded", play=_end("worker-0", 0)),
    State("bad", "Failed", play=_end("worker-1", 1)),
    State("never-ran", "Suspended", suspended=True, play=_nothing),
    State("paused", "Suspended", play=_suspend),
    State("again", "Running", CHIEF, "ExitCode", play=_end("worker-1", 137, then=_start_again)),
)


@dataclass
class Cluster:
    """A cluster in which either operator may serve the TFJobs of a namespace."""

    world: TfJobWorld
    theirs: TrainingOperator
    ours: OperatorProcess
    moments: random.Random

    def snapshot(self) -> dict[str, object]:
        """All pods by their name with what makes them that pod, and what the conditions of the jobs are."""
        pods = self.world.plane.api.request("GET", f"/api/v1/namespaces/{self.world.namespace}/pods")["items"]
        found: dict[str, object] = {str(dig(pod, "metadata", "name")): dig(pod, "metadata", "uid") for pod in pods}
        going = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" in pod["metadata"]]
        assert not going, f"{going} are being deleted"
        return found

    def held(self, name: str) -> set[object]:
        """The conditions of a job that are True."""
        found = objects(dig(self.world.job(name), "status", "conditions"))
        return {each["type"] for each in found if each["status"] == "True"}

    def written(self, *, since: int) -> list[AuditRecord]:
        """What the operators have written in the namespace, both of them."""
        audit, namespace = self.world.plane.audit, self.world.namespace
        return [each for user in USERS for each in audit.writes(since=since, user=user, namespace=namespace)]

    def await_quiet(self) -> None:
        """Wait until neither has written in the namespace for a while."""
        mark, since = self.world.plane.audit.mark(), time.monotonic()
        while time.monotonic() < since + QUIET_SECONDS:
            time.sleep(0.5)
            if self.written(since=mark):
                mark, since = self.world.plane.audit.mark(), time.monotonic()

    def serve_by_ours(self) -> None:
        """This operator starts, is killed a few times at any moment, and then may work."""
        for _ in range(KILLS):
            self.ours.start()
            time.sleep(self.moments.uniform(0.3, 3.0))
            self.ours.kill()
        self.ours.start()
        self.ours.await_serving()
        self.await_quiet()

    def serve_by_theirs(self) -> None:
        """The same of training-operator."""
        for _ in range(KILLS):
            self.theirs.start(user=tfjob_operators.THEIRS)
            time.sleep(self.moments.uniform(0.0, 1.0))
            self.theirs.stop()
        self.theirs.start(user=tfjob_operators.THEIRS)
        self.await_quiet()


@pytest.fixture
def cluster_of_both(own_control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """training-operator's cluster, with our CRD in it."""
    plane = own_control_plane
    theirs = TrainingOperator(plane)
    theirs.install()
    tfjob_operators.install(plane)
    tfjob_operators.grant_everywhere(plane)
    world = TfJobWorld(plane, plane.new_namespace())
    print(f"DTJ_HAND_OVER_SEED={SEED}")
    with tfjob_operators.ours(plane, log=tmp_path / "operator.log") as ours:
        ours.kill()
        yield Cluster(world, theirs, ours, random.Random(SEED))
        print(ours.log.read_text())


def test_no_pod_is_killed_or_made_twice_and_no_job_is_lost(cluster_of_both: Cluster) -> None:
    cluster, world = cluster_of_both, cluster_of_both.world
    jobs = {f"{STATES[number % len(STATES)].name}-{number}": STATES[number % len(STATES)] for number in range(JOBS)}
    cluster.theirs.start(user=tfjob_operators.THEIRS)
    for name, state in jobs.items():
        world.create(tfjob(name, state.roles, restarts=state.restarts, suspend=state.suspended, cleanPodPolicy="None"))
    for name, state in jobs.items():
        if not state.suspended:
            world.await_pods(name, *_pods_of(state))
        state.play(world, name)
        world.await_condition(name, state.holds)
    cluster.await_quiet()
    before, held = cluster.snapshot(), {name: cluster.held(name) for name in jobs}
    mark = world.plane.audit.mark()
    for _ in range(ROUNDS):
        cluster.theirs.stop()
        cluster.serve_by_ours()
        assert cluster.snapshot() == before
        assert {name: cluster.held(name) for name in jobs} == held
        cluster.ours.kill()
        cluster.serve_by_theirs()
        assert cluster.snapshot() == before
        assert {name: cluster.held(name) for name in jobs} == held
    assert [each for each in cluster.written(since=mark) if each.resource == "pods"] == []

    # Who has them now brings all to their ends, and starts those that were suspended.
    cluster.theirs.stop()
    cluster.serve_by_ours()
    for name, state in jobs.items():
        if state.holds == "Suspended":
            world.suspend(name, suspend=False)
            eventually(partial(_has_pods, world, name))
        if state.holds not in ("Succeeded", "Failed"):
            _finish(world, name)


def _pods_of(state: State) -> list[str]:
    return [f"{role.lower()}-{index}" for role, count in state.roles.items() for index in range(count)]


def _has_pods(world: TfJobWorld, name: str) -> None:
    assert world.pods(name), f"{name} has no pods"


def _finish(world: TfJobWorld, name: str) -> None:
    world.run_pods(name)
    world.await_condition(name, "Running")
    for pod, body in world.pods(name).items():
        if dig(body, "metadata", "labels", "training.kubeflow.org/job-role") == "master":
            world.end_pod(pod, 0)
    world.await_condition(name, "Succeeded")
