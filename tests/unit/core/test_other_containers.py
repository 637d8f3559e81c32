"""What containers besides the main one do decides nothing while the training runs, and is said."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from builders import at, job
from dtj.api.form import DTJ, Form
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Condition, Reason
from dtj.api.tfjob.form import TFJOB
from dtj.core.blockers import RECOVERED
from dtj.core.observed import Blocker, Pod
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object
from support.elastic_world import elastic, trains
from world import World

RUNS: Final[JsonObject] = {"running": {"startedAt": at()}}
WAITS: Final[JsonObject] = {"waiting": {"reason": "PodInitializing"}}
BACKS_OFF: Final[JsonObject] = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting ..."}}


def over(code: int, reason: str = "", *, after: float = 0) -> JsonObject:
    why = reason or ("Error" if code else "Completed")
    return {"terminated": {"exitCode": code, "reason": why, "finishedAt": at(after)}}


def told(
    name: str, state: JsonObject, *, ready: bool = False, restarts: int = 0, last: JsonObject | None = None
) -> JsonObject:
    """The status of a container."""
    return {"name": name, "state": state, "ready": ready, "restartCount": restarts, "lastState": last or {}}


def shown(
    body: JsonObject,
    *others: JsonObject,
    main: JsonObject | None = None,
    init: tuple[JsonObject, ...] = (),
    phase: str = "Running",
) -> Pod:
    """The pod of this manifest with other containers, as a kubelet shows it; the one that trains runs, and is ready."""
    found = copy.deepcopy(body)
    metadata, spec = object_at(found, "metadata"), object_at(found, "spec")
    metadata.update(namespace="default", uid="uid-" + str(metadata["name"]))
    spec["nodeName"] = "node-1"
    spec["containers"] = [{"name": "trainer"}, *({"name": each["name"]} for each in others)]
    always: JsonObject = {"restartPolicy": "Always"}
    spec["initContainers"] = [
        {"name": each["name"], **(always if each["name"] == "collector" else {})} for each in init
    ]
    conditions: list[JsonObject] = [
        {"type": kind, "status": "False", "reason": "ContainersNotReady"} for kind in ("Ready", "ContainersReady")
    ]
    found["status"] = {
        "phase": phase,
        "conditions": [*conditions],
        "initContainerStatuses": [*init],
        "containerStatuses": [main or told("trainer", RUNS, ready=True), *others],
    }
    return pod_from(pod_from_object(found))


def body() -> JsonObject:
    return World(job()).settle().manifests["digits-worker-1"]


STATES: Final = {
    "has ended with 0": (told("fetch-code", over(0)), None),
    "failed": (told("fetch-code", over(1)), "container fetch-code failed (exit 1)"),
    "was killed for its memory": (
        told("fetch-code", over(137, "OOMKilled")),
        "container fetch-code failed (exit 137, OOMKilled)",
    ),
    "is not ready": (told("fetch-code", RUNS), "container fetch-code is not ready"),
    "cannot be pulled": (
        told("fetch-code", {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}),
        "container fetch-code: not found",
    ),
    "ends again and again": (
        told("fetch-code", BACKS_OFF, restarts=7, last=over(1)),
        "container fetch-code ends again and again (exit 1, 7 restarts)",
    ),
    "was started again once, and is well": (told("fetch-code", RUNS, ready=True, restarts=1, last=over(1)), None),
}


class TestReadiness:
    @pytest.mark.parametrize("state", STATES)
    @pytest.mark.parametrize("phase", ["Running", "Pending"])
    def test_is_that_of_the_container_that_trains_whatever_another_does(self, state: str, phase: str) -> None:
        container, words = STATES[state]
        found = shown(body(), container, phase=phase)
        assert found.ready
        assert (found.blocker.message if found.blocker is not None else None) == words

    def test_does_not_wait_for_an_injected_sidecar_of_any_kind(self) -> None:
        native = told("collector", BACKS_OFF, restarts=7, last=over(1))
        assert shown(body(), told("istio-proxy", RUNS), init=(native,)).ready

    @pytest.mark.parametrize("state", [RUNS, WAITS, over(1)], ids=["probe fails", "waits", "ended"])
    def test_is_not_given_while_the_container_that_trains_is_not_ready(self, state: JsonObject) -> None:
        assert not shown(body(), told("proxy", RUNS, ready=True), main=told("trainer", state)).ready

    @pytest.mark.parametrize("gate", ["True", "False", None])
    def test_waits_for_the_readiness_gates_of_the_pod(self, gate: str | None) -> None:
        made = body()
        object_at(made, "spec")["readinessGates"] = [{"conditionType": "example.com/network"}]
        found = pod_from_object({**made, "status": {}})
        conditions: list[JsonObject] = [{"type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady"}]
        if gate is not None:
            conditions.append({"type": "example.com/network", "status": gate})
        status: JsonObject = {"phase": "Running", "conditions": [*conditions]}
        status["containerStatuses"] = [told("trainer", RUNS, ready=True)]
        found = pod_from_object({**made, "status": status})
        assert pod_from(found).ready == (gate == "True")

    @pytest.mark.parametrize(("form", "ready"), [(DTJ, False), (TFJOB, True)], ids=["job", "tfjob"])
    def test_is_that_of_its_phase_for_a_tfjob_where_no_kubelet_says_more(self, form: Form, *, ready: bool) -> None:
        assert pod_from(pod_from_object({**body(), "status": {"phase": "Running"}}), form).ready == ready
        unready: JsonObject = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
        assert not pod_from(pod_from_object({**body(), "status": unready}), form).ready

    def test_is_lost_with_the_node_of_which_nothing_is_heard(self) -> None:
        made = body()
        conditions: list[JsonObject] = [
            {"type": "Ready", "status": "False"},
            {"type": "ContainersReady", "status": "True"},
        ]
        status: JsonObject = {"phase": "Running", "conditions": [*conditions]}
        status["containerStatuses"] = [told("trainer", RUNS, ready=True)]
        found = pod_from(pod_from_object({**made, "status": status}))
        assert (found.ready, found.silent) == (False, True)


class TestAJob:
    def shows(self, world: World, pod: Pod) -> None:
        world.pods[pod.name] = replace(pod, created_at=world.pods[pod.name].created_at)
        world.settle()

    def running(self, *others: JsonObject, **policy: object) -> World:
        world = World(job(runPolicy=policy)).settle()
        for name in list(world.pods):
            self.shows(world, shown(world.manifests[name], *(others if name.endswith("1") else ())))
        return world

    def test_runs_while_a_container_that_fetches_code_has_ended(self) -> None:
        world = self.running(told("fetch-code", over(0)), startDeadlineSeconds=60)
        assert world.job.status.state == "Running"
        assert world.condition(Condition.PODS_READY).message == ""
        world.wait(3600)
        assert world.job.status.state == "Running"
        assert not [event for event in world.events if event.type == "Warning"]

    def test_runs_and_says_once_which_container_fails_beside_the_training(self) -> None:
        world = self.running(told("fetch-code", over(1)))
        ready = world.condition(Condition.PODS_READY)
        words = "digits-worker-1: container fetch-code failed (exit 1)"
        assert (ready.status, ready.reason, ready.message) == ("True", Reason.ALL_PODS_READY, words)
        world.wait(3600)
        warnings = [(event.reason, event.message) for event in world.events if event.type == "Warning"]
        assert warnings == [(Reason.CONTAINER_FAILED, words)]

    def test_says_it_again_in_new_numbers_but_reports_it_once(self) -> None:
        world = self.running(told("fetch-code", BACKS_OFF, restarts=2, last=over(1)))
        for restarts in range(3, 9):
            world.advance(61)
            fails = told("fetch-code", BACKS_OFF, restarts=restarts, last=over(1))
            self.shows(world, shown(world.manifests["digits-worker-1"], fails))
        assert world.condition(Condition.PODS_READY).message.endswith("ends again and again (exit 1, 8 restarts)")
        assert [event.reason for event in world.events if event.type == "Warning"] == [Reason.CONTAINER_FAILED]

    def test_forgets_the_failures_of_a_container_that_has_run_for_long(self) -> None:
        well = told("fetch-code", RUNS, ready=True, restarts=7, last=over(1))
        world = self.running(well)
        assert "7 restarts" in world.condition(Condition.PODS_READY).message
        world.wait(RECOVERED.total_seconds())
        assert world.condition(Condition.PODS_READY).message == ""

    @pytest.mark.parametrize(
        ("init", "reason", "words"),
        [
            (
                told("collector", BACKS_OFF, restarts=7, last=over(1)),
                Reason.CONTAINER_FAILED,
                "container collector ends again and again (exit 1, 7 restarts)",
            ),
            (
                told("collector", RUNS, restarts=3, last=over(137)),
                Reason.CONTAINER_FAILED,
                "container collector ends again and again (exit 137, 3 restarts)",
            ),
            (
                told("collector", over(0), restarts=4, last=over(0)),
                Reason.CONTAINER_FAILED,
                "container collector ends again and again (exit 0, 4 restarts)",
            ),
            (
                told("fetch", BACKS_OFF, restarts=2, last=over(2)),
                Reason.CONTAINER_FAILED,
                "container fetch ends again and again (exit 2, 2 restarts)",
            ),
            (told("collector", RUNS), Reason.WAITING_FOR_PODS, "container collector is not ready"),
            (told("fetch", RUNS), Reason.WAITING_FOR_PODS, ""),
            (told("fetch", over(0), ready=True), Reason.WAITING_FOR_PODS, ""),
        ],
        ids=["crashes", "fails its probe", "ends", "init", "is slow to start", "init runs", "init is done"],
    )
    def test_names_the_container_that_keeps_a_pod_from_starting(
        self, init: JsonObject, reason: Reason, words: str
    ) -> None:
        world = World(job()).settle()
        world.advance(60)
        self.shows(world, shown(world.manifests["digits-worker-0"]))
        waits = shown(world.manifests["digits-worker-1"], main=told("trainer", WAITS), init=(init,), phase="Pending")
        self.shows(world, waits)
        world.wait(61)  # mere words are written once a minute
        ready = world.condition(Condition.PODS_READY)
        after = f"; digits-worker-1: {words}" if words else ""
        assert (ready.status, ready.reason, ready.message) == ("False", reason, f"1 of 2 pods are ready{after}")


def test_of_two_containers_the_one_that_fails_is_named_and_not_the_one_that_may_become_ready() -> None:
    found = shown(body(), told("proxy", RUNS), told("collector", over(3)))
    assert found.blocker == Blocker(Reason.CONTAINER_FAILED, "container collector failed (exit 3)")


def test_an_elastic_job_goes_on_with_a_worker_whose_other_container_has_ended() -> None:
    world = trains(elastic(3, least=2))
    name = "digits-worker-1"
    world.pods[name] = replace(
        shown(world.manifests[name], told("fetch-code", over(0))), created_at=world.now - timedelta(minutes=5)
    )
    world.wait(600)
    assert world.members() == {"worker": "0-2"}
    assert world.is_true(Condition.PODS_READY)
