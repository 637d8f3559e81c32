"""Elastic jobs that Kueue admits with fewer workers than they ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job, spec_of
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Condition
from dtj.core.admission.partial_admission import least_workers
from dtj.core.observed import Phase
from dtj.core.platform import PLATFORM_OF_TFJOBS
from support import gang_worlds
from support.gang_worlds import KUEUE, QUEUED, evict
from support.pod_environment import environment_of
from world import World, live

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
BOUNDS: JsonObject = {"minReplicas": 2, "maxReplicas": 6}


IN_SLICES: JsonObject = {
    "metadata": {
        "annotations": {
            "kueue.x-k8s.io/podset-slice-required-topology": "example.com/rack",
            "kueue.x-k8s.io/podset-slice-size": "2",
        }
    },
    "spec": {"containers": [{"name": "trainer", "image": "example/trainer:1"}]},
}


def wanted(**more: object) -> Job:
    return job(**{"roles": {"worker": 4}, "elastic": BOUNDS, "runPolicy": QUEUED, **more})  # type: ignore[arg-type]


def queued(**more: object) -> World:
    return World(wanted(**more), installed=(KUEUE,)).settle()


def admit(story: World, workers: int) -> None:
    """Kueue has this much quota for workers, and the pods of the job run."""
    gang_worlds.admit(story, workers=workers)
    story.start()


def least(story: World) -> dict[str, object]:
    """The least count of each pod set; None where all of its pods are needed."""
    return {
        str(each["name"]): each.get("minCount") for each in objects(dig(story.gang_manifests[-1], "spec", "podSets"))
    }


def living(story: World) -> set[str]:
    return {name.removeprefix("digits-") for name in live(story) if not story.pods[name].main_container_ended}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {"worker": 2}),
        ({"elastic": None}, {"worker": None}),
        ({"elastic": {"minReplicas": 4, "maxReplicas": 6}}, {"worker": None}),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, {"worker": None}),
        (
            {"strategy": "ParameterServer", "roles": {"chief": 1, "worker": 4, "ps": 1}},
            {"chief": None, "worker": 2, "ps": None},
        ),
        ({"template": IN_SLICES}, {"worker": None}),
    ],
    ids=["elastic", "not elastic", "all are the least", "in another cluster", "parameter servers", "placed in groups"],
)
def test_the_workload_names_the_least_number_of_workers(more: dict[str, object], expected: dict[str, object]) -> None:
    assert least(queued(**more)) == expected


def test_a_tfjob_needs_all_its_workers() -> None:
    worker: JsonObject = {"replicas": 8, "template": {"spec": {"containers": [{"name": "tensorflow", "image": "x"}]}}}
    tfjob = Job.from_object(
        {
            "apiVersion": "kubeflow.org/v1",
            "kind": "TFJob",
            "metadata": {"name": "digits", "namespace": "default", "uid": "u", "labels": {QUEUE_LABEL: "team-a"}},
            "spec": {"tfReplicaSpecs": {"Worker": worker}},
        }
    )
    story = World(tfjob, platform=replace(PLATFORM_OF_TFJOBS, queues_tfjobs=True), installed=(KUEUE,)).settle()
    (pods,) = objects(dig(story.gang_manifests[-1], "spec", "podSets"))
    assert (pods["count"], pods.get("minCount")) == (8, None)
    gang_worlds.admit(story, workers=3)
    story.start()
    assert len(live(story)) == 8


def test_the_hosts_of_a_tpu_slice_are_needed_all() -> None:
    hosts = wanted(accelerator={"profile": "tpu-v5e", "topology": "4x4"})
    assert least_workers(hosts, spec_of(hosts), {}) is None


def test_a_job_runs_with_the_workers_that_were_admitted() -> None:
    story = queued()
    admit(story, 3)
    assert living(story) == {"worker-0", "worker-1", "worker-2"}
    assert environment_of(story.manifests["digits-worker-0"])["TF_CONFIG"].count(":2222") == 3
    status = story.job.status
    assert (status.state, status.ready, status.replica_statuses["worker"].desired) == ("Running", "3/3", 3)
    assert story.condition(Condition.PODS_READY).message == "Kueue has admitted 3 of 4 workers"
    assert "Kueue has admitted the job with 3 of 4 workers" in [event.message for event in story.events]


def test_a_job_whose_admitted_workers_complete_has_succeeded() -> None:
    story = queued(runPolicy={**QUEUED, "successPolicy": "AllWorkers"})
    admit(story, 2)
    for index in range(2):
        story.set_pod(f"worker-{index}", Phase.SUCCEEDED)
    story.gang = None  # others may delete it at any time
    story.settle()
    assert story.job.status.state == "Succeeded"
    assert story.job.status.replica_statuses["worker"].desired == 2


def test_a_job_that_waits_again_asks_for_all_workers_again() -> None:
    story = queued()
    admit(story, 2)
    evict(story, "Preempted")
    assert story.job.status.replica_statuses["worker"].desired == 4
    admit(story, 4)
    assert living(story) == {f"worker-{index}-r1" for index in range(4)}
    assert len(story.gang_manifests) == 1


def test_a_job_that_is_scaled_waits_for_what_it_asks_for_now() -> None:
    story = queued()
    admit(story, 2)
    story.becomes(wanted(roles={"worker": 6}))
    story.settle_deletions()
    assert [dig(each, "spec", "podSets", 0, "count") for each in story.gang_manifests] == [4, 6]
    admit(story, 5)
    assert len(living(story)) == 5


def test_completed_workers_give_back_the_quota_that_they_had() -> None:
    """Kueue subtracts from the count that was asked for, and takes the rest if that is less than it admitted."""
    story = queued(strategy="ParameterServer", roles={"chief": 1, "worker": 4, "ps": 1})
    admit(story, 3)
    story.sees("worker-2", Phase.SUCCEEDED)
    assert story.the_gang.status["reclaimablePods"] == [{"name": "worker", "count": 2}]
    assert living(story) == {"chief-0", "ps-0", "worker-0", "worker-1"}
