"""The gangs of Kubernetes itself, by the real scheduler of 1.37."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from builders import priority_class
from dtj.api.json import JsonObject, dig, objects
from support.gang_schedulers import Groups
from support.job_world import JobWorld
from support.kubernetes_versions import started
from support.slots import Slots, await_bound, bound, submit_eight_for_six_slots
from support.waiting import eventually, eventually_equal
from testbed import ControlPlane

pytestmark = pytest.mark.usefixtures("operator")

NATIVE: JsonObject = {"gang": "Native"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """In place of the shared cluster: a control plane of another version."""
    yield from started("1.37")


@pytest.fixture
def groups(world: JobWorld) -> Groups:
    """The PodGroups of the namespace."""
    return Groups(world, f"scheduling.k8s.io/{world.plane.version.gangs}", "podgroups")


def end_terminating(world: JobWorld) -> None:
    """What a kubelet does with pods that are to stop."""
    for name, pod in world.pods().items():
        if dig(pod, "metadata", "deletionTimestamp"):
            world.delete("pods", name)


def disrupted(world: JobWorld) -> set[str]:
    """The pods that the scheduler has chosen for preemption."""
    return {
        name
        for name, pod in world.pods().items()
        if any(c.get("type") == "DisruptionTarget" for c in objects(dig(pod, "status", "conditions")))
    }


class TestAllPodsOrNone:
    def test_of_eight_pods_that_fit_only_as_six_none_starts(self, world: JobWorld, slots: Slots) -> None:
        submit_eight_for_six_slots(world, slots, NATIVE)
        assert world.job().status.gang == "Native"

    def test_a_job_that_grows_keeps_its_group(self, world: JobWorld, slots: Slots, groups: Groups) -> None:
        policy = {"scheduling": NATIVE}
        world.submit(roles={"worker": 3}, template=slots.template, runPolicy=policy, elastic={"maxReplicas": 5})
        await_bound(world, 3)
        world.run_pods()
        world.await_state("Running")
        before = groups.await_one()
        world.change_spec({"replicaSpecs": {"worker": {"replicas": 5}}})

        def grown() -> JsonObject:
            end_terminating(world)
            group = groups.get()
            assert dig(group, "spec", "schedulingPolicy", "gang", "minCount") == 5
            assert {f"digits-worker-{index}-r1" for index in range(5)} <= set(bound(world))
            assert group is not None
            return group

        after = eventually(grown)
        assert dig(before, "metadata", "uid") == dig(after, "metadata", "uid")


class TestPreemption:
    @pytest.mark.parametrize(
        ("strategy", "roles", "together"),
        [("MultiWorkerMirrored", {"worker": 6}, True), ("ParameterServer", {"chief": 1, "worker": 4, "ps": 1}, False)],
    )
    def test_a_collective_is_preempted_as_a_whole_and_a_parameter_server_job_pod_by_pod(
        self, world: JobWorld, slots: Slots, strategy: str, roles: dict[str, int], together: bool
    ) -> None:
        world.submit(roles=roles, strategy=strategy, template=slots.template, runPolicy={"scheduling": NATIVE})
        await_bound(world, 6)
        world.run_pods()
        world.await_state("Running")
        name = f"urgent-{world.namespace}"
        world.apply(priority_class(name))
        spec = dig(slots.template, "spec")
        assert isinstance(spec, dict)
        world.create("pods", {"metadata": {"name": "urgent"}, "spec": {**spec, "priorityClassName": name}})
        eventually_equal(lambda: len(disrupted(world)), 6 if together else 1)

        def restarted() -> None:
            end_terminating(world)
            restarts = world.job().status.restarts
            assert (restarts.disruption, restarts.total) == (1, 1)

        eventually(restarted)
