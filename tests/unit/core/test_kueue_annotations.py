"""What Kueue copies from its own kinds of jobs to their Workloads and pods, and what a job may not ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api import kueue
from dtj.api.json import dig, object_at
from dtj.api.names import Condition
from dtj.core.actions import Update, UpdateWorkloadStatus
from dtj.core.observed import GangApi
from support.gang_worlds import KUEUE, QUEUED, admit, evict
from world import World

GATE = kueue.ADMISSION_GATE
LIMIT = kueue.MAX_EXECUTION_SECONDS
RUN_SECONDS = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"


def queued(**annotations: str) -> World:
    given = job(roles={"worker": 3}, runPolicy=QUEUED)
    return World(replace(given, annotations=annotations), installed=(KUEUE,)).settle()


def test_the_workload_has_the_parameters_of_a_provisioning_request_the_gate_and_the_uid_that_kueuectl_reads() -> None:
    story = queued(**{RUN_SECONDS: "3600", GATE: "example.com/budget", "kueue.x-k8s.io/other": "x"})
    metadata = object_at(story.gang_manifests[-1], "metadata")
    annotations = object_at(metadata, "annotations")
    assert (annotations[RUN_SECONDS], annotations[GATE]) == ("3600", "example.com/budget")
    assert "kueue.x-k8s.io/other" not in annotations
    assert dig(metadata, "labels", "kueue.x-k8s.io/job-uid") == story.job.uid


@pytest.mark.parametrize(("before", "after"), [("", "a.b/c"), ("a.b/c", "a.b/c, d.e/f"), ("a.b/c", "d.e/f")])
def test_a_gate_that_is_added_to_a_job_that_waits_needs_another_workload(before: str, after: str) -> None:
    story = queued(**{GATE: before} if before else {})
    story.job = replace(story.job, annotations={GATE: after})
    story.settle()
    assert not story.taken(Update, GangApi), "Kueue refuses it"
    assert len(story.gang_manifests) == 2
    assert dig(story.gang_manifests[-1], "metadata", "annotations", GATE) == after


@pytest.mark.parametrize(("before", "after"), [("a.b/c", ""), ("a.b/c,d.e/f", "d.e/f"), ("a.b/c, d.e/f", "d.e/f")])
def test_a_gate_that_is_taken_off_a_job_that_waits_is_taken_off_its_workload(before: str, after: str) -> None:
    story = queued(**{GATE: before})
    story.job = replace(story.job, annotations={GATE: after} if after else {})
    story.settle()
    (update,) = story.taken(Update, GangApi)
    assert isinstance(update, Update)
    assert dig(update.patch, "metadata", "annotations") == {GATE: after or None}


@pytest.mark.parametrize(("limit", "written"), [("60", 60), ("", None)])
def test_a_limit_of_time_that_is_changed_on_a_job_that_waits_is_changed_on_its_workload(
    limit: str, written: int | None
) -> None:
    story = queued()
    for given in "3600", limit:
        story.job = replace(story.job, labels={LIMIT: given} if given else {})
        story.settle()
    assert dig(story.gang_manifests[-1], "spec", "maximumExecutionTimeSeconds") == written


def test_the_limit_of_a_job_that_was_admitted_is_changed_when_its_quota_is_given_back() -> None:
    story = queued()
    admit(story)
    story.start()
    story.job = replace(story.job, labels={LIMIT: "60"})
    story.settle()
    evict(story, "Preempted")
    (update,) = story.taken(Update, GangApi)
    assert isinstance(update, Update)
    assert dig(update.patch, "spec") == {"maximumExecutionTimeSeconds": 60}
    before = story.history[: story.history.index(update)]
    released = [each for each in before if isinstance(each, UpdateWorkloadStatus) and "admission" in each.status]
    assert released, "the API server refuses the change before"


@pytest.mark.parametrize(("name", "shown"), [("all", "all"), ("a" * 64, None)], ids=["all", "too long for a label"])
def test_pods_have_the_names_of_the_queues_that_admitted_them(name: str, shown: str | None) -> None:
    story = queued()
    admit(story)
    story.kueue_says({**story.the_gang.status, "admission": {"clusterQueue": name, "podSetAssignments": []}})
    story.settle()
    labels = object_at(object_at(story.manifests["digits-worker-0"], "metadata"), "labels")
    assert labels["kueue.x-k8s.io/local-queue-name"] == "team-a"
    assert labels.get("kueue.x-k8s.io/cluster-queue-name") == shown


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        ({"kueue.x-k8s.io/job-min-parallelism": "2"}, "spec.elastic.minReplicas: set it there"),
        ({"kueue.x-k8s.io/elastic-job": "true"}, "waits in its queue again when its number of workers changes"),
        ({GATE: "budget"}, "must list controllers, each once and as a domain and a path"),
        ({GATE: "a.b/c,a.b/c"}, "must list controllers, each once and as a domain and a path"),
        ({GATE: "a.b/c,"}, "must list controllers, each once and as a domain and a path"),
        ({GATE: f"a.b/{'c' * 60}"}, "of 63 characters at most"),
    ],
)
def test_what_the_operator_does_not_do_is_refused_with_the_reason(annotation: dict[str, str], words: str) -> None:
    story = queued(**annotation)
    condition = story.condition(Condition.INVALID)
    assert next(iter(annotation)) in condition.message
    assert words in condition.message
    assert story.gang is None
