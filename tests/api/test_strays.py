"""Objects in other namespaces that claim to belong to a job, on a real API server.

The API server does not check owner references across namespaces."""

from __future__ import annotations

from pathlib import Path

from dtj.api import names
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Label
from support.job_world import JobWorld
from support.operator_process import OperatorProcess, grant
from support.waiting import always
from testbed import ControlPlane

MERGE_PATCH = "application/merge-patch+json"
POD: JsonObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "digits-worker-0", "finalizers": ["example.com/stay"]},
    "spec": {"containers": [{"name": "trainer", "image": "example/trainer:1"}]},
}
WORDS = '{"export": {"path": "gs://somewhere/else", "formats": ["SavedModel"], "digest": "sha256:666"}}'


def test_a_pod_of_another_namespace_that_claims_a_job_decides_nothing_of_it(
    world: JobWorld, cluster: ControlPlane, tmp_path: Path
) -> None:
    """The pod has the name of the job's first worker, ends with success, and gets its labels and owner reference then.

    A finalizer keeps it from the garbage collector, which would take it.
    """
    theirs = JobWorld(cluster, cluster.new_namespace())
    grant(cluster, theirs.namespace)
    with OperatorProcess.serving(world.plane, [world.namespace, theirs.namespace], log=tmp_path / "log") as operator:
        job = world.run(roles={"worker": 3})
        theirs.create("pods", POD)
        theirs.end_pod("digits-worker-0", exit_code=0, message=WORDS)
        claim(theirs, job.uid)
        world.run_pod("digits-worker-1")  # what happens to a pod has its job looked at

        def unmoved() -> None:
            status = world.job().status
            assert (status.state, status.is_true(Condition.COMPLETE), status.export) == ("Running", False, None)

        always(unmoved, seconds=5.0)
        assert len(world.pods()) == 3
        assert "ERROR" not in operator.log.read_text()


def claim(world: JobWorld, uid: str) -> None:
    """Give the pod the labels and the owner reference that the operator gives to pods of the job with this UID."""
    owner: JsonObject = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": "digits", "uid": uid}
    labels: JsonObject = {
        Label.JOB_NAME: "digits",
        Label.JOB_UID: uid,
        Label.ROLE: "worker",
        Label.INDEX: "0",
        Label.ATTEMPT: "1",
    }
    metadata: JsonObject = {"labels": labels, "ownerReferences": [{**owner, "controller": True}]}
    path = f"/api/v1/namespaces/{world.namespace}/pods/digits-worker-0"
    world.api.request("PATCH", path, {"metadata": metadata}, content_type=MERGE_PATCH)
