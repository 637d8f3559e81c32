"""Jobs on a real node: replicas run, find each other by the names in TF_CONFIG, and land where they should."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api.json import JsonObject
from support.operator_process import OperatorProcess
from testbed import Cluster, NodeCluster, tiny_image
from testbed.fake_nodes import FakeNode
from testbed.processes import wait_until
from testbed.rest import Json

pytestmark = pytest.mark.e2e

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

MEET_ALL = """
nc -ll -p 2222 -e echo here &
for peer in $(echo "$TF_CONFIG" | grep -o '[a-z0-9.-]*:2222' | cut -d: -f1); do
  until nc "$peer" 2222; do sleep 0.1; done
done
sleep 3
"""
"""Answers on the port of TF_CONFIG until every address in it has answered, and a little longer for the others."""


class Jobs:
    """One namespace of a cluster in which the operator runs jobs."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace

    def submit(self, body: JsonObject) -> None:
        self._cluster.kubectl("apply", "-n", self._namespace, "-f", "-", stdin=json.dumps(body))

    def await_condition(self, job: str, condition: str) -> None:
        """Wait for a condition; fail with what the cluster says of the job and its pods."""
        waited = self._cluster.kubectl(
            "wait", "-n", self._namespace, f"dtj/{job}", f"--for=condition={condition}", "--timeout=90s", check=False
        )
        assert waited.returncode == 0, f"{waited.stderr}\n{self._story(job)}"

    def pods(self) -> dict[str, Json]:
        found = self._cluster.api.request("GET", f"/api/v1/namespaces/{self._namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def job(self, name: str) -> Json:
        path = f"/apis/training.dtj.dev/v1alpha1/namespaces/{self._namespace}/distributedtrainingjobs/{name}"
        return self._cluster.api.request("GET", path)

    def delete(self, job: str) -> None:
        self._cluster.kubectl("delete", "-n", self._namespace, f"dtj/{job}")

    def left(self) -> str:
        """Names of what is left in the namespace of all that a job makes."""
        return self._cluster.kubectl(
            "get", "-n", self._namespace, "dtj,pods,services,persistentvolumeclaims", "-o", "name"
        ).stdout

    def _story(self, job: str) -> str:
        asked = (["describe", f"dtj/{job}"], ["logs", "-l", f"training.dtj.dev/job-name={job}", "--prefix"])
        said = (self._cluster.kubectl(*words, "-n", self._namespace, check=False) for words in asked)
        return "\n".join(done.stdout + done.stderr for done in said)


@pytest.fixture
def jobs(node_cluster: Cluster, node_namespace: str, tmp_path: Path) -> Iterator[Jobs]:
    operator = OperatorProcess(node_cluster.kubeconfig, f"--namespace={node_namespace}", log=tmp_path / "operator.log")
    with operator:
        yield Jobs(node_cluster, node_namespace)


def tiny(script: str) -> dict[str, object]:
    """A pod template that runs a shell script in the image that the testbed's node has."""
    container = {"name": "trainer", "image": tiny_image.NAME, "imagePullPolicy": "Never", "command": ["sh", "-ec"]}
    return {"spec": {"terminationGracePeriodSeconds": 1, "containers": [{**container, "args": [script]}]}}


def example(name: str) -> JsonObject:
    body: JsonObject = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    return body


def test_replicas_meet_under_the_names_of_tf_config_and_deletion_leaves_nothing(
    node_testbed: NodeCluster, jobs: Jobs
) -> None:
    roles = {"chief": 1, "worker": 2}
    jobs.submit(manifest("meet", roles=roles, template=tiny(MEET_ALL), runPolicy={"successPolicy": "AllWorkers"}))
    jobs.await_condition("meet", "Complete")
    assert {pod["spec"]["nodeName"] for pod in jobs.pods().values()} == {"node1"}
    jobs.delete("meet")
    # The garbage collector of a young cluster looks for new kinds of owners every 30 seconds.
    wait_until(lambda: jobs.left() == "", seconds=90, what="the garbage collector")


def test_a_replica_that_fails_is_named_with_its_code_and_last_words(node_testbed: NodeCluster, jobs: Jobs) -> None:
    script = 'if [ "$DTJ_INDEX" = 1 ]; then echo no such flower; exit 3; fi; sleep 300'
    jobs.submit(manifest("fails", roles={"worker": 2}, template=tiny(script)))
    jobs.await_condition("fails", "Failed")
    cause = jobs.job("fails")["status"]["rootCause"]
    assert (cause["pod"], cause["exitCode"], cause["node"]) == ("fails-worker-1", 3, "node1")
    assert cause["message"].strip() == "no such flower"
    wait_until(lambda: list(jobs.pods()) == ["fails-worker-1"], seconds=30, what="the end of the other pod")


@pytest.mark.parametrize(
    ("name", "profile", "resource"),
    [("digits-gpu", "gke-nvidia-l4", "nvidia.com/gpu"), ("digits-tpu", "tpu-v5e", "google.com/tpu")],
)
def test_replicas_land_on_the_nodes_that_have_their_accelerator(
    jobs: Jobs, fake_nodes: tuple[FakeNode, ...], name: str, profile: str, resource: str
) -> None:
    body = example(name)
    body["spec"]["accelerator"]["profile"] = profile  # type: ignore[index,call-overload]
    jobs.submit(body)
    jobs.await_condition(name, "PodsReady")
    nodes = {node.name: node for node in fake_nodes}
    landed = [nodes[pod["spec"]["nodeName"]] for pod in jobs.pods().values()]
    assert len({node.name for node in landed}) == 2
    assert {node.resource for node in landed} == {resource}
