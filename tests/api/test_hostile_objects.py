"""What a real API server stores of what is made to harm: the operator goes on, and a job that comes then is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Label
from dtj.kube.rbac import FOR_TFJOBS
from support import tfjob_operators
from support.job_world import JobWorld
from support.operator_process import OperatorProcess, grant
from testbed import ControlPlane
from testbed.peers import TFJOBS

OURS: JsonObject = {"labels": {Label.JOB_NAME: "x"}}
LONG = "<" * 1_400_000


def pod(name: str, **spec: object) -> JsonObject:
    """A pod with our label that no scheduler looks at."""
    container: JsonObject = {"name": "c", "image": "x"}
    return {"metadata": {"name": name, **OURS}, "spec": {"schedulerName": "nobody", "containers": [container], **spec}}  # type: ignore[dict-item]


def a_grace_period_of_2_63_seconds(world: JobWorld) -> None:
    body = pod("bomb", nodeName="n1", terminationGracePeriodSeconds=2**63 - 1)
    world.create("pods", {**body, "metadata": {"name": "bomb", **OURS, "finalizers": ["tests.dtj.dev/stays"]}})
    world.api.request("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/bomb")
    assert world.get("pods", "bomb") is not None


def a_pod_of_eight_megabytes_that_changes(world: JobWorld) -> None:
    world.create("pods", pod("long", containers=[{"name": "c", "image": "x", "args": [LONG]}]))
    for number in "123":
        change: JsonObject = {"metadata": {"annotations": {"number": number}}}
        world.api.request("PATCH", f"/api/v1/namespaces/{world.namespace}/pods/long", change)


def an_owner_of_a_megabyte(world: JobWorld) -> None:
    owner: JsonObject = {"apiVersion": "a.dev/v1", "kind": "B", "name": "x", "uid": "u" * 1_000_000, "controller": True}
    metadata: JsonObject = {"name": "owned", **OURS, "ownerReferences": [owner]}
    world.create("services", {"metadata": metadata, "spec": {"ports": [{"port": 1}]}})


def a_world_of_250_kilobytes(world: JobWorld) -> None:
    body = pod("note")
    world.create(
        "pods", {**body, "metadata": {"name": "note", **OURS, "annotations": {Annotation.WORLD: "9" * 250_000}}}
    )


def a_tfjob_of_many_levels(world: JobWorld) -> None:
    for levels in (900, 2_000, 9_000):
        fields = '{"a":' * levels + "1" + "}" * levels
        container = '{"name":"tensorflow","image":"x"}'
        template = f'{{"spec":{{"containers":[{container}],"schedulingGroup":{fields}}}}}'
        body = (
            f'{{"apiVersion":"kubeflow.org/v1","kind":"TFJob","metadata":{{"name":"deep-{levels}"}},'
            f'"spec":{{"tfReplicaSpecs":{{"Worker":{{"template":{template}}}}}}}}}'
        )
        world.api.text("POST", f"{TFJOBS}/namespaces/{world.namespace}/tfjobs", body.encode())


HOSTILE: tuple[Callable[[JobWorld], None], ...] = (
    a_grace_period_of_2_63_seconds,
    a_pod_of_eight_megabytes_that_changes,
    an_owner_of_a_megabyte,
    a_world_of_250_kilobytes,
    a_tfjob_of_many_levels,
)


def test_objects_that_are_made_to_harm_end_no_operator_and_a_job_is_run(cluster: ControlPlane, tmp_path: Path) -> None:
    tfjob_operators.install(cluster)
    world = JobWorld(cluster, cluster.new_namespace())
    grant(cluster, world.namespace, FOR_TFJOBS)
    log = tmp_path / "operator.log"
    with OperatorProcess.serving(world.plane, [world.namespace], "--tfjobs", log=log) as operator:
        operator.await_serving()
        for make in HOSTILE:
            make(world)
        world.run("while-it-watches")
        assert operator.running, log.read_text()
        code, _ = operator.stop()
        assert code == 0, log.read_text()
        # The next one meets them in its first list.
        operator.start()
        operator.await_serving()
        world.run("after-its-start")
        code, _ = operator.stop()
        assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()
    world.api.request("PATCH", f"/api/v1/namespaces/{world.namespace}/pods/bomb", {"metadata": {"finalizers": []}})
    cluster.delete_namespace(world.namespace)
