"""Call each method of the SDK that concerns TFJobs, as its users do. Prints which were called, and all there are.

usage: use_all_methods.py NAMESPACE
"""

import inspect
import json
import sys
import time
from collections.abc import Callable

from kubeflow.training import (
    KubeflowOrgV1ReplicaSpec,
    KubeflowOrgV1RunPolicy,
    KubeflowOrgV1TFJob,
    KubeflowOrgV1TFJobSpec,
    TrainingClient,
    constants,
)
from kubernetes.client import V1Container, V1ObjectMeta, V1PodSpec, V1PodTemplateSpec

NAMESPACE = sys.argv[1]
CALLED: set[str] = set()


class Recorded(TrainingClient):  # type: ignore[misc]  # the SDK is in another environment
    """Notes which methods are called from here."""

    def __getattribute__(self, name: str) -> object:
        if sys._getframe(1).f_globals["__name__"] == "__main__" and name in PUBLIC:
            CALLED.add(name)
        return super().__getattribute__(name)


PUBLIC = {name for name, _ in inspect.getmembers(TrainingClient, inspect.isfunction) if not name.startswith("_")}


def tfjob(name: str, restarts: str = "Never", **roles: int) -> KubeflowOrgV1TFJob:
    """A TFJob of these roles."""
    container = V1Container(name=constants.TFJOB_CONTAINER, image="example/trainer:1")
    template = V1PodTemplateSpec(spec=V1PodSpec(containers=[container]))
    specs = {
        role: KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy=restarts, template=template)
        for role, count in roles.items()
    }
    return KubeflowOrgV1TFJob(
        api_version=constants.API_VERSION,
        kind=constants.TFJOB_KIND,
        metadata=V1ObjectMeta(name=name, namespace=NAMESPACE),
        spec=KubeflowOrgV1TFJobSpec(run_policy=KubeflowOrgV1RunPolicy(clean_pod_policy="None"), tf_replica_specs=specs),
    )


def end(client: TrainingClient, pod: str, exit_code: int) -> None:
    """Tell whoever plays the pods."""
    change = {"metadata": {"annotations": {"test/exit-code": str(exit_code)}}}
    client.core_api.patch_namespaced_pod(pod, NAMESPACE, change)


def wait(holds: Callable[[], object], what: str) -> None:
    """Until it holds."""
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError(what)


def succeeds(client: TrainingClient) -> None:
    """A job from its creation to its end."""
    client.create_job(tfjob("good", Chief=1, Worker=2))
    wait(lambda: len(client.get_job_pods("good")) == 3, "three pods")
    assert sorted(client.get_job_pod_names("good")) == ["good-chief-0", "good-worker-0", "good-worker-1"]
    assert client.get_job_pod_names("good", is_master=True) == ["good-chief-0"]
    assert client.get_job_pod_names("good", replica_type="worker", replica_index=1) == ["good-worker-1"]

    seen: list[object] = []
    running = {constants.JOB_CONDITION_RUNNING}
    job = client.wait_for_job_conditions(
        "good", expected_conditions=running, polling_interval=1, wait_timeout=60, callback=seen.append
    )
    assert seen
    assert job.status.start_time is not None
    assert client.is_job_created("good")
    assert client.is_job_running("good")
    assert not client.is_job_restarting("good")
    assert not client.is_job_succeeded("good")
    assert not client.is_job_failed("good")
    assert [condition.type for condition in client.get_job_conditions("good")] == ["Created", "Running"]
    wait(lambda: client.get_job("good").status.replica_statuses["Worker"].active == 2, "two active workers")

    assert client.get_job_logs("good")[0] == {"good-chief-0": "good-chief-0 learns\n"}
    logs, events = client.get_job_logs("good", is_master=False, verbose=True)
    assert set(logs) == {"good-chief-0", "good-worker-0", "good-worker-1"}
    assert events["tfjob/good"]

    changed = client.get_job("good")
    changed.metadata.labels = {"team": "vision"}
    client.update_job(changed, "good")
    assert client.get_job("good").metadata.labels == {"team": "vision"}
    assert "good" in [each.metadata.name for each in client.list_jobs()]

    for pod in client.get_job_pod_names("good"):
        end(client, pod, 0)
    job = client.wait_for_job_conditions("good", polling_interval=1, wait_timeout=60)
    assert client.is_job_succeeded(job=job)
    assert not client.is_job_running(job=job)
    assert job.status.completion_time is not None
    client.delete_job("good")
    wait(lambda: "good" not in [each.metadata.name for each in client.list_jobs()], "the job to be gone")


def restarts(client: TrainingClient) -> None:
    """A job whose second pod does not start, so that Restarting is to be seen."""
    client.create_job(tfjob("again", restarts="ExitCode", Worker=1))
    wait(lambda: client.is_job_running("again"), "the job to run")
    (first,) = client.get_job_pods("again")
    end(client, first.metadata.name, 137)
    restarting = {constants.JOB_CONDITION_RESTARTING}
    client.wait_for_job_conditions("again", expected_conditions=restarting, polling_interval=0.2, wait_timeout=60)
    assert client.is_job_restarting("again")
    assert not client.is_job_running("again")


def learn() -> None:
    """What a user of the SDK writes."""
    print("learns")


def fails(client: TrainingClient) -> None:
    """A job that its user made of a function, and that ends by an error."""
    client.create_job(name="bad", base_image="example/trainer:1", train_func=learn, num_workers=2)
    wait(lambda: client.is_job_running("bad"), "the job to run")
    assert len(client.get_job_pods("bad", replica_type="worker")) == 2
    end(client, "bad-worker-0", 1)
    said = ""
    try:
        client.wait_for_job_conditions("bad", polling_interval=1, wait_timeout=60)
    except RuntimeError as error:
        said = str(error)
    assert "is Failed" in said
    assert client.is_job_failed("bad")
    assert not client.is_job_running("bad")


def main() -> None:
    """All lives."""
    client = Recorded(namespace=NAMESPACE, job_kind=constants.TFJOB_KIND)
    succeeds(client)
    restarts(client)
    fails(client)
    print(json.dumps({"called": sorted(CALLED), "all": sorted(PUBLIC)}))


main()
