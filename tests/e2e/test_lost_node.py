"""A node that loses its power, as the planner sees its pods."""

from __future__ import annotations

from dtj.api.json import JsonObject
from dtj.core.observed import Pod
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object
from support.cluster_jobs import ClusterJobs
from testbed import NodeCluster, tiny_image
from testbed.processes import wait_until
from testbed.second_node import SecondNode


def test_a_pod_whose_node_lost_its_power_is_silent_and_not_merely_unready(
    node_testbed: NodeCluster, node_namespace: str
) -> None:
    jobs = ClusterJobs(node_testbed, node_namespace)

    def seen() -> Pod:
        return pod_from(pod_from_object(jobs.pods()["powered"]))

    container: JsonObject = {"name": "trainer", "image": tiny_image.NAME, "imagePullPolicy": "Never"}
    with SecondNode.beside(node_testbed, "second") as second:
        spec: JsonObject = {"nodeName": second.name, "containers": [container]}
        jobs.submit({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "powered"}, "spec": spec})
        wait_until(lambda: seen().ready, what="the pod")
        assert not seen().silent
        with second.lost():
            wait_until(lambda: not seen().ready, what="the node controller")
            assert seen().silent
        jobs.kubectl("delete", "pod", "powered", "--force", "--grace-period=0")
