"""What the status of a job's Workload reports to Kueue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, objects
from dtj.core.actions import Create
from dtj.core.observed import GangApi, Phase
from dtj.core.status import format_time
from support.gang_worlds import admit, admitted, evict, kueue_condition, queued, workload_conditions


class TestDuties:
    """What the owner of a Workload writes to it."""

    def test_pods_that_are_ready_are_reported(self) -> None:
        story = queued()
        assert workload_conditions(story) == {}, "a job that waits costs no write"
        admit(story)
        story.settle()
        assert workload_conditions(story)["PodsReady"] == "False/WaitForStart"
        story.all_run()
        assert workload_conditions(story)["PodsReady"] == "True/Started"

    def test_a_lost_pod_is_a_recovery_to_wait_for(self) -> None:
        story = admitted(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
        story.sees("worker-1", Phase.FAILED, exit_code=137)
        assert workload_conditions(story)["PodsReady"] == "False/WaitForRecovery"
        story.advance(60)
        story.start()
        assert workload_conditions(story)["PodsReady"] == "True/Recovered"

    def test_the_pods_of_a_job_that_ends_are_not_lost(self) -> None:
        story = admitted()
        story.sees("worker-0", Phase.SUCCEEDED)
        assert workload_conditions(story)["PodsReady"] == "True/Started"

    @pytest.mark.parametrize(
        ("reason", "requeued"),
        [
            ("Preempted", "True"),
            ("NodeFailures", "True"),
            ("PodsReadyTimeout", "False"),
            ("ClusterQueueStopped", "False"),
            ("AdmissionCheck", "False"),
            ("Deactivated", "False"),
            # Kueue ends a pause for the reason Deactivated alone.
            ("DeactivatedDueToMaximumExecutionTimeExceeded", "False"),
            ("DeactivatedDueToRequeuingLimitExceeded", "False"),
        ],
    )
    def test_only_kueue_ends_a_back_off(self, reason: str, requeued: str) -> None:
        story = admitted()
        evict(story, reason)
        assert workload_conditions(story)["Requeued"] == f"{requeued}/{reason.partition('DueTo')[0]}"
        assert workload_conditions(story)["PodsReady"] == "False/WaitForStart"

    @pytest.mark.parametrize(
        ("reason", "seconds"), [("Preempted", 130), ("DeactivatedDueToMaximumExecutionTimeExceeded", None)]
    )
    def test_the_time_of_execution_adds_up_until_it_is_over(self, reason: str, seconds: int | None) -> None:
        story, field = admitted(), "accumulatedPastExecutionTimeSeconds"
        at = format_time(story.now)
        kept = [one for one in objects(story.the_gang.status.get("conditions")) if one["type"] != "Admitted"]
        since = {**kueue_condition("Admitted"), "lastTransitionTime": at}
        before: JsonObject = {**story.the_gang.status, **({field: 100} if seconds else {})}
        story.kueue_says({**before, "conditions": [*kept, since]})
        story.advance(30)
        evict(story, reason)
        assert story.the_gang.status.get(field) == seconds

    def test_completed_pods_give_their_quota_back_and_a_restart_that_needs_it_waits_in_the_queue(self) -> None:
        story = admitted(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
        story.sees("worker-1", Phase.SUCCEEDED)
        assert story.the_gang.status["reclaimablePods"] == [{"name": "worker", "count": 1}]
        story.set_pod("ps-0", Phase.FAILED, exit_code=137)
        for _ in range(5):
            story.settle()
            story.finish_deletions()
            story.advance(60)
        assert story.job.status.state == "Suspended"
        assert "reclaimablePods" not in story.the_gang.status
        assert not [pod for pod in story.pods.values() if not pod.main_container_ended]
        assert len(story.taken(Create, GangApi)) == 2

    @pytest.mark.parametrize("active", [True, False])
    def test_a_job_that_is_evicted_keeps_its_workload_though_completed_pods_gave_quota_back(self, active: bool) -> None:
        story = admitted(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
        story.sees("worker-1", Phase.SUCCEEDED)
        before = story.the_gang.uid
        story.gang = replace(story.the_gang, active=active)
        evict(story, "Preempted" if active else "Deactivated")
        assert (story.the_gang.uid, story.the_gang.active) == (before, active)
        assert workload_conditions(story)["QuotaReserved"] == "False/Pending"

    def test_a_workload_that_was_deactivated_is_not_made_again_for_a_job_of_another_size(self) -> None:
        story = admitted(roles={"worker": 2}, elastic={"minReplicas": 1, "maxReplicas": 4})
        before = story.the_gang.uid
        story.gang = replace(story.the_gang, active=False)
        evict(story, "Deactivated")
        story.becomes(
            job(
                roles={"worker": 3},
                elastic={"minReplicas": 1, "maxReplicas": 4},
                runPolicy={"scheduling": {"gang": "Kueue", "queue": "team-a"}},
            )
        )
        story.settle_deletions()
        assert (story.the_gang.uid, story.the_gang.active) == (before, False)
