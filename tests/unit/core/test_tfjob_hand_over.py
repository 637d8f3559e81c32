"""A TFJob that Kubeflow's operator has run, or runs: what is taken over, and what is left alone."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from builders import at
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.core.actions import Emit, PatchStatus
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.observed import Phase
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object
from support.played_tfjobs import conditions, running_tfjob, tfjob, world_of
from world import World

OLD: JsonObject = {"startTime": "2026-01-02T03:00:00Z", "lastReconcileTime": "2026-01-02T03:00:00Z"}


class TestAJobOfKubeflowsOperator:
    """It has no record of ours."""

    def status(self, *held: str) -> JsonObject:
        times: JsonObject = {"lastUpdateTime": "2026-01-02T03:00:00Z", "lastTransitionTime": "2026-01-02T03:00:00Z"}
        return {
            **OLD,
            "conditions": [
                {"type": kind, "status": "True", "reason": f"TFJob{kind}", "message": "", **times} for kind in held
            ],
        }

    @pytest.mark.parametrize("kind", ["Succeeded", "Failed"])
    def test_that_has_ended_is_not_touched(self, kind: str) -> None:
        world = world_of({**tfjob(), "status": self.status("Created", kind)})
        assert world.step() == ()

    def test_that_runs_goes_on_with_its_pods(self) -> None:
        world = running_tfjob()
        world.history.clear()
        body = {**tfjob(restarts="OnFailure"), "status": self.status("Created", "Running")}
        world.job = Job.from_object(body)
        world.operator_restarts()
        world.settle()
        assert [type(action) for action in world.history if not _waits(action)] == [PatchStatus]
        assert conditions(world) == {"Created": "True", "Running": "True"}
        assert world.job.status.start_time == OLD["startTime"]

    def test_that_runs_in_a_gang_starts_again_in_one(self) -> None:
        body = tfjob(restarts="OnFailure")
        world = world_of(body, gang_of_tfjobs=Gang.VOLCANO)
        world.installed, world.gangs = tuple(api for api in APIS if api.gang is Gang.VOLCANO), None
        world.start()
        world.job = Job.from_object({**body, "status": self.status("Created", "Running")})
        world.operator_restarts()
        world.sees("worker-1", Phase.FAILED, exit_code=1)
        world.wait(61)
        world.settle_deletions()
        pod = world.manifests["mnist-worker-0-r1"]
        assert dig(pod, "spec", "schedulerName") == "volcano"
        assert dig(pod, "metadata", "annotations", "scheduling.k8s.io/group-name") == "mnist"

    def of_theirs(self, roles: dict[str, int], *, limit: int = 3) -> World:
        """A job whose pods their kubelet restarts, some time after it was taken over."""
        body = tfjob(roles, restarts="OnFailure", runPolicy={"backoffLimit": limit})
        world = world_of(body).start()
        world.job = Job.from_object({**body, "status": self.status("Created", "Running")})
        world.operator_restarts()
        world.settle()
        world.advance(60)
        return world

    def shows(self, world: World, pod: str, **container: object) -> None:
        """What its kubelet says of the container that trains."""
        name = f"mnist-{pod}"
        shown = copy.deepcopy(world.manifests[name])
        object_at(shown, "spec")["restartPolicy"] = "OnFailure"
        ready: JsonObject = {"type": "Ready", "status": "True" if container.get("ready") else "False", "reason": "x"}
        status: JsonObject = {"phase": "Running", "conditions": [ready]}
        status["containerStatuses"] = [{"name": "tensorflow", "restartCount": 1, **container}]  # type: ignore[dict-item]
        seen = pod_from(pod_from_object({**shown, "status": status}), world.job.form)
        kept = {name: getattr(seen, name) for name in ("phase", "ready", "termination", "last_end", "blocker")}
        world.pods[name] = replace(world.pods[name], **kept)
        world.settle()

    @pytest.mark.parametrize("roles", [{"Worker": 2}, {"Chief": 1, "Worker": 1, "PS": 1}])
    @pytest.mark.parametrize("waits", [True, False], ids=["it backs off", "it runs again"])
    def test_starts_again_in_a_pod_of_ours_when_a_kubelet_has_restarted_a_container(
        self, roles: dict[str, int], *, waits: bool
    ) -> None:
        world = self.of_theirs(roles, limit=1)
        ended: JsonObject = {"terminated": {"exitCode": 3, "reason": "Error", "message": "no", "finishedAt": at(50)}}
        now: JsonObject = {"waiting": {"reason": "CrashLoopBackOff"}} if waits else {"running": {}}
        self.shows(world, "worker-0", state=now, lastState=ended, ready=not waits)
        self.shows(world, "worker-0", state={"running": {}}, lastState=ended, ready=True)
        world.wait(61)
        world.settle_deletions()
        world.start()
        assert "mnist-worker-0-r1" in world.pods
        assert world.job.status.restarts.user == 1
        assert (world.root_cause().exit_code, world.root_cause().pod) == (3, "mnist-worker-0")
        world.sees("worker-0-r1", Phase.FAILED, exit_code=3)
        world.settle_deletions()
        assert world.job.status.reason == Reason.BACKOFF_LIMIT_EXCEEDED

    def test_goes_on_where_a_kubelet_had_restarted_a_container_before_it_was_taken_over(self) -> None:
        world = self.of_theirs({"Worker": 2})
        ended: JsonObject = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": at(-50)}}
        self.shows(world, "worker-0", state={"running": {}}, lastState=ended, ready=True)
        world.wait(600)
        assert sorted(world.pods) == ["mnist-worker-0", "mnist-worker-1"]
        assert world.job.status.restarts.total == 0

    def test_that_runs_although_it_breaks_a_rule_is_run_on(self) -> None:
        world = running_tfjob({"Chief": 1, "Worker": 1})
        body = {**tfjob({"Chief": 2, "Worker": 1}, restarts="OnFailure"), "status": self.status("Created", "Running")}
        world.job = Job.from_object(body)
        world.operator_restarts()
        world.start()
        assert "mnist-chief-1" in world.pods
        assert conditions(world) == {"Created": "True", "Running": "True"}


def _waits(action: object) -> bool:
    return type(action).__name__ in ("RequeueAfter", "CheckPods", "LookForGangs")


class TestAnotherController:
    def test_that_writes_the_status_is_noticed_and_nothing_is_touched(self) -> None:
        world = running_tfjob()
        raw = {key: value for key, value in world.job.raw_status.items() if key != "dtj"}
        world.job = Job.from_object({**tfjob(restarts="OnFailure"), "status": raw})
        world.take_away("worker-0")
        world.finish_deletions()
        world.history.clear()
        world.step()
        assert [getattr(action, "reason", "") for action in world.history] == [Reason.MANAGED_TWICE]

    def test_that_writes_the_status_is_noticed_by_the_next_process_too(self) -> None:
        world = running_tfjob()
        world.loses("worker-0")
        world.settle_deletions()
        world.all_run()
        pods = set(world.pods)
        assert any(name.endswith("-r1") for name in pods)
        raw = {key: value for key, value in world.job.raw_status.items() if key != "dtj"}
        world.job = Job.from_object({**tfjob(restarts="OnFailure"), "status": raw})
        world.operator_restarts()
        world.advance(3600)
        world.history.clear()
        world.settle()
        world.wait(3600)
        (said,) = world.history
        assert isinstance(said, Emit)
        assert (said.reason, said.message.endswith("all start again from the last checkpoint")) == (
            Reason.MANAGED_TWICE,
            True,
        )
        assert set(world.pods) == pods

        world.pods.clear()
        world.start()
        assert len(world.pods) == len(pods), "its user has deleted them as the event says"
        assert conditions(world)["Running"] == "True"

    def test_that_has_brought_the_job_to_its_end_leaves_its_cleaning_to_us(self) -> None:
        body = tfjob(restarts="OnFailure", runPolicy={"cleanPodPolicy": "All"})
        world = world_of(body).start()
        world.loses("worker-0")
        world.settle_deletions()
        world.all_run()
        ended: JsonObject = {"type": "Succeeded", "status": "True", "reason": "TFJobSucceeded", "message": ""}
        world.job = Job.from_object({**body, "status": {**OLD, "conditions": [ended]}})
        world.operator_restarts()
        world.settle()
        world.finish_deletions()
        assert not world.pods

    @pytest.mark.parametrize(
        ("manager", "left"),
        [("kubeflow.org/training-operator", False), ("kueue.x-k8s.io/multikueue", True), ("example.com/other", True)],
    )
    def test_that_a_job_names_has_it_for_itself(self, manager: str, *, left: bool) -> None:
        world = world_of(tfjob(runPolicy={"managedBy": manager}))
        assert (world.step() == ()) == left
