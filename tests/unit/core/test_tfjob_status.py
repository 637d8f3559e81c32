"""The status of a TFJob, which its users, the SDK of Kubeflow, Kueue and workflows read."""

from __future__ import annotations

import pytest

from dtj.api.json import dig, object_at, text
from dtj.core.observed import Phase
from support.played_tfjobs import conditions, last_condition, running_tfjob, tfjob, world_of


class TestTheStatus:
    def test_of_a_life_is_what_the_sdk_and_kueue_read(self) -> None:
        world = world_of(tfjob()).settle()
        assert conditions(world) == {"Created": "True"}
        assert last_condition(world)["message"] == "TFJob mnist is created."
        world.all_run()
        assert conditions(world) == {"Created": "True", "Running": "True"}
        assert dig(world.job.raw_status, "replicaStatuses") == {"Worker": {"active": 2, "succeeded": 0, "failed": 0}}
        world.sees("worker-0", Phase.SUCCEEDED)
        assert conditions(world) == {"Created": "True", "Running": "False", "Succeeded": "True"}
        assert (last_condition(world)["reason"], last_condition(world)["message"]) == (
            "TFJobSucceeded",
            "TFJob default/mnist successfully completed.",
        )
        assert text(world.job.raw_status.get("completionTime"))
        assert dig(world.job.raw_status, "replicaStatuses", "Worker") == {"active": 0, "succeeded": 2, "failed": 0}

    def test_counts_what_runs_and_what_is_done_before_all_have_started(self) -> None:
        world = world_of(tfjob({"Worker": 3}, successPolicy="AllWorkers")).settle()
        counts = {"active": 0, "succeeded": 0, "failed": 0}
        assert dig(world.job.raw_status, "replicaStatuses", "Worker") == counts
        world.set_pod("worker-1", Phase.RUNNING)
        world.wait(10)
        assert dig(world.job.raw_status, "replicaStatuses", "Worker") == {**counts, "active": 1}
        world.sees("worker-1", Phase.SUCCEEDED)
        assert dig(world.job.raw_status, "replicaStatuses", "Worker") == {**counts, "succeeded": 1}
        world.set_pod("worker-0", Phase.RUNNING)
        world.wait(10)
        assert dig(world.job.raw_status, "replicaStatuses", "Worker") == {**counts, "active": 1, "succeeded": 1}

    def test_in_a_queue_of_kueue_counts_what_does_not_run_yet_so_that_quota_is_back_after_the_last_pod(self) -> None:
        body = tfjob({"Worker": 2})
        metadata = object_at(body, "metadata")
        world = world_of({**body, "metadata": {**metadata, "labels": {"kueue.x-k8s.io/queue-name": "team"}}}).settle()
        assert dig(world.job.raw_status, "replicaStatuses", "Worker", "active") == 2

    @pytest.mark.parametrize("policy", ["None", "Running", "All"])
    def test_of_a_success_counts_the_replicas_whose_pods_clean_up_deletes(self, policy: str) -> None:
        world = running_tfjob({"Worker": 2, "PS": 1}, runPolicy={"cleanPodPolicy": policy})
        world.sees("worker-0", Phase.SUCCEEDED)
        world.settle_deletions()
        world.wait(600)
        assert conditions(world)["Succeeded"] == "True"
        assert dig(world.job.raw_status, "replicaStatuses") == {
            "Worker": {"active": 0, "succeeded": 2, "failed": 0},
            "PS": {"active": 0, "succeeded": 1, "failed": 0},
        }

    @pytest.mark.parametrize("policy", ["None", "Running", "All"])
    def test_of_a_failure_counts_the_pod_that_failed_though_clean_up_deletes_it(self, policy: str) -> None:
        world = running_tfjob({"Worker": 2}, restarts="Never", runPolicy={"cleanPodPolicy": policy})
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        world.settle_deletions()
        world.wait(600)
        assert conditions(world)["Failed"] == "True"
        assert dig(world.job.raw_status, "replicaStatuses", "Worker", "failed") == 1

    def test_of_a_success_counts_each_replica_once_though_a_pod_before_it_still_stops(self) -> None:
        world = running_tfjob({"Worker": 2})
        world.sees("worker-1", Phase.FAILED, exit_code=1)
        world.wait(61)
        world.start()
        world.sees("worker-0-r1", Phase.SUCCEEDED)
        assert (conditions(world)["Succeeded"], world.pods["mnist-worker-0"].terminating) == ("True", True)
        assert dig(world.job.raw_status, "replicaStatuses", "Worker", "succeeded") == 2

    @pytest.mark.parametrize("policy", ["OnFailure", "ExitCode"])
    @pytest.mark.parametrize("roles", [{"Worker": 2}, {"Chief": 1, "Worker": 1, "PS": 1}], ids=["all", "one alone"])
    def test_does_not_count_a_replica_as_failed_that_starts_again(self, policy: str, roles: dict[str, int]) -> None:
        world = running_tfjob(roles, restarts=policy)
        world.sees("worker-0", Phase.FAILED, exit_code=137)
        assert conditions(world)["Restarting"] == "True"
        assert dig(world.job.raw_status, "replicaStatuses", "Worker", "failed") == 0

    @pytest.mark.parametrize("roles", [{"Worker": 2}, {"Chief": 1, "Worker": 1, "PS": 1}], ids=["all", "one alone"])
    def test_says_restarting_until_all_run_again(self, roles: dict[str, int]) -> None:
        world = running_tfjob(roles)
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        assert conditions(world) == {"Created": "True", "Restarting": "True"}
        world.wait(61)
        world.settle_deletions()
        assert "mnist-worker-0-r1" in world.pods
        assert conditions(world) == {"Created": "True", "Restarting": "True"}
        world.start()
        assert conditions(world) == {"Created": "True", "Running": "True"}

    @pytest.mark.parametrize("code", [0, 1])
    def test_does_not_say_restarting_while_the_pods_of_a_job_stop_that_ends(self, code: int) -> None:
        roles = {"Chief": 1, "Worker": 2, "PS": 1}
        world = running_tfjob(roles, runPolicy={"cleanPodPolicy": "All", "backoffLimit": 1})
        world.sees("worker-1", Phase.FAILED, exit_code=1)
        world.wait(60)
        world.all_run()
        world.sees("chief-0", Phase.FAILED if code else Phase.SUCCEEDED, exit_code=code)
        assert any(pod.terminating for pod in world.pods.values())
        assert conditions(world) == {"Created": "True", "Running": "True"}

    def test_says_what_the_api_server_has_against_the_pods(self) -> None:
        world = world_of(tfjob())
        world.template_errors = ("worker: spec.containers[0].image: Required value",)
        world.settle()
        assert (last_condition(world)["type"], last_condition(world)["message"]) == (
            "Created",
            world.template_errors[0],
        )
