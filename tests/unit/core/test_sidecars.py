"""The end of a pod is the end of its main container: what sidecars do decides nothing, and holds nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Annotation, Condition
from dtj.core.actions import DeletePod
from dtj.core.end_reasons import PodFailureClass
from dtj.core.observed import Phase, Pod, Termination
from dtj.core.pod_failure import ends_of
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object
from world import World, live, running

LATER = 6.0
"""Seconds after which sidecars that go on have had their time."""


def end_main(world: World, replica: str, code: int, *, sidecars: bool = True, reason: str = "") -> None:
    """The main container ends; the pod runs on, since its sidecars do."""
    world.set_pod(replica, Phase.RUNNING, exit_code=code, reason=reason)
    name = f"{world.job.name}-{replica}"
    world.pods[name] = replace(world.pods[name], ready=False, sidecars=sidecars)


def stop_sidecars(world: World) -> None:
    """Their time passes, and the pods that are deleted for it vanish."""
    for _ in range(2):
        world.settle()
        world.wait(LATER)
        world.finish_deletions()
    world.settle()


class TestAJobWhoseSidecarsNeverEnd:
    @pytest.mark.parametrize("reason", ["", "OOMKilled"])
    def test_fails_when_its_main_container_does(self, reason: str) -> None:
        world = running(roles={"worker": 2}, backoffLimit=0)
        end_main(world, "worker-1", 137, reason=reason)
        stop_sidecars(world)
        assert world.is_true(Condition.FAILED)
        assert world.root_cause().exit_code == 137

    @pytest.mark.parametrize("policy", ["None", "Running", "All"])
    def test_leaves_no_sidecar_running_under_any_clean_pod_policy(self, policy: str) -> None:
        world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1}, cleanPodPolicy=policy)
        end_main(world, "chief-0", 0)
        end_main(world, "worker-0", 0)
        stop_sidecars(world)
        assert world.is_true(Condition.COMPLETE)
        assert set(world.pods) == ({"digits-ps-0"} if policy == "None" else set())

    def test_stops_a_replica_that_completed_while_the_others_go_on_once_that_is_recorded(self) -> None:
        world = running(roles={"worker": 2}, successPolicy="AllWorkers")
        end_main(world, "worker-1", 0)
        world.advance(LATER)
        plan = world.step()
        assert not any(isinstance(action, DeletePod) for action in plan[:1]), "recorded first"
        assert world.job.status.replica_statuses["worker"].completed_indexes == "1"
        world.settle_deletions()
        assert set(world.pods) == {"digits-worker-0"}
        assert world.job.status.restarts.total == 0, "our own deletion is no disruption"
        world.sees("worker-0", Phase.SUCCEEDED)
        assert world.is_true(Condition.COMPLETE)

    def test_replaces_a_replica_alone_only_when_its_sidecars_have_left_the_address(self) -> None:
        world = running(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1})
        end_main(world, "worker-0", 3)
        world.wait(LATER)
        assert "digits-worker-0-r1" not in world.pods
        world.settle_deletions()
        assert "digits-worker-0-r1" in world.pods


@pytest.mark.parametrize(("code", "ends"), [(0, Condition.COMPLETE), (3, Condition.FAILED)])
@pytest.mark.parametrize("native", [False, True], ids=["end by themselves", "are left to their kubelet"])
def test_the_pod_and_its_log_stay_when_its_sidecars_end_or_are_the_kubelets(
    native: bool, code: int, ends: Condition
) -> None:
    world = running(roles={"worker": 1}, backoffLimit=0)
    end_main(world, "worker-0", code, sidecars=not native)
    world.settle()
    world.advance(3)
    if not native:
        world.pods["digits-worker-0"] = replace(world.pods["digits-worker-0"], phase=Phase.SUCCEEDED, sidecars=False)
    world.wait(60)
    assert world.is_true(ends)
    assert live(world) == {"digits-worker-0"}


def test_a_sidecar_that_fails_afterwards_fails_nothing() -> None:
    world = running(roles={"worker": 1}, backoffLimit=0)
    world.sees("worker-0", Phase.FAILED, exit_code=0)
    assert world.is_true(Condition.COMPLETE)
    assert world.job.status.replica_statuses["worker"].failed == 0


# -- reading a pod ----------------------------------------------------------------------------------------------------


def made() -> JsonObject:
    """The pod that is made of a template whose only container has a name of its own."""
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}
    world = World(job(strategy="OneDevice", roles={"worker": 1}, template=template)).settle()
    return copy.deepcopy(world.manifests["digits-worker-0"])


def seen(phase: str, *, order: tuple[str, ...] = ("istio-proxy", "tensorflow"), **states: JsonObject) -> Pod:
    """That pod with a sidecar that a webhook added, in these states."""
    body = made()
    spec = object_at(body, "spec")
    spec["containers"] = [{"name": name} for name in order]
    body["status"] = {
        "phase": phase,
        "containerStatuses": [{"name": name.replace("_", "-"), "state": state} for name, state in states.items()],
    }
    return pod_from(pod_from_object(body))


def over(code: int, reason: str = "Error") -> JsonObject:
    return {"terminated": {"exitCode": code, "reason": reason, "finishedAt": "2026-01-02T03:14:00Z"}}


RUNS: JsonObject = {"running": {}}


@pytest.mark.parametrize("order", [("istio-proxy", "tensorflow"), ("tensorflow", "istio-proxy")])
@pytest.mark.parametrize(
    ("main", "sidecar", "expected"),
    [
        (over(3), over(143), PodFailureClass.USER_ERROR),
        (over(3), over(0, "Completed"), PodFailureClass.USER_ERROR),
        (over(137, "OOMKilled"), over(0, "Completed"), PodFailureClass.OUT_OF_MEMORY),
        (over(0, "Completed"), over(143), PodFailureClass.COMPLETED),
    ],
)
def test_the_container_that_trains_is_known_wherever_a_sidecar_is_injected(
    order: tuple[str, ...], main: JsonObject, sidecar: JsonObject, expected: PodFailureClass
) -> None:
    found = seen("Failed", order=order, tensorflow=main, istio_proxy=sidecar)
    assert [ended.failure_class for ended in ends_of([found])] == [expected]


def test_a_name_that_the_template_gives_the_annotation_does_not_mislead() -> None:
    template = {
        "metadata": {"annotations": {Annotation.MAIN_CONTAINER: "logs"}},
        "spec": {"containers": [{"name": "logs", "image": "x"}, {"name": "trainer", "image": "x"}]},
    }
    world = World(job(strategy="OneDevice", roles={"worker": 1}, template=template)).settle()
    assert dig(world.manifests["digits-worker-0"], "metadata", "annotations", Annotation.MAIN_CONTAINER) == "trainer"


def test_in_a_pod_of_kubeflows_operator_the_container_of_its_name_trains_whatever_its_users_annotate() -> None:
    annotations: JsonObject = {Annotation.MAIN_CONTAINER: "logs"}
    containers: list[JsonObject] = [{"name": "trainer"}, {"name": "logs"}, {"name": "tensorflow"}]
    body: JsonObject = {"metadata": {"name": "a", "annotations": annotations}, "spec": {"containers": [*containers]}}
    assert pod_from_object(body).main_container == "tensorflow"


@pytest.mark.parametrize(
    ("sidecar", "runs"), [(RUNS, True), ({"waiting": {"reason": "ImagePullBackOff"}}, True), (over(0), False)]
)
def test_a_pod_says_whether_ordinary_sidecars_go_on(sidecar: JsonObject, runs: bool) -> None:
    found = seen("Running", tensorflow=over(0), istio_proxy=sidecar)
    assert (found.main_container_ended, found.succeeded, found.all_containers_ended, found.sidecars) == (
        True,
        True,
        False,
        runs,
    )


def test_an_init_container_that_failed_says_why_the_pod_did() -> None:
    body = made()
    spec = object_at(body, "spec")
    spec["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "fetch"}]
    body["status"] = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "proxy", "state": over(137)}, {"name": "fetch", "state": over(42)}],
        "containerStatuses": [{"name": "tensorflow", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    found = pod_from(pod_from_object(body))
    assert found.termination is not None
    assert (found.termination.init_container, found.termination.exit_code) == ("fetch", 42)
    assert [ended.failure_class for ended in ends_of([found])] == [PodFailureClass.USER_ERROR], (
        "its codes are none of the trainer's"
    )


def test_a_pods_end_is_its_main_containers() -> None:
    found = replace(seen("Running", tensorflow=RUNS, istio_proxy=over(143)), ready=True)
    assert not found.main_container_ended
    assert replace(found, termination=Termination(exit_code=0)).succeeded
