"""TFJobs of Kubeflow on a real API server: what their users, the SDK, Katib and Kueue read; pods are played."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj.api.json import JsonObject, dig, objects
from dtj.kube.rbac import FOR_TFJOBS
from support import tfjob_operators
from support.operator_process import USER, OperatorProcess, grant
from support.tfjob_world import LABELS, TfJobWorld, tfjob
from support.waiting import eventually, eventually_true
from testbed import ControlPlane

ROLES = {"Chief": 1, "Worker": 2, "PS": 1}


@pytest.fixture(scope="module")
def world(cluster: ControlPlane) -> Iterator[TfJobWorld]:
    """A namespace of this file. Other files of the run use the CRD too, so it stays."""
    tfjob_operators.install(cluster)
    namespace = cluster.new_namespace()
    grant(cluster, namespace, FOR_TFJOBS)
    yield TfJobWorld(cluster, namespace)
    cluster.delete_namespace(namespace)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of the operator, which serves all tests of this file."""
    return tmp_path_factory.mktemp("tfjobs") / "operator.log"


@pytest.fixture(scope="module")
def operator(world: TfJobWorld, log: Path) -> Iterator[OperatorProcess]:
    """It serves them all."""
    with OperatorProcess.serving(world.plane, [world.namespace], "--tfjobs", log=log) as process:
        yield process
        code, _ = process.stop()
        assert code == 0, log.read_text()
        defects = [line for line in process.lines() if "Traceback" in line]
        assert not defects, log.read_text()


@pytest.fixture
def served(world: TfJobWorld, operator: OperatorProcess, log: Path) -> Iterator[TfJobWorld]:
    """The operator serves TFJobs."""
    yield world
    print(log.read_text())  # shown where the test fails


def holding(job: JsonObject) -> dict[str, str]:
    """The conditions of a TFJob, in their order."""
    return {str(each["type"]): str(each["status"]) for each in objects(dig(job, "status", "conditions"))}


def test_a_job_gets_the_pods_services_and_addresses_that_kubeflow_gives_it(served: TfJobWorld) -> None:
    uid = dig(served.create(tfjob("net", ROLES)), "metadata", "uid")
    names = ("chief-0", "ps-0", "worker-0", "worker-1")
    pods = served.await_pods("net", *names)
    assert set(served.services("net")) == set(pods)
    pod = pods["net-worker-1"]
    assert dig(pod, "metadata", "ownerReferences", 0, "uid") == uid
    wanted = {"job-name": "net", "operator-name": "tfjob-controller", "replica-type": "worker", "replica-index": "1"}
    labels = dig(pod, "metadata", "labels")
    assert isinstance(labels, dict)
    assert {key: labels.get(f"{LABELS}/{key}") for key in wanted} == wanted
    masters = [name for name, each in pods.items() if dig(each, "metadata", "labels", f"{LABELS}/job-role") == "master"]
    assert masters == ["net-chief-0"]
    service = served.services("net")["net-worker-1"]
    assert dig(service, "spec", "selector") == {f"{LABELS}/{key}": value for key, value in wanted.items()}
    assert (dig(service, "spec", "clusterIP"), dig(service, "spec", "ports", 0, "port")) == ("None", 2222)
    environment = {each["name"]: each.get("value") for each in objects(dig(pod, "spec", "containers", 0, "env"))}
    config = json.loads(str(environment["TF_CONFIG"]))
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["environment"] == "cloud"
    assert config["cluster"]["ps"] == [f"net-ps-0.{served.namespace}.svc:2222"]


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


def test_a_job_that_fails_says_which_pod_and_how(served: TfJobWorld) -> None:
    served.create(tfjob("bad", {"Worker": 2}))
    served.await_pods("bad", "worker-0", "worker-1")
    served.run_pods("bad")
    served.end_pod("bad-worker-1", 3)
    job = served.await_condition("bad", "Failed")
    assert "Succeeded" not in holding(job)
    failed = served.condition("bad", "Failed")
    assert failed["reason"] == "TFJobFailed"
    assert "bad-worker-1" in str(failed["message"])
    assert "code 3" in str(failed["message"])


def test_a_suspended_job_gives_all_back_and_starts_anew(served: TfJobWorld) -> None:
    served.create(tfjob("paused", {"Worker": 1}, suspend=True))
    assert holding(served.await_condition("paused", "Suspended")) == {"Created": "True", "Suspended": "True"}
    assert not served.pods("paused")
    served.suspend("paused", suspend=False)
    served.await_pods("paused", "worker-0")
    served.run_pods("paused")
    served.await_condition("paused", "Running")
    assert served.condition("paused", "Suspended")["status"] == "False"

    served.suspend("paused", suspend=True)
    job = served.await_condition("paused", "Suspended")
    assert holding(job) == {"Created": "True", "Running": "False", "Suspended": "True"}
    eventually_true(lambda: not served.pods("paused") and not served.services("paused"))
    served.await_counts("paused", "Worker")


def test_what_another_controller_manages_is_left_alone(served: TfJobWorld) -> None:
    served.create(tfjob("theirs", {"Worker": 1}, managedBy="kueue.x-k8s.io/multikueue"))
    served.create(tfjob("ours", {"Worker": 1}))
    served.await_pods("ours", "worker-0")
    assert not served.pods("theirs")
    assert "status" not in served.job("theirs")


def test_a_job_that_can_never_run_has_failed_and_says_why(served: TfJobWorld) -> None:
    served.create(tfjob("wrong", {"Trainer": 1}))
    served.await_condition("wrong", "Failed")
    failed = served.condition("wrong", "Failed")
    assert failed["reason"] == "TFJobFailedValidation"
    assert "spec.tfReplicaSpecs.Trainer" in str(failed["message"])
    assert not served.pods("wrong")


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
