"""All pods of a job or none: who is told, in which words, and what becomes of the job meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import JsonValue

from builders import NOW, job
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from dtj.core.gangs import APIS
from dtj.core.observed import CreationRefusal, Flavor, GangApi, GangObject, Phase
from dtj.core.plan import CreateGang, CreatePod, DeleteGang, LookForGangs, ReadFlavors, ReleaseQuota
from world import World

pytestmark = pytest.mark.unit

BY_VERSION = {api.api_version: api for api in APIS}
KUEUE = BY_VERSION["kueue.x-k8s.io/v1beta1"]
VOLCANO = BY_VERSION["scheduling.volcano.sh/v1beta1"]
COSCHEDULING = BY_VERSION["scheduling.x-k8s.io/v1alpha1"]
NATIVE_136 = BY_VERSION["scheduling.k8s.io/v1alpha2"]
NATIVE_135 = BY_VERSION["scheduling.k8s.io/v1alpha1"]


def world(
    *installed: GangApi, roles: dict[str, int] | None = None, elastic: object = None, **scheduling: object
) -> World:
    policy = {"scheduling": scheduling}
    return World(job(roles=roles or {"worker": 3}, runPolicy=policy, elastic=elastic), installed=installed)


def admit(world: World, **flavors: JsonValue) -> None:
    """What Kueue does with a Workload that fits."""
    world.kueue_says(
        {
            "conditions": [_is("QuotaReserved"), _is("Admitted")],
            "admission": {
                "clusterQueue": "all",
                "podSetAssignments": [{"name": "worker", "flavors": flavors, "count": 3}],
            },
        }
    )


def _is(kind: str, status: str = "True", *, reason: str = "Because", message: str = "") -> JsonObject:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "then"}


def spec_of(world: World) -> JsonObject:
    """What the newest PodGroup or Workload says."""
    found = world.gang_manifests[-1]["spec"]
    assert isinstance(found, dict)
    return found


class TestWhoIsTold:
    def test_nobody_where_the_job_does_not_ask_for_it(self) -> None:
        world = World(job(), installed=APIS)
        world.settle()
        assert not world.taken(LookForGangs)
        assert world.gang is None

    def test_nobody_where_the_job_says_none(self) -> None:
        alone = world(*APIS, gang="None")
        alone.settle()
        assert not alone.taken(LookForGangs)
        assert len(alone.pods) == 3

    @pytest.mark.parametrize(
        ("installed", "chosen"),
        [
            (APIS, VOLCANO),
            ((NATIVE_135, COSCHEDULING), COSCHEDULING),
            ((NATIVE_135,), NATIVE_135),
            ((NATIVE_136,), NATIVE_136),
            ((KUEUE, NATIVE_135), NATIVE_135),
        ],
    )
    def test_auto_without_a_queue_takes_the_first_scheduler_that_is_there(
        self, installed: tuple[GangApi, ...], chosen: GangApi
    ) -> None:
        automatic = world(*installed)
        automatic.settle()
        assert automatic.gang is not None
        assert automatic.gang.api == chosen
        assert automatic.job.status.gang == chosen.gang

    def test_auto_with_a_queue_takes_kueue(self) -> None:
        queued = world(KUEUE, VOLCANO, queue="team-a")
        queued.settle()
        assert queued.gang is not None
        assert queued.gang.api == KUEUE

    def test_auto_with_a_queue_takes_volcano_where_there_is_no_kueue(self) -> None:
        queued = world(VOLCANO, queue="team-a")
        queued.settle()
        assert spec_of(queued)["queue"] == "team-a"

    def test_auto_in_a_cluster_without_any_lets_pods_be_scheduled_one_by_one(self) -> None:
        plain = world()
        plain.settle()
        assert len(plain.pods) == 3
        assert plain.job.status.gang == "None"

    def test_a_scheduler_that_is_not_there_makes_the_job_invalid_and_says_what_is(self) -> None:
        invalid = world(NATIVE_135, gang="Volcano")
        invalid.settle()
        condition = invalid.job.status.condition(Condition.INVALID)
        assert condition is not None
        assert condition.reason == Reason.GANG_UNAVAILABLE
        assert "no API of Volcano" in condition.message
        assert "found: Native" in condition.message
        assert not invalid.pods

    def test_a_scheduler_that_is_installed_later_is_found(self) -> None:
        waiting = world(gang="Volcano")
        waiting.settle()
        waiting.installed = (VOLCANO,)
        waiting.advance(61)
        waiting.settle()
        assert len(waiting.pods) == 3
        assert not waiting.is_true(Condition.INVALID)

    def test_what_a_run_began_with_it_goes_on_with(self) -> None:
        running = world(NATIVE_135)
        running.settle()
        running.installed, running.gangs = APIS, None
        running.run_all()
        running.settle()
        assert running.gang is not None
        assert running.gang.api == NATIVE_135
        assert len(running.gang_manifests) == 1

    def test_a_group_of_that_name_that_is_somebody_elses_is_left_alone(self) -> None:
        foreign = world(VOLCANO)
        foreign.gang = GangObject("default", "digits", "theirs", "somebody", VOLCANO)
        foreign.advance(60)
        foreign.settle()
        condition = foreign.job.status.condition(Condition.PODS_READY)
        assert condition is not None
        assert 'podgroup "digits" exists and belongs to something else' in condition.message
        assert not foreign.pods

    def test_a_group_of_that_name_is_nobodys_business_where_the_job_wants_none(self) -> None:
        alone = World(job())
        alone.gang = GangObject("default", "digits", "theirs", "somebody", VOLCANO)
        alone.advance(60)
        alone.settle()
        assert len(alone.pods) == 2


class TestInWhichWords:
    def told(self, api: GangApi, **scheduling: object) -> tuple[JsonObject, JsonObject]:
        """The spec of the PodGroup or Workload, and the first pod."""
        resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}
        template = {"spec": {"containers": [{"name": "trainer", "image": "x", "resources": resources}]}}
        body = job(roles={"chief": 1, "worker": 3}, template=template, runPolicy={"scheduling": scheduling})
        told = World(body, installed=(api,))
        told.settle()
        return spec_of(told), told.manifests["digits-chief-0"]

    def test_volcano(self) -> None:
        spec, pod = self.told(VOLCANO, queue="team-a", minAvailable=3, priorityClassName="high")
        assert spec == {
            "minMember": 3,
            "queue": "team-a",
            "priorityClassName": "high",
            "minResources": {"cpu": "1500m", "memory": str(3 * 2**30), "nvidia.com/gpu": "3"},
        }
        assert dig(pod, "metadata", "annotations", "scheduling.k8s.io/group-name") == "digits"
        assert dig(pod, "spec", "schedulerName") == "volcano"
        assert dig(pod, "spec", "priorityClassName") == "high"

    def test_coscheduling(self) -> None:
        spec, pod = self.told(COSCHEDULING, timeoutSeconds=120)
        assert (spec["minMember"], spec["scheduleTimeoutSeconds"]) == (4, 120)
        assert dig(pod, "metadata", "labels", "scheduling.x-k8s.io/pod-group") == "digits"
        assert dig(pod, "spec", "schedulerName") == "scheduler-plugins-scheduler"

    def test_kubernetes_1_35(self) -> None:
        spec, pod = self.told(NATIVE_135)
        assert spec["podGroups"] == [{"name": "job", "policy": {"gang": {"minCount": 4}}}]
        assert dig(spec, "controllerRef", "kind") == "DistributedTrainingJob"
        reference = {"name": "digits", "podGroup": "job", "podGroupReplicaKey": "attempt-1"}
        assert dig(pod, "spec", "workloadRef") == reference

    def test_kubernetes_1_36(self) -> None:
        spec, pod = self.told(NATIVE_136)
        assert spec == {"schedulingPolicy": {"gang": {"minCount": 4}}}
        assert dig(pod, "spec", "schedulingGroup") == {"podGroupName": "digits"}

    def test_kueue(self) -> None:
        given = world(KUEUE, roles={"chief": 1, "worker": 3}, gang="Kueue", queue="team-a", priorityClassName="high")
        given.priority = 1000
        given.settle()
        spec = spec_of(given)
        assert (spec["queueName"], spec["priority"]) == ("team-a", 1000)
        sets = spec["podSets"]
        assert isinstance(sets, list)
        assert [(dig(one, "name"), dig(one, "count")) for one in sets] == [("chief", 1), ("worker", 3)]
        assert dig(sets[1], "template", "spec", "containers", 0, "name") == "trainer"

    def test_a_scheduler_that_the_user_names_in_the_template_is_kept(self) -> None:
        template = {"spec": {"schedulerName": "mine", "containers": [{"name": "trainer", "image": "x"}]}}
        named = World(job(template=template, runPolicy={"scheduling": {}}), installed=(COSCHEDULING,))
        named.settle()
        assert dig(named.manifests["digits-worker-0"], "spec", "schedulerName") == "mine"


class TestThroughTheLifeOfAJob:
    @pytest.mark.parametrize("api", [VOLCANO, COSCHEDULING, NATIVE_135, NATIVE_136], ids=lambda api: api.api_version)
    def test_the_group_is_made_once_before_the_pods_and_deleted_once_at_the_end(self, api: GangApi) -> None:
        story = world(api)
        story.settle()
        kinds = [type(action) for action in story.history]
        assert kinds.index(CreateGang) < kinds.index(CreatePod)
        story.run_all()
        story.settle()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        story.settle()
        story.finish_deletions()
        story.settle()
        assert story.job.status.state == "Succeeded"
        assert story.gang is None
        assert (len(story.taken(CreateGang)), len(story.taken(DeleteGang))) == (1, 1)

    def test_a_group_that_is_deleted_by_hand_is_made_anew(self) -> None:
        story = world(VOLCANO)
        story.settle()
        story.gang = None
        story.settle()
        assert story.gang is not None

    def test_a_new_attempt_waits_for_its_own_gang_on_kubernetes_1_35(self) -> None:
        story = world(NATIVE_135)
        story.settle()
        story.run_all()
        story.settle()
        story.take_away("worker-1")
        story.settle()
        key = dig(story.manifests["digits-worker-0-r1"], "spec", "workloadRef", "podGroupReplicaKey")
        assert key == "attempt-2"
        assert len(story.gang_manifests) == 1

    def test_a_replica_that_comes_back_alone_joins_nobody_since_others_may_have_completed(self) -> None:
        body = job(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}, runPolicy={"scheduling": {}})
        story = World(body, installed=(NATIVE_135,))
        story.settle()
        story.run_all()
        story.settle()
        story.set_pod("worker-1", Phase.FAILED, exit_code=3)
        story.advance(2)
        story.settle()
        assert dig(story.manifests["digits-worker-1-r1"], "spec", "workloadRef") is None

    def test_another_number_of_workers_is_another_gang(self) -> None:
        story = world(VOLCANO, elastic={"maxReplicas": 5})
        story.settle()
        story.run_all()
        story.settle()
        scaled = job(roles={"worker": 5}, elastic={"maxReplicas": 5}, runPolicy={"scheduling": {}})
        story.job = replace(story.job, spec=scaled.spec, raw_spec=scaled.raw_spec, generation=2)
        story.settle()
        story.finish_deletions()
        story.settle()
        assert [dig(body, "spec", "minMember") for body in story.gang_manifests] == [3, 5]
        assert len([pod for pod in story.pods.values() if pod.attempt == 2]) == 5

    def test_a_suspended_job_holds_nothing(self) -> None:
        story = world(VOLCANO)
        story.settle()
        suspended = job(roles={"worker": 3}, runPolicy={"scheduling": {}, "suspend": True})
        story.job = replace(story.job, spec=suspended.spec, generation=2)
        story.settle()
        story.finish_deletions()
        story.settle()
        assert story.gang is None
        assert story.job.status.state == "Suspended"


class TestAnIncompleteGang:
    """Two jobs that each hold half of a quota would wait for each other for ever (training-operator#1264)."""

    def refused(self) -> World:
        story = world(VOLCANO)
        story.settle()
        del story.pods["digits-worker-2"]
        story.refusal = CreationRefusal("digits-worker-2", "Forbidden", "exceeded quota: pods=2", NOW)
        return story

    def test_gives_back_what_it_holds_and_says_so(self) -> None:
        story = self.refused()
        story.step()
        story.step()
        assert all(pod.terminating for pod in story.pods.values())
        condition = story.job.status.condition(Condition.PODS_READY)
        assert condition is not None
        assert condition.reason == Reason.GANG_RELEASED
        assert "exceeded quota: pods=2" in condition.message

    def test_is_created_anew_and_nothing_is_charged(self) -> None:
        story = self.refused()
        story.settle()
        story.finish_deletions()
        story.refusal = None
        story.settle()
        assert sorted(story.pods) == ["digits-worker-0", "digits-worker-1", "digits-worker-2"]
        assert story.job.status.restarts.total == 0
        assert story.job.status.attempt == 1

    def test_an_operator_that_dies_in_between_gives_back_the_rest(self) -> None:
        story = self.refused()
        story.step()
        story.refusal = None  # what was refused is not remembered
        story.settle()
        assert all(pod.terminating for pod in story.pods.values())

    def test_pods_of_a_job_without_a_gang_wait_where_they_are(self) -> None:
        story = World(job(roles={"worker": 3}))
        story.settle()
        del story.pods["digits-worker-2"]
        story.refusal = CreationRefusal("digits-worker-2", "Forbidden", "exceeded quota: pods=2", NOW)
        story.settle()
        assert not any(pod.terminating for pod in story.pods.values())

    def test_once_all_were_ready_a_refusal_releases_nobody(self) -> None:
        story = world(VOLCANO)
        story.settle()
        story.run_all()
        story.settle()
        story.refusal = CreationRefusal("digits-worker-2-r1", "Forbidden", "exceeded quota: pods=2", NOW)
        story.settle()
        assert not any(pod.terminating for pod in story.pods.values())


class TestKueue:
    def queued(self, *, elastic: object = None) -> World:
        story = world(KUEUE, gang="Kueue", queue="team-a", elastic=elastic)
        story.settle()
        return story

    def running(self) -> World:
        story = self.queued()
        admit(story)
        story.settle()
        story.run_all()
        story.settle()
        return story

    def test_nothing_is_created_before_the_job_is_admitted(self) -> None:
        story = self.queued()
        assert not story.pods
        assert story.service is None
        assert story.job.status.state == "Suspended"
        assert story.job.status.reason == "Queued"

    def test_why_it_waits_is_said_in_kueues_words(self) -> None:
        story = self.queued()
        story.kueue_says({"conditions": [_is("QuotaReserved", "False", message="insufficient quota for cpu")]})
        story.advance(60)
        story.settle()
        condition = story.job.status.condition(Condition.SUSPENDED)
        assert condition is not None
        assert condition.message == "Kueue: insufficient quota for cpu"

    def test_a_template_that_the_server_refuses_is_not_queued(self) -> None:
        story = world(KUEUE, gang="Kueue", queue="team-a")
        story.template_errors = ("worker: spec.containers[0].image: Required value",)
        story.settle()
        assert story.gang is None
        assert story.is_true(Condition.INVALID)

    def test_an_admitted_job_runs_where_its_flavor_is(self) -> None:
        story = self.queued()
        toleration: JsonObject = {"key": "spot", "operator": "Exists"}
        story.known_flavors = {"spot": Flavor({"pool": "spot"}, (toleration,))}
        admit(story, cpu="spot", memory="spot")
        story.settle()
        assert len(story.taken(ReadFlavors)) == 1
        pod = story.manifests["digits-worker-0"]
        assert dig(pod, "spec", "nodeSelector") == {"pool": "spot"}
        assert dig(pod, "spec", "tolerations") == [toleration]
        assert [emit.reason for emit in story.events][-2:] == ["Admitted", "PodsCreated"]
        assert not story.is_true(Condition.SUSPENDED)

    def test_what_admission_checks_ask_for_is_done(self) -> None:
        story = self.queued()
        admit(story)
        update: JsonObject = {
            "name": "worker",
            "nodeSelector": {"reservation": "r1"},
            "annotations": {"provisioned-by": "pr1"},
        }
        assert story.gang is not None
        story.kueue_says({**story.gang.status, "admissionChecks": [{"name": "prov", "podSetUpdates": [update]}]})
        story.settle()
        pod = story.manifests["digits-worker-0"]
        assert dig(pod, "spec", "nodeSelector") == {"reservation": "r1"}
        assert dig(pod, "metadata", "annotations") == {"provisioned-by": "pr1"}

    def test_an_evicted_job_saves_gives_its_quota_back_and_waits_again(self) -> None:
        story = self.running()
        assert story.gang is not None
        evicted = _is("Evicted", reason="Preempted", message="preempted to accommodate a higher priority Workload")
        story.kueue_says({**story.gang.status, "conditions": [_is("QuotaReserved"), _is("Admitted"), evicted]})
        story.settle()
        assert all(pod.terminating for pod in story.pods.values())
        assert not story.taken(ReleaseQuota), "quota is given back when the pods are gone, not before"
        story.finish_deletions()
        story.settle()
        assert story.gang.status.get("admission") is None
        conditions = story.gang.status["conditions"]
        assert isinstance(conditions, list)
        found = {str(dig(one, "type")): dig(one, "status") for one in conditions}
        assert found == {"QuotaReserved": "False", "Admitted": "False", "Evicted": "True", "Requeued": "True"}
        assert story.job.status.state == "Suspended"
        assert story.job.status.restarts.total == 0

    def test_a_job_that_is_admitted_again_goes_on_as_a_new_attempt(self) -> None:
        story = self.running()
        assert story.gang is not None
        story.kueue_says({**story.gang.status, "conditions": [_is("QuotaReserved"), _is("Evicted")]})
        story.settle()
        story.finish_deletions()
        story.settle()
        admit(story)
        story.settle()
        assert story.job.status.attempt == 2
        assert sorted(story.pods) == ["digits-worker-0-r1", "digits-worker-1-r1", "digits-worker-2-r1"]
        assert len(story.taken(CreateGang)) == 1

    def test_a_deactivated_workload_stops_the_job_and_says_how_to_go_on(self) -> None:
        story = self.running()
        assert story.gang is not None
        story.gang = replace(story.gang, active=False)
        story.settle()
        story.finish_deletions()
        story.settle()
        condition = story.job.status.condition(Condition.SUSPENDED)
        assert condition is not None
        assert "spec.active" in condition.message

    def test_a_workload_that_is_deleted_sends_the_job_back_into_the_queue(self) -> None:
        story = self.running()
        story.gang = None
        story.settle()
        story.finish_deletions()
        story.settle()
        assert story.gang is not None
        assert not story.pods

    def test_a_job_that_ends_gives_its_quota_back(self) -> None:
        story = self.running()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        story.settle()
        story.finish_deletions()
        story.settle()
        assert story.gang is None
        assert story.job.status.state == "Succeeded"

    def test_another_number_of_workers_is_asked_for_anew(self) -> None:
        story = self.queued(elastic={"maxReplicas": 5})
        scheduling = {"gang": "Kueue", "queue": "team-a"}
        scaled = job(roles={"worker": 5}, elastic={"maxReplicas": 5}, runPolicy={"scheduling": scheduling})
        story.job = replace(story.job, spec=scaled.spec, raw_spec=scaled.raw_spec, generation=2)
        story.settle()
        assert [dig(body, "spec", "podSets", 0, "count") for body in story.gang_manifests] == [3, 5]

    def test_the_start_deadline_counts_from_admission(self) -> None:
        body = job(
            roles={"worker": 3},
            runPolicy={"startDeadlineSeconds": 60, "scheduling": {"gang": "Kueue", "queue": "team-a"}},
        )
        story = World(body, installed=(KUEUE,))
        story.settle()
        story.advance(600)
        story.settle()
        admit(story)
        story.settle()
        story.advance(59)
        story.settle()
        assert story.job.status.state == "Starting"
        story.advance(2)
        story.settle()
        failed = story.job.status.condition(Condition.FAILURE_TARGET)
        assert failed is not None
        assert failed.reason == Reason.START_DEADLINE_EXCEEDED
