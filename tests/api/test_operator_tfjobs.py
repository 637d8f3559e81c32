"""TFJobs of Kubeflow on a real API server: what their users, the SDK, Katib and Kueue read; pods are played."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dtj.api.json import JsonObject, dig, objects
from dtj.kube.rbac import FOR_TFJOBS
from support import tfjob_operators
from support.operator_process import USER, OperatorProcess, grant
from support.tfjob_world import TfJobWorld, tfjob
from support.waiting import eventually, eventually_true
from testbed import ControlPlane


@pytest.fixture(scope="module")
def served(cluster: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TfJobWorld]:
    """A namespace of this file, whose TFJobs an operator serves. Other files of the run use the CRD too: it stays."""
    tfjob_operators.install(cluster)
    namespace, log = cluster.new_namespace(), tmp_path_factory.mktemp("tfjobs") / "operator.log"
    grant(cluster, namespace, FOR_TFJOBS)
    with OperatorProcess.serving(cluster, [namespace], "--tfjobs", log=log) as process:
        yield TfJobWorld(cluster, namespace)
        code, _ = process.stop()
        assert code == 0, log.read_text()
        assert "Traceback" not in log.read_text(), log.read_text()
    cluster.delete_namespace(namespace)


def holding(job: JsonObject) -> dict[str, str]:
    """The conditions of a TFJob, in their order."""
    return {str(each["type"]): str(each["status"]) for each in objects(dig(job, "status", "conditions"))}


def test_a_job_starts_runs_starts_again_and_succeeds(served: TfJobWorld) -> None:
    served.create(tfjob("life", {"Worker": 2}, restarts="ExitCode"))
    served.await_pods("life", "worker-0", "worker-1")
    assert holding(served.await_condition("life", "Created")) == {"Created": "True"}
    served.run_pods("life")
    job = served.await_condition("life", "Running")
    assert holding(job) == {"Created": "True", "Running": "True"}
    assert dig(job, "status", "startTime")
    served.await_counts("life", "Worker", active=2)

    served.end_pod("life-worker-1", 137)
    assert holding(served.await_condition("life", "Restarting")) == {"Created": "True", "Restarting": "True"}
    served.await_pods("life", "worker-0-r1", "worker-1-r1")
    served.run_pods("life")
    served.await_condition("life", "Running")

    for pod in served.pods("life"):
        served.end_pod(pod, 0)
    job = served.await_condition("life", "Succeeded")
    assert holding(job) == {"Created": "True", "Running": "False", "Succeeded": "True"}
    assert dig(job, "status", "completionTime")
    assert dig(job, "status", "dtj", "restarts", "total") == 1
    served.await_counts("life", "Worker", succeeded=2)
    eventually_true(lambda: not served.services("life"))
    assert set(served.pods("life")) == {"life-worker-0-r1", "life-worker-1-r1"}


def test_six_workers_run_after_at_most_fifteen_writes(served: TfJobWorld) -> None:
    mark = served.plane.audit.mark()
    served.create(tfjob("six", {"Worker": 6}))
    served.await_pods("six", *(f"worker-{index}" for index in range(6)))
    served.run_pods("six")
    served.await_condition("six", "Running")

    def counted() -> None:
        calls = served.plane.audit.writes(since=mark, user=USER, namespace=served.namespace)
        assert len(calls) <= 15, calls

    eventually(counted)
