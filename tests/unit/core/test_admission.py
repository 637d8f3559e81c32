"""All pods of a job or none: which scheduler learns of them, in which words, and what becomes of the job meanwhile."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from builders import NOW, edited, job, manifest, record_of, stored
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.names import Annotation, Condition, Reason
from dtj.api.spec import Gang
from dtj.core.actions import BestEffort, Create, Delete, LookForGangs, Update
from dtj.core.admission.group import requests
from dtj.core.admission.scheduler_choice import APIS, unknown_versions
from dtj.core.observed import CreationRefusal, GangApi, GangsFound, Phase
from dtj.core.status import format_time
from support.gang_manifests import gang_of
from support.gang_worlds import COSCHEDULING, KUEUE, NATIVE, VOLCANO, admit, world
from support.planned import called, does
from world import World


def spec_of(world: World) -> JsonObject:
    """What the newest PodGroup or Workload says."""
    found = world.gang_manifests[-1]["spec"]
    assert isinstance(found, dict)
    return found


class TestWhoIsTold:
    def test_nobody_where_the_job_does_not_ask_for_it(self) -> None:
        story = World(job(), installed=APIS).settle()
        assert len(story.taken(LookForGangs)) == 1  # a job may have a default queue without asking for it
        assert story.gang is None

    def test_nobody_where_the_job_says_none(self) -> None:
        alone = world(*APIS, gang="None").settle()
        assert not alone.taken(LookForGangs)
        assert len(alone.pods) == 3

    @pytest.mark.parametrize(
        ("installed", "queue", "chosen"),
        [
            (APIS, "", VOLCANO),
            ((NATIVE, COSCHEDULING), "", COSCHEDULING),
            ((KUEUE, NATIVE), "", NATIVE),
            ((KUEUE, VOLCANO), "team-a", KUEUE),
            ((VOLCANO,), "team-a", VOLCANO),
        ],
        ids=["all", "two that place pods", "Kueue too", "a queue, and Kueue", "a queue without Kueue"],
    )
    def test_auto_takes_kueue_for_a_queue_and_else_the_first_scheduler_that_is_there(
        self, installed: tuple[GangApi, ...], queue: str, chosen: GangApi
    ) -> None:
        automatic = world(*installed, **({"queue": queue} if queue else {})).settle()  # type: ignore[arg-type]
        assert automatic.the_gang.api == chosen
        assert automatic.job.status.gang == ("" if chosen is KUEUE else chosen.gang), "Kueue has not admitted it yet"
        said = spec_of(automatic)
        assert (said.get("queueName") if chosen is KUEUE else said.get("queue", "")) == queue

    def test_auto_in_a_cluster_without_any_lets_pods_be_scheduled_one_by_one(self) -> None:
        plain = world().settle()
        assert (len(plain.pods), plain.job.status.gang) == (3, "None")

    @pytest.mark.parametrize("version", ["kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1"])
    def test_a_version_of_a_scheduler_that_is_too_old_or_too_new_is_named(self, version: str) -> None:
        queued = world(queue="team-a")
        served = (version, "scheduling.k8s.io/v1", VOLCANO.api_version)  # of PriorityClasses, and one that is known
        queued.gangs = GangsFound((), NOW, unknown=unknown_versions(served))
        queued.settle()
        message = queued.condition(Condition.INVALID).message
        assert "knows (kueue.x-k8s.io/v1beta2" in message
        assert "install a version that has one" in message
        assert f"found: {version})" in message

    def test_a_scheduler_that_is_installed_later_is_found(self) -> None:
        waiting = world(gang="Volcano").settle()
        waiting.installed = (VOLCANO,)
        waiting.wait(61)
        assert len(waiting.pods) == 3
        assert not waiting.is_true(Condition.INVALID)

    def test_a_scheduler_that_was_removed_since_it_was_found_is_missed_once_its_group_cannot_be_created(self) -> None:
        queued = world(queue="team-a")
        queued.gangs, queued.obstacle = GangsFound((KUEUE,), NOW), "the server could not find the requested resource"
        queued.wait(61)
        assert queued.gang_manifests == []
        assert "serves no API of Kueue or Volcano" in queued.condition(Condition.INVALID).message

    def test_pods_join_the_group_of_their_job_also_when_another_scheduler_is_installed(self) -> None:
        running = world(COSCHEDULING).settle()
        running.installed, running.gangs = (VOLCANO, COSCHEDULING), None
        running.loses("worker-1")
        running.settle_deletions()
        assert len({gang_of(running.manifests[name]) for name in running.pods}) == 1
        pod = running.manifests["digits-worker-1-r1"]
        assert dig(pod, "metadata", "labels", "scheduling.x-k8s.io/pod-group") == "digits"

    @pytest.mark.parametrize("api", [VOLCANO, COSCHEDULING], ids=lambda api: str(api.gang))
    def test_a_scheduler_that_a_new_operator_does_not_see_at_first_keeps_its_jobs(self, api: GangApi) -> None:
        running = world(api).settle()
        running.operator_restarts()
        running.installed, running.gangs = (), None
        running.settle()
        running.loses("worker-1")
        running.settle_deletions()
        assert "digits-worker-1-r1" not in running.pods
        message = running.condition(Condition.INVALID).message
        assert message == (
            f"the job began with {api.gang}, and the cluster does not serve its API: the job gets no new pods until "
            "that is repaired"
        )
        running.installed = (api,)
        running.wait(61)
        pod = running.manifests["digits-worker-1-r1"]
        assert gang_of(pod) == gang_of(running.manifests["digits-worker-0"])


class TestInWhichWords:
    @pytest.mark.parametrize(
        ("api", "scheduling", "spec", "pod"),
        [
            (
                VOLCANO,
                {"queue": "team-a", "minAvailable": 3, "priorityClassName": "high"},
                {
                    "minMember": 3,
                    "queue": "team-a",
                    "priorityClassName": "high",
                    "minResources": {"cpu": "1500m", "memory": str(3 * 2**30), "nvidia.com/gpu": "3"},
                },
                {
                    ("metadata", "annotations", "scheduling.k8s.io/group-name"): "digits",
                    ("metadata", "annotations", "volcano.sh/task-spec"): "chief",
                    ("metadata", "annotations", "scheduling.volcano.sh/queue-name"): "team-a",
                    ("spec", "schedulerName"): "volcano",
                    ("spec", "priorityClassName"): "high",
                },
            ),
            (
                COSCHEDULING,
                {"timeoutSeconds": 120},
                {
                    "minMember": 4,
                    "scheduleTimeoutSeconds": 120,
                    "minResources": {"cpu": "2", "memory": str(4 * 2**30), "nvidia.com/gpu": "4"},
                },
                {
                    ("metadata", "labels", "scheduling.x-k8s.io/pod-group"): "digits",
                    ("spec", "schedulerName"): "scheduler-plugins-scheduler",
                },
            ),
            (
                NATIVE,
                {},
                {"schedulingPolicy": {"gang": {"minCount": 4}}, "disruptionMode": {"all": {}}},
                {("spec", "schedulingGroup"): {"podGroupName": "digits"}, ("spec", "schedulerName"): None},
            ),
        ],
        ids=["Volcano", "Coscheduling", "Kubernetes"],
    )
    def test_each_scheduler_reads_its_own(
        self, api: GangApi, scheduling: JsonObject, spec: JsonObject, pod: dict[tuple[str, ...], object]
    ) -> None:
        resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}}
        template = {"spec": {"containers": [{"name": "trainer", "image": "x", "resources": resources}]}}
        body = job(roles={"chief": 1, "worker": 3}, template=template, runPolicy={"scheduling": scheduling})
        declared = World(body, installed=(api,)).settle()
        assert spec_of(declared) == spec
        assert {path: dig(declared.manifests["digits-chief-0"], *path) for path in pod} == pod

    def test_volcano_gets_the_annotations_of_the_job_that_are_for_it(self) -> None:
        asked = {"volcano.sh/task-topology-affinity": "ps,worker", "sla-waiting-time": "1h"}
        body = stored(manifest(runPolicy={"scheduling": {}}))
        object_at(body, "metadata")["annotations"] = {**asked, "example.com/team": "vision"}
        told = World(record_of(body).job(), installed=(VOLCANO,)).settle()
        found = dig(told.gang_manifests[-1], "metadata", "annotations")
        assert found == {**asked, Annotation.GANG_SIZE: "worker=2;min=2"}

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
        named = World(job(template=template, runPolicy={"scheduling": {}}), installed=(COSCHEDULING,)).settle()
        assert dig(named.manifests["digits-worker-0"], "spec", "schedulerName") == "mine"


class TestWhatAPodAsksFor:
    """As the scheduler counts it (PodRequests in k8s.io/component-helpers/resource)."""

    @staticmethod
    def container(cpu: str, **fields: object) -> dict[str, object]:
        return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **fields}

    @pytest.mark.parametrize(
        ("spec", "cpu"),
        [
            ({"containers": ["4", "1"]}, 5),
            ({"containers": ["4"], "initContainers": ["2"]}, 4),
            ({"containers": ["4"], "initContainers": ["7"]}, 7),
            ({"containers": ["4"], "initContainers": ["2 stays"]}, 6),
            ({"containers": ["4"], "initContainers": ["2 stays", "1 stays"]}, 7),
            ({"containers": ["4"], "initContainers": ["2 stays", "5"]}, 7),
            ({"containers": ["4"], "initContainers": ["5", "2 stays"]}, 6),
            ({"containers": ["4"], "resources": {"requests": {"cpu": "9"}}}, 9),
            ({"containers": ["4"], "overhead": {"cpu": "500m"}}, 4.5),
            ({"containers": ["4"], "resources": {"requests": {"cpu": "9"}}, "overhead": {"cpu": "1"}}, 10),
        ],
    )
    def test_native_sidecars_are_added_and_init_containers_run_next_to_those_before_them(
        self, spec: dict[str, object], cpu: float
    ) -> None:
        made = dict(spec)
        for kind in ("containers", "initContainers"):
            given = spec.get(kind, [])
            assert isinstance(given, list)
            made[kind] = [
                self.container(words[0], **({"restartPolicy": "Always"} if words[1:] else {}))
                for words in map(str.split, given)
            ]
        assert requests({"spec": made}) == {"cpu": Fraction(cpu)}  # type: ignore[dict-item]

    def test_of_the_resources_of_the_whole_pod_only_those_count_that_kubernetes_knows_there(self) -> None:
        spec: JsonObject = {
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            "resources": {"requests": {"nvidia.com/gpu": 8, "hugepages-2Mi": "2Mi"}},
        }
        assert requests({"spec": spec}) == {"nvidia.com/gpu": Fraction(1), "hugepages-2Mi": Fraction(2 * 2**20)}


def deletions(story: World) -> list[BestEffort]:
    """Of the group, at the end; nothing waits for them."""
    return [
        action for action in story.history if isinstance(action, BestEffort) and does(action.action, Delete, GangApi)
    ]


class TestThroughTheLifeOfAJob:
    @pytest.mark.parametrize("api", [VOLCANO, COSCHEDULING, NATIVE], ids=lambda api: api.api_version)
    def test_the_group_is_made_once_before_the_pods_and_deleted_once_at_the_end(self, api: GangApi) -> None:
        story = world(api).settle()
        kinds = [called(action) for action in story.history]
        assert kinds.index(f"Create {api.kind}") < kinds.index("CreatePod")
        story.all_run()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        story.settle_deletions()
        assert story.job.status.state == "Succeeded"
        assert story.gang is None
        assert (len(story.taken(Create, GangApi)), len(deletions(story))) == (1, 1)

    def test_the_end_does_not_wait_for_the_group_which_a_new_operator_deletes_too(self) -> None:
        story = world(VOLCANO).start()
        story.set_pod("worker-0", Phase.SUCCEEDED)
        while not story.is_true(Condition.COMPLETE):
            story.step()
            story.finish_deletions()
        assert (story.taken(Delete, GangApi), deletions(story)) == ([], [])
        story.operator_restarts()
        story.settle()
        assert len(deletions(story)) == 1

    def test_a_group_that_is_deleted_by_hand_is_created_again(self) -> None:
        story = world(VOLCANO).settle()
        story.gang = None
        story.settle()
        assert story.gang is not None

    def test_a_replica_that_comes_back_alone_joins_nobody_since_others_may_have_completed(self) -> None:
        body = job(strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1}, runPolicy={"scheduling": {}})
        story = World(body, installed=(NATIVE,)).start()
        story.set_pod("worker-1", Phase.FAILED, exit_code=3)
        story.wait(2)
        assert dig(story.manifests["digits-worker-1-r1"], "spec", "schedulingGroup") is None

    def test_a_suspended_job_holds_nothing(self) -> None:
        story = world(VOLCANO).settle()
        story.job = edited(story.job, suspend=True)
        story.settle_deletions()
        assert story.gang is None
        assert story.job.status.state == "Suspended"


class TestAnIncompleteGang:
    """Two jobs that each hold half of a quota would wait for each other forever (training-operator#1264)."""

    def refused(self, story: World | None = None, pod: str = "digits-worker-2") -> World:
        story = story or world(VOLCANO).settle()
        story.pods.pop(pod, None)
        story.refusal = CreationRefusal(pod, "Forbidden", "exceeded quota: pods=2", NOW)
        return story

    @pytest.mark.parametrize("dies", [False, True], ids=["the same operator", "one that died in between"])
    def test_gives_back_what_it_holds_and_says_so(self, *, dies: bool) -> None:
        story = self.refused()
        story.step()
        if dies:
            story.refusal = None  # what was refused is not remembered
        story.step()
        assert all(pod.terminating for pod in story.pods.values())
        condition = story.condition(Condition.PODS_READY)
        assert condition.reason == Reason.GANG_RELEASED
        assert "exceeded quota: pods=2" in condition.message

    @pytest.mark.parametrize(("exit_code", "limit"), [(143, None), (1, None), (1, 0), (137, 0)])
    def test_the_ends_of_pods_that_it_gave_back_are_no_losses(self, exit_code: int, limit: int | None) -> None:
        """A container may have ended while its pod is still there."""
        budget = {"backoffLimit": 0, **({"disruptionLimit": limit} if limit is not None else {})}
        policy = {"scheduling": {"gang": "Kueue", "queue": "a"}, **budget}
        story = World(job(roles={"worker": 3}, runPolicy=policy), installed=(KUEUE,)).settle()
        admit(story)
        story.settle()
        story.run_all()
        self.refused(story)
        story.step()
        story.step()
        for name in ("worker-0", "worker-1"):
            assert story.pods[f"digits-{name}"].terminating
            story.set_pod(name, Phase.FAILED, exit_code=exit_code)
        story.settle()
        story.finish_deletions()
        story.refusal = None
        story.settle()
        assert (story.job.status.state, story.job.status.attempt) == ("Starting", 1)
        assert story.job.status.restarts.total == 0
        assert len(story.pods) == 3

    @pytest.mark.parametrize("why", ["enough are placed", "the job has no gang", "all were ready"])
    def test_releases_nobody_where_nobody_waits_for_the_refused(self, why: str) -> None:
        pod = "digits-worker-2"
        match why:
            case "enough are placed":
                story = world(VOLCANO, minAvailable=2).settle()
                story.run_all()
            case "the job has no gang":
                story = World(job(roles={"worker": 3})).settle()
            case _:
                story, pod = world(VOLCANO).start(), "digits-worker-2-r1"
        self.refused(story, pod).settle()
        assert not any(pod.terminating for pod in story.pods.values())


def running(api: GangApi, **arguments: object) -> World:
    """A job whose pods all run."""
    story = World(job(runPolicy={"scheduling": {}}, **arguments), installed=(api,))  # type: ignore[arg-type]
    story.start()
    return story


def scale(story: World, workers: int) -> None:
    scaled = job(roles={"worker": workers}, elastic={"maxReplicas": 5}, runPolicy={"scheduling": {}})
    story.becomes(scaled)
    story.settle_deletions()


def test_replicas_of_parameter_servers_are_disrupted_alone() -> None:
    """Those of a collective are together: TestInWhichWords has the whole PodGroup."""
    servers = running(NATIVE, strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    assert spec_of(servers)["disruptionMode"] == {"single": {}}


class TestAJobThatGrows:
    def test_raises_the_count_of_its_group(self) -> None:
        story = running(NATIVE, roles={"worker": 3}, elastic={"maxReplicas": 5})
        scale(story, 5)
        assert dig(spec_of(story), "schedulingPolicy", "gang", "minCount") == 5
        assert dig(spec_of(story), "disruptionMode") == {"all": {}}
        assert (len(story.taken(Create, GangApi)), len(story.taken(Update, GangApi))) == (1, 1)
        assert story.taken(Delete, GangApi) == []
        assert len([pod for pod in story.pods.values() if pod.attempt == 2]) == 5

    def test_gets_another_group_if_the_count_cannot_be_changed(self) -> None:
        story = running(VOLCANO, roles={"worker": 3}, elastic={"maxReplicas": 5})
        scale(story, 5)
        assert (len(story.taken(Create, GangApi)), len(story.taken(Delete, GangApi))) == (2, 1)

    def test_says_what_keeps_its_group_from_being_replaced(self) -> None:
        story = world(VOLCANO).settle()
        story.pods.clear()
        story.gang = replace(story.the_gang, size="another")
        story.obstacle = "protected"
        story.step()
        ready = story.condition(Condition.PODS_READY)
        assert (ready.reason, ready.message) == (Reason.API_CALL_FAILED, "protected")

    def test_waits_for_the_end_of_a_group_that_is_being_deleted(self) -> None:
        """Kubernetes keeps a PodGroup until its pods are gone."""
        story = world(NATIVE).settle()
        story.pods.clear()
        story.gang = replace(story.the_gang, terminating=True)
        story.wait(60)
        assert not story.pods
        story.gang = None
        story.settle()
        assert len(story.pods) == 3


class TestADisruptedGroup:
    def disrupt(self, story: World, status: str = "True") -> None:
        condition: JsonObject = {
            "type": "DisruptionTarget",
            "status": status,
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": format_time(story.now),
        }
        story.gang = replace(story.the_gang, status={"conditions": [condition]})

    @pytest.mark.parametrize(("status", "charged"), [("True", "disruption"), ("False", "failure")])
    def test_the_end_of_its_pods_is_a_disruption(self, status: str, charged: str) -> None:
        story = running(NATIVE, roles={"worker": 3})
        self.disrupt(story, status)
        story.sees("worker-1", Phase.FAILED, exit_code=3)
        story.wait(10)
        restarts = story.job.status.restarts
        assert (restarts.disruption, restarts.user) == ((1, 0) if charged == "disruption" else (0, 1))


DOWN = "conversion webhook failed: connection refused"


class TestASchedulerWhoseApiFails:
    @pytest.mark.parametrize("scheduling", [{"gang": "Volcano"}, {"gang": "Auto"}], ids=str)
    def test_is_waited_for_by_a_job_that_needs_it_which_says_so(self, scheduling: dict[str, str]) -> None:
        story = world(VOLCANO, COSCHEDULING, **scheduling)  # type: ignore[arg-type]
        story.failing = {Gang.VOLCANO: DOWN}
        story.settle()
        assert not story.pods
        condition = story.condition(Condition.INVALID)
        assert (condition.reason, condition.message) == (
            Reason.GANG_UNAVAILABLE,
            f"runPolicy.scheduling: the API of Volcano fails ({DOWN}): repair it, or set another gang",
        )
        story.failing = {}
        story.wait(61)
        assert (len(story.pods), story.job.status.gang) == (3, "Volcano")

    def test_is_no_matter_to_a_job_that_uses_another(self) -> None:
        story = world(VOLCANO, COSCHEDULING, gang="Auto")
        story.failing = {Gang.COSCHEDULING: DOWN}
        assert story.settle().job.status.gang == "Volcano"

    def test_is_no_matter_to_a_running_job_until_a_pod_is_missing(self) -> None:
        story = running(VOLCANO, roles={"worker": 3})
        story.failing = {Gang.VOLCANO: DOWN}
        story.operator_restarts()
        story.settle()
        assert story.job.status.state == "Running"
        story.loses("worker-1")
        story.settle_deletions()
        story.wait(61)
        assert all(pod.attempt == 1 for pod in story.pods.values()), "a pod that joins no group might wait for ever"
        assert story.condition(Condition.INVALID).message == (
            f"the API of Volcano fails ({DOWN}): the job gets no new pods until it is repaired"
        )
        story.failing = {}
        story.wait(61)
        assert {gang_of(story.manifests[name]) for name in story.pods if story.pods[name].attempt == 2} == {"digits"}
        assert story.the_gang.api == VOLCANO

    def test_hears_of_the_end_of_a_job_when_it_works_again(self) -> None:
        story = running(VOLCANO, roles={"worker": 3})
        story.failing = {Gang.VOLCANO: DOWN}
        story.operator_restarts()
        for worker in range(3):
            story.set_pod(f"worker-{worker}", Phase.SUCCEEDED, exit_code=0)
        story.settle()
        assert story.job.status.terminal
        assert story.gang is not None
        story.failing = {}
        story.wait(61)
        assert story.gang is None


class TestAnOlderCluster:
    def test_is_told_what_to_use_there(self) -> None:
        story = world(VOLCANO, gang="Native").settle()
        condition = story.condition(Condition.INVALID)
        assert condition.reason == Reason.GANG_UNAVAILABLE
        assert condition.message == (
            "runPolicy.scheduling: this cluster serves no API of Native that the operator knows "
            "(scheduling.k8s.io/v1beta1): upgrade Kubernetes to 1.37 and enable it there, or set gang to Volcano, "
            "Coscheduling or Kueue (found: Volcano)"
        )
