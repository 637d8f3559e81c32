"""MultiKueue: a job of the manager cluster runs as a copy in a worker cluster, with a real Kueue in each."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dtj.api import kueue, names
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition
from support.job_world import JobWorld
from support.kueue_queues import Queues
from support.operator_process import OperatorProcess, grant, grant_flavors
from support.waiting import eventually_equal
from testbed import ControlPlane, runs
from testbed.kueue import Kueue, Limits

USER = "multikueue"


@dataclass(frozen=True)
class Clusters:
    """The queues of both clusters, of the same names, in a namespace of the same name."""

    manager: Queues
    worker: Queues

    def submit(self, *, elastic: JsonObject | None = None, **policy: object) -> None:
        """A job of two pods that MultiKueue runs elsewhere, with these fields of its runPolicy."""
        self.manager.submit(managedBy=kueue.MULTIKUEUE, runPolicy=policy, elastic=elastic)

    def run(self) -> None:
        """Wait until the copy runs, and the job in the manager cluster reports that."""
        self.worker.run()
        self.manager.world.await_state("Running")

    def await_no_copy(self) -> None:
        """Wait until nothing of the job is in the worker cluster."""
        world = self.worker.world
        eventually_equal(lambda: (world.jobs(), self.worker.workload(), world.pods()), ([], None, {}))


@pytest.fixture(scope="class")
def second_cluster(kueue: Kueue, own_control_plane: ControlPlane) -> ControlPlane:
    """A worker cluster with a Kueue of its own."""
    other = Kueue(own_control_plane)
    with runs.launching():
        other.install()
        other.start(Limits())
    return own_control_plane


@pytest.fixture(scope="class")
def account(second_cluster: ControlPlane) -> Path:
    """The kubeconfig with which MultiKueue works in the worker cluster."""
    return _account(second_cluster)


@pytest.fixture
def clusters(
    queues: Queues, second_cluster: ControlPlane, account: Path, operator: object, tmp_path: Path
) -> Iterator[Clusters]:
    """A queue of two CPUs in each cluster, the manager's with MultiKueue, and an operator in each."""
    manager = queues.world
    second_cluster.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": manager.namespace}})
    grant(second_cluster, manager.namespace)
    grant_flavors(second_cluster, manager.namespace)
    worker = Queues(JobWorld(second_cluster, manager.namespace), queues.prefix)
    worker.make("gpus", cpus=2)
    _connect(queues, account)
    log = tmp_path / "worker.log"
    with OperatorProcess.serving(second_cluster, [manager.namespace], log=log):
        yield Clusters(queues, worker)
        print(log.read_text())
    assert " ERROR " not in log.read_text()


def _account(worker: ControlPlane) -> Path:
    """The kubeconfig of an account with the rights that docs/queues.md lists, and those of Kueue's own documents."""
    rules = [
        _rule(names.GROUP, names.PLURAL, "get", "list", "watch", "create", "delete"),
        _rule(names.GROUP, f"{names.PLURAL}/status", "get"),
        # Kueue watches every kind that its configuration names in all clusters, here that of Kubernetes' own jobs, too.
        _rule("batch", "jobs", "get", "list", "watch", "create", "delete"),
        _rule("batch", "jobs/status", "get"),
        _rule("kueue.x-k8s.io", "workloads", "get", "list", "watch", "create", "delete", "update", "patch"),
        _rule("kueue.x-k8s.io", "workloads/status", "get", "update", "patch"),
        _rule("kueue.x-k8s.io", "clusterqueues", "get", "list", "watch"),
        _rule("kueue.x-k8s.io", "localqueues", "get", "list", "watch"),
    ]
    worker.grant(USER, rules)
    return worker.kubeconfig_for(USER)


def _rule(group: str, resource: str, *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": [resource], "verbs": [*verbs]}


def _connect(queues: Queues, account: Path) -> None:
    """A queue whose jobs run in the worker cluster."""
    secret: JsonObject = {
        "metadata": {"name": queues.prefix, "namespace": "kube-system"},
        "data": {"kubeconfig": base64.b64encode(account.read_bytes()).decode()},
    }
    queues.world.api.request("POST", "/api/v1/namespaces/kube-system/secrets", secret)
    source: JsonObject = {"kubeConfig": {"locationType": "Secret", "location": queues.prefix}}
    cluster = queues.create("MultiKueueCluster", "worker", {"clusterSource": source})
    config = queues.create("MultiKueueConfig", "config", {"clusters": [cluster]})
    reference: JsonObject = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": config}
    check = queues.create("AdmissionCheck", "check", {"controllerName": kueue.MULTIKUEUE, "parameters": reference})
    queues.make("gpus", cpus=2, check=check)


class TestMultiKueue:
    def test_a_job_runs_in_the_worker_cluster_and_its_status_is_that_of_the_copy(self, clusters: Clusters) -> None:
        clusters.submit()
        clusters.run()
        manager, worker = clusters.manager, clusters.worker
        assert manager.world.pods() == {}
        copy = worker.world.body()
        assert dig(copy, "spec", "managedBy") is None
        owner = dig(worker.workload() or {}, "metadata", "ownerReferences", 0)
        assert dig(owner, "uid") == dig(copy, "metadata", "uid")
        manager.await_condition("PodsReady", "True/Started")
        worker.world.end_pod("digits-worker-0", exit_code=0)
        job = manager.world.await_state("Succeeded")
        assert job.status.is_true(Condition.COMPLETE)
        manager.await_condition("Finished", "True/Succeeded")
        clusters.await_no_copy()
        manager.await_used("gpus", 0)

    def test_a_job_that_is_deleted_in_the_manager_cluster_stops(self, clusters: Clusters) -> None:
        clusters.submit()
        clusters.run()
        clusters.manager.world.delete_job()
        clusters.await_no_copy()
        clusters.manager.await_used("gpus", 0)

    @pytest.mark.parametrize("cause", ["evicted", "scaled"])
    def test_a_job_that_is_evicted_or_scaled_in_the_worker_cluster_is_queued_again(
        self, clusters: Clusters, cause: str
    ) -> None:
        clusters.submit(elastic={"minReplicas": 1, "maxReplicas": 2})
        clusters.run()
        first = dig(clusters.worker.world.body(), "metadata", "uid")
        if cause == "evicted":
            clusters.worker.change({"active": False})
        else:
            clusters.worker.world.change_spec({"replicaSpecs": {"worker": {"replicas": 1}}})
        clusters.manager.await_condition("Requeued", "True")

        def again() -> None:
            uids = {dig(copy, "metadata", "uid") for copy in clusters.worker.world.jobs()} - {first}
            pods = clusters.worker.world.pods().values()
            assert [dig(pod, "metadata", "ownerReferences", 0, "uid") in uids for pod in pods] == [True, True]

        clusters.worker.world.eventually(again)
        clusters.run()

    def test_the_time_to_live_of_a_job_that_has_ended_counts_in_the_manager_cluster(self, clusters: Clusters) -> None:
        clusters.submit(ttlSecondsAfterFinished=0)
        clusters.run()
        clusters.worker.world.end_pod("digits-worker-0", exit_code=0)
        eventually_equal(clusters.manager.world.jobs, [])
        clusters.await_no_copy()

    def test_a_suspended_job_has_no_copy(self, clusters: Clusters) -> None:
        clusters.submit()
        clusters.run()
        clusters.manager.world.change_spec({"runPolicy": {"suspend": True}})
        clusters.await_no_copy()
        clusters.manager.world.await_state("Suspended")
        clusters.manager.world.change_spec({"runPolicy": {"suspend": False}})
        clusters.run()
