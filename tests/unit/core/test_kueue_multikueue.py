"""Jobs that MultiKueue runs: queued in the manager cluster, run as a copy in a worker cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import at, edited, job
from dtj.api import kueue
from dtj.api.job import Job
from dtj.api.json import dig
from dtj.api.names import Condition
from dtj.api.status import Progress
from dtj.core.actions import Create, CreatePod, Delete, DeleteJob, PatchStatus, Update
from dtj.core.observed import GangApi, GangObject, Phase
from dtj.kube.observed import gang_from
from dtj.kube.records import gang_from_object
from support.gang_worlds import (
    KUEUE,
    NATIVE,
    QUEUED,
    admit,
    admitted,
    evict,
    kueue_condition,
    queued,
    workload_conditions,
)
from world import World

SIZE = "worker=3;min=3"


def manager(**policy: object) -> World:
    """A job in the manager cluster, in its queue."""
    return queued(managedBy=kueue.MULTIKUEUE, runPolicy={**QUEUED, **policy})


def running() -> World:
    """A job in the manager cluster that a worker cluster has admitted, and whose copy runs."""
    story = manager()
    admit(story)
    copied(story)
    return story.settle()


def copied(story: World) -> None:
    """What MultiKueue does: the status is that of the copy."""
    copy = admitted()
    assert copy.job.status.start_time is not None
    story.job = replace(story.job, status=copy.job.status)


def worker(size: str = SIZE, **more: object) -> World:
    """A copy in a worker cluster, with the Workload that MultiKueue made for it, which is admitted."""
    story = World(replace(copy_of(**more), prebuilt_workload="digits"), installed=(KUEUE,))
    story.gang = GangObject(
        namespace=story.job.namespace,
        name="digits",
        uid="uid-of-the-workload",
        owner_uid="",
        api=KUEUE,
        version="1",
        size=size,
        queue="team-a",
    )
    admit(story)
    return story


def copy_of(**more: object) -> Job:
    memory = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"memory": "1Gi"}}}]}}
    copy = job(roles={"worker": 3}, template=memory, runPolicy={**QUEUED, **more})
    return replace(copy, labels={kueue.MULTIKUEUE_ORIGIN: "multikueue"})


class TestManager:
    def test_the_workload_is_all_that_is_created(self) -> None:
        story = manager()
        assert len(story.taken(Create, GangApi)) == 1
        assert story.job.status.reason == "Queued"
        admit(story)
        story.settle()
        assert not story.taken(CreatePod)
        assert story.service is None

    def test_the_status_of_an_admitted_job_is_left_to_multikueue(self) -> None:
        story = manager()
        admit(story)
        written = len(story.taken(PatchStatus))
        copied(story)
        story.settle()
        assert len(story.taken(PatchStatus)) == written

    def test_an_evicted_job_waits_in_its_queue_again(self) -> None:
        story = running()
        evicted = kueue_condition("Evicted", reason="AdmissionCheck")
        story.kueue_says({**story.the_gang.status, "conditions": [kueue_condition("Admitted"), evicted]})
        story.settle()
        found = workload_conditions(story)
        assert (found["QuotaReserved"], found["Requeued"]) == ("False/Pending", "False/AdmissionCheck")
        assert story.job.status.start_time is None
        assert story.job.status.reason == "Queued"

    def test_the_end_is_reported_by_multikueue_and_the_time_to_live_counts_here(self) -> None:
        story = running()
        ended = story.job.status.model_copy(
            update={
                "completion_time": "2026-01-01T00:00:00Z",
                "conditions": [
                    condition.model_copy(update={"type": Condition.COMPLETE, "status": "True"})
                    for condition in story.job.status.conditions[:1]
                ],
            }
        )
        story.job = replace(story.job, status=ended)
        story.job = edited(story.job, ttl_seconds_after_finished=0)
        assert story.step() == (DeleteJob(),)

    def test_the_pods_of_an_admitted_job_are_made_by_the_profiles_of_the_worker_cluster(self) -> None:
        story = running()
        story.gang = replace(story.the_gang, pods="others")
        story.settle()
        assert not story.taken(Delete, GangApi)

    def test_the_time_of_the_copys_last_checkpoint_is_on_the_workload_here(self) -> None:
        story = running()
        progress = Progress(last_checkpoint_step=10, last_checkpoint_time=at(30))
        story.job = replace(story.job, status=story.job.status.model_copy(update={"progress": progress}))
        story.settle()
        assert story.the_gang.last_checkpoint == at(30)

    def test_a_job_that_becomes_invalid_while_it_waits_leaves_the_queue(self) -> None:
        story = manager()
        story.job = replace(story.job, labels={kueue.MAX_EXECUTION_SECONDS: "soon"})
        story.settle()
        assert story.is_true(Condition.INVALID)
        assert story.gang is None

    @pytest.mark.parametrize("read", [True, False], ids=["invalid", "unreadable"])
    def test_a_job_that_is_wrong_by_now_leaves_the_queue_when_it_is_evicted(self, *, read: bool) -> None:
        story = running()
        wrong = replace(story.job, raw_spec={**story.job.raw_spec, "strategy": "OneDevice"})
        story.job = wrong if read else replace(wrong, spec=None, problems=("spec.strategy: not known",))
        story.settle()
        assert story.gang is not None, "the copy runs on"
        evict(story, "Preempted")
        assert story.gang is None
        assert story.is_true(Condition.INVALID)

    @pytest.mark.parametrize("policy", [{}, {"scheduling": {"gang": "Native"}}], ids=["no gang", "another gang"])
    def test_a_job_without_a_queue_is_refused(self, policy: dict[str, object]) -> None:
        story = World(job(managedBy=kueue.MULTIKUEUE, runPolicy=policy), installed=(KUEUE, NATIVE)).settle()
        assert story.condition(Condition.INVALID).message.startswith(
            "spec.managedBy: kueue.x-k8s.io/multikueue takes jobs from a queue of Kueue"
        )


class TestWorker:
    def test_the_copy_becomes_the_owner_of_its_workload_and_runs(self) -> None:
        story = worker()
        story.settle()
        assert story.the_gang.owner_uid == story.job.uid
        assert not story.taken(Create, GangApi)
        assert len(story.pods) == 3
        story.all_run()
        assert workload_conditions(story)["PodsReady"] == "True/Started"

    def test_it_waits_for_a_workload_that_is_not_seen_yet(self) -> None:
        story = worker()
        story.gang = None
        story.settle()
        assert not story.taken(Create, GangApi)
        assert story.job.status.reason == "Queued"

    def test_a_workload_of_somebody_else_is_left_alone(self) -> None:
        story = worker()
        story.gang = replace(story.the_gang, owner_uid="theirs")
        story.wait(60)
        assert not story.taken(Update, GangApi)
        assert story.job.status.reason == "NameTaken"

    def test_the_copy_becomes_the_owner_next_to_those_that_do_not_control_the_workload(self) -> None:
        story = worker()
        other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "theirs"}
        metadata = {"name": "digits", "namespace": story.job.namespace, "ownerReferences": [other]}
        seen = gang_from(KUEUE, gang_from_object({"metadata": metadata}))  # type: ignore[dict-item]
        assert seen.owner_uid == ""
        story.gang = replace(story.the_gang, owners=seen.owners)
        story.settle()
        update = next(action for action in story.history if isinstance(action, Update))
        assert dig(update.patch, "metadata", "ownerReferences") == [other, story.job.owner_reference()]

    def test_a_workload_with_more_owners_than_are_kept_is_left_alone(self) -> None:
        story = worker()
        others = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u" * 1_000_000}]
        seen = gang_from(KUEUE, gang_from_object({"metadata": {"name": "digits", "ownerReferences": others}}))  # type: ignore[dict-item]
        story.gang = replace(story.the_gang, owners=seen.owners)
        story.wait(60)
        assert not story.taken(Update, GangApi)
        assert story.job.status.reason == "NameTaken"

    def test_a_copy_keeps_the_memory_that_the_manager_was_admitted_with(self) -> None:
        story = worker(backoffLimit=9, onOutOfMemory={"increasePercent": 100, "maxMemory": "4Gi"})
        story.start()
        story.sees("worker-0", Phase.FAILED, exit_code=137, reason="OOMKilled")
        story.advance(61)
        story.settle_deletions()
        assert story.job.status.restarts.out_of_memory == 1
        assert story.job.status.state == "Restarting"
        assert not story.taken(Delete, GangApi)
        assert "Finished" not in workload_conditions(story)

    def test_a_workload_that_does_not_fit_is_over(self) -> None:
        story = worker(size="worker=2;min=2")
        story.settle()
        assert workload_conditions(story)["Finished"] == "True/OutOfSync"
        assert not story.taken(Delete, GangApi)
        assert not story.pods

    def test_the_pods_are_made_by_the_profiles_of_this_cluster(self) -> None:
        story = worker()
        story.gang = replace(story.the_gang, pods="others")
        story.settle()
        assert len(story.pods) == 3

    def test_the_workload_of_an_invalid_copy_is_left_to_multikueue(self) -> None:
        story = worker()
        story.gang = replace(story.the_gang, owner_uid=story.job.uid, status={})
        story.job = replace(story.job, labels={kueue.MAX_EXECUTION_SECONDS: "soon"})
        story.settle()
        assert story.is_true(Condition.INVALID)
        assert not story.taken(Delete, GangApi)

    def test_the_time_of_the_last_checkpoint_is_not_on_the_workload_of_the_copy(self) -> None:
        story = worker().settle().all_run()
        story.advance(30)
        story.hears("worker-0", step=10, lastCheckpointStep=10)
        assert story.job.status.progress is not None
        assert story.job.status.progress.last_checkpoint_time
        assert story.the_gang.last_checkpoint == ""

    def test_completed_pods_keep_their_quota(self) -> None:
        story = worker()
        story.settle()
        story.run_all()
        story.sees("worker-1", Phase.SUCCEEDED)
        assert "reclaimablePods" not in story.the_gang.status

    def test_the_copy_is_kept_after_its_end_until_multikueue_deletes_it(self) -> None:
        story = worker(ttlSecondsAfterFinished=0)
        story.settle()
        story.run_all()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        for _ in range(3):
            story.settle()
            story.finish_deletions()
            story.advance(60)
        assert story.job.status.terminal
        assert workload_conditions(story)["Finished"] == "True/Succeeded"
        assert not story.taken(DeleteJob)

    def test_a_workload_of_another_name_is_refused(self) -> None:
        story = World(replace(copy_of(), prebuilt_workload="other"), installed=(KUEUE,)).settle()
        assert story.condition(Condition.INVALID).message.endswith("remove it, or set it to digits")


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_the_name_of_the_workload_is_read_from_the_annotation_and_from_the_label_of_older_versions(field: str) -> None:
    body = {"metadata": {field: {kueue.PREBUILT_WORKLOAD: "digits"}}}
    assert kueue.prebuilt_workload(body) == "digits"  # type: ignore[arg-type]
