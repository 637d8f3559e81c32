"""Kueue chooses the nodes of a job by their topology, and gives each pod its node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtj.api.json import JsonObject, dig, object_at, text
from dtj.api.kueue import POD_SET_GROUP, TOPOLOGY_REQUIRED
from support.job_world import JobWorld
from support.kueue_queues import ONE_CPU, Queues
from support.slots import make_node
from support.waiting import eventually_equal, eventually_true

pytestmark = pytest.mark.usefixtures("operator")

POOL, RACK, HOST = "example.com/pool", "example.com/rack", "kubernetes.io/hostname"
HOSTS = 2
"""Nodes in a rack."""


class Racks:
    """Two racks of two nodes with two CPUs each, behind a queue that knows of them.

    They are tainted: the scheduler would bind the pods of other tests to them, which end when the nodes are removed.
    """

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self._pool: JsonObject = {POOL: queues.prefix}
        self._lost: list[str] = []
        self.rack_of = {f"{queues.prefix}-{rack}{host}": rack for rack in "ab" for host in range(HOSTS)}

    def build(self) -> None:
        levels: JsonObject = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}
        topology = self.queues.create("Topology", "topology", levels)
        self.queues.create("ResourceFlavor", "flavor", {"nodeLabels": self._pool, "topologyName": topology})
        self.queues.make("gpus", cpus=100)
        self.queues.await_active("gpus")
        # Last: Kueue looks again at the jobs of active queues when a node comes, but not when it has learned of those
        # that were there before.
        amounts: JsonObject = {"cpu": "2", "memory": "8Gi", "pods": "110"}
        for name, rack in self.rack_of.items():
            make_node(self.queues.world.api, name, amounts, labels={**self._pool, RACK: rack, HOST: name}, taint=POOL)

    def _nodes(self) -> list[JsonObject]:
        return [self.queues.world.api.request("GET", f"/api/v1/nodes/{name}") for name in self.rack_of]

    def lose(self, node: str) -> None:
        """Delete a node, and with it its pods."""
        api = self.queues.world.api
        api.request("DELETE", f"/api/v1/nodes/{node}")
        self._lost.append(node)

    def remove(self) -> None:
        for name in self.rack_of.keys() - {*self._lost}:
            self.queues.world.api.request("DELETE", f"/api/v1/nodes/{name}")

    def submit(
        self, workers: int, *, level: str = "", group: str = "", strategy: str | None = None, others: object = None
    ) -> None:
        """A job of pods with a CPU each, which must be in one place of this level: those of each role, or of a group of
        this name."""
        annotations: JsonObject = {TOPOLOGY_REQUIRED: level} if level else {}
        if group:
            annotations[POD_SET_GROUP] = group
        metadata: JsonObject = {"annotations": annotations}
        more = {"strategy": strategy} if strategy is not None else {}
        spec: JsonObject = {**object_at(ONE_CPU, "spec"), "tolerations": [{"key": POOL, "operator": "Exists"}]}
        template: JsonObject = {"spec": spec, "metadata": metadata}
        self.queues.submit(workers=workers, template=template, roles=others or {}, **more)

    def nodes(self) -> dict[str, str]:
        """The node that Kueue gave each pod of the job that has one, by the pod's name."""
        return {
            name: text(dig(pod, "spec", "nodeSelector", HOST))
            for name, pod in self.queues.world.pods().items()
            if not dig(pod, "spec", "schedulingGates")
        }

    def await_nodes(self, pods: int) -> dict[str, str]:
        """Wait until this number of pods has nodes; the nodes."""

        def placed() -> dict[str, str]:
            found = self.nodes()
            assert len(found) == pods, (found, self.queues.workload(), self._nodes())
            return found

        return self.queues.world.eventually(placed)


@pytest.fixture
def racks(queues: Queues) -> Iterator[Racks]:
    """The racks of one test."""
    racks = Racks(queues)
    racks.build()
    yield racks
    racks.remove()


class TestTopology:
    def test_the_pods_of_a_job_are_in_one_rack_by_their_ranks(self, racks: Racks) -> None:
        racks.submit(4, level=RACK)
        nodes = racks.await_nodes(4)
        by_rank = [nodes[f"digits-worker-{index}"] for index in range(4)]
        assert len({racks.rack_of[node] for node in by_rank}) == 1
        assert by_rank == sorted(by_rank)
        assert len(set(by_rank)) == HOSTS, "two CPUs on each"

    def test_a_job_that_fits_into_no_rack_waits(self, racks: Racks) -> None:
        racks.submit(5, level=RACK)
        racks.queues.await_message("QuotaReserved", "topology")
        assert racks.queues.world.pods() == {}

    def test_two_roles_of_a_group_are_in_one_rack(self, racks: Racks) -> None:
        racks.submit(3, level=RACK, group="all", others={"chief": 1})
        nodes = racks.await_nodes(4)
        assert len({racks.rack_of[node] for node in nodes.values()}) == 1

    def test_a_job_whose_node_is_lost_is_admitted_again_at_once(self, racks: Racks) -> None:
        queues = racks.queues
        racks.submit(4, level=RACK)
        nodes = racks.await_nodes(4)
        queues.world.run_pods()
        queues.world.await_state("Running")
        racks.lose(nodes["digits-worker-0"])
        queues.await_condition("Evicted", "True/NodeFailures")
        for pod in queues.world.eventually(lambda: _stopping(queues.world, 4)):
            queues.world.delete("pods", pod)
        queues.await_condition("Requeued", "True/NodeFailures")
        queues.run(suffix="-r1", workers=4)
        after = racks.nodes().values()
        assert {racks.rack_of[node] for node in after} != {racks.rack_of[node] for node in nodes.values()}

    def test_a_pod_that_comes_back_gets_the_node_of_its_rank(self, racks: Racks) -> None:
        racks.submit(2, level=RACK, strategy="ParameterServer", others={"chief": 1, "ps": 1})
        before = racks.await_nodes(4)
        world = racks.queues.world
        world.run_pods()
        world.await_state("Running")
        world.end_pod("digits-worker-1", exit_code=137)
        eventually_equal(lambda: racks.nodes().get("digits-worker-1-r1"), before["digits-worker-1"])

    def test_the_ranks_keep_their_order_when_the_pods_of_the_attempt_before_stop_late(self, racks: Racks) -> None:
        racks.submit(4, level=RACK)
        before = racks.await_nodes(4)
        world = racks.queues.world
        world.run_pods()
        world.await_state("Running")
        world.end_pod("digits-worker-3", exit_code=137)
        stopping = world.eventually(lambda: _stopping(world, 3))  # until a kubelet has stopped them, which is played
        for pod in reversed(stopping):
            world.delete("pods", pod)
        after = {f"{name}-r1": node for name, node in before.items()}
        eventually_true(lambda: after.items() <= racks.nodes().items())


def _stopping(world: JobWorld, number: int) -> list[str]:
    found = [name for name, pod in world.pods().items() if dig(pod, "metadata", "deletionTimestamp")]
    assert len(found) == number, found
    return sorted(found)
