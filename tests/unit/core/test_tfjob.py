"""A TFJob of Kubeflow as the planner runs it: pods, Services, TF_CONFIG, restarts and the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bad_tfjobs import container, role
from builders import NOW
from dtj.api.json import JsonObject, dig, object_at, objects, text
from dtj.api.names import Reason
from dtj.api.spec import CleanPodPolicy, Gang
from dtj.api.tfjob.names import Label
from dtj.core.actions import Create, DeletePod, Kind, Update
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.context import JobContext
from dtj.core.observed import Phase
from dtj_launch.topology import RestartRole, topology_of
from support.planned import called
from support.played_tfjobs import (
    change,
    conditions,
    container_of,
    last_condition,
    running_tfjob,
    tf_config,
    tfjob,
    world_of,
)
from support.pod_environment import environment_of
from world import World


class TestPods:
    def test_worker_0_is_the_master_where_there_is_no_chief(self) -> None:
        world = running_tfjob()
        roles = {name: dig(body, "metadata", "labels", Label.JOB_ROLE) for name, body in world.manifests.items()}
        assert roles == {"mnist-worker-0": "master", "mnist-worker-1": None}

    def test_a_master_is_spelled_so_in_names_labels_and_tf_config(self) -> None:
        world = running_tfjob({"Master": 1, "Worker": 1})
        assert sorted(world.services) == ["mnist-master-0", "mnist-worker-0"]
        config = tf_config(world, "master-0") or {}
        assert (dig(config, "task", "type"), [*object_at(config, "cluster")]) == ("master", ["master", "worker"])
        assert dig(world.manifests["mnist-master-0"], "metadata", "labels", Label.REPLICA_TYPE) == "master"

    def test_of_a_master_the_launcher_finds_the_task(self) -> None:
        world = running_tfjob({"Master": 1, "Worker": 1, "PS": 1})
        topology = topology_of(environment_of(world.manifests["mnist-master-0"]))
        assert (topology.name, topology.restart_role) == ("master 0", RestartRole.COORDINATOR)
        topology = topology_of(environment_of(world.manifests["mnist-worker-0"]))
        assert (topology.name, topology.restart_role) == ("worker 0", RestartRole.SERVER)

    def test_a_master_is_counted_as_one(self) -> None:
        world = running_tfjob({"MASTER": 1, "Worker": 1})
        assert {*object_at(world.job.raw_status, "replicaStatuses")} == {"Master", "Worker"}

    def test_get_nothing_that_their_template_does_not_ask_for(self) -> None:
        world = running_tfjob()
        spec = object_at(world.manifests["mnist-worker-0"], "spec")
        assert {*spec} == {"containers", "hostname", "restartPolicy"}
        assert (spec["hostname"], spec["restartPolicy"]) == ("mnist-worker-0", "Never")
        container = container_of(world, "worker-0")
        assert {*container} == {"name", "image", "ports", "env", "terminationMessagePolicy"}
        assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]

    def test_a_sidecar_keeps_a_tf_config_of_its_own(self) -> None:
        own: JsonObject = {"name": "TF_CONFIG", "value": "{}"}
        world = running_tfjob({"Worker": role(2, container(), container("proxy", env=[own]))})
        proxy = objects(dig(world.manifests["mnist-worker-0"], "spec", "containers"))[1]
        assert own in objects(proxy["env"])
        assert tf_config(world, "worker-0") is not None

    def test_each_role_may_have_a_port_of_its_own(self) -> None:
        port = {"name": "tfjob-port", "containerPort": 3000}
        world = running_tfjob({"Worker": role(1, container(ports=[port])), "PS": 1})
        addresses = object_at(tf_config(world, "ps-0") or {}, "cluster")
        assert addresses == {"worker": ["mnist-worker-0.default.svc:3000"], "ps": ["mnist-ps-0.default.svc:2222"]}


class TestServices:
    def test_each_replica_has_one_before_the_first_pod(self) -> None:
        world = world_of(tfjob()).settle()
        assert sorted(world.services) == ["mnist-worker-0", "mnist-worker-1"]
        kinds = [called(action) for action in world.history]
        assert kinds.index("CreatePod") > len(kinds) - 1 - kinds[::-1].index("Create Service")

    def test_one_lists_a_port_once_that_the_container_calls_otherwise(self) -> None:
        ports: list[JsonObject] = [{"name": "grpc", "containerPort": 2222}, {"name": "metrics", "containerPort": 8000}]
        world = world_of(tfjob({"Worker": role(1, container(ports=ports))}))
        world.settle()
        (service,) = (action.manifest for action in world.history if isinstance(action, Create))
        assert {port["name"]: port["port"] for port in objects(dig(service, "spec", "ports"))} == {
            "tfjob-port": 2222,
            "metrics": 8000,
        }

    def test_one_selects_the_new_pod_alone_only_while_the_old_one_may_answer(self) -> None:
        world = running_tfjob({"Chief": 1, "Worker": 1, "PS": 1})
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        world.advance(61)
        world.start()
        assert world.taken(Update, Kind.SERVICE) == []
        world.loses("worker-0-r1")
        (update,) = world.taken(Update, Kind.SERVICE)
        assert isinstance(update, Update)
        assert dig(update.patch, "spec", "selector", "training.dtj.dev/incarnation") == "2"

    def test_they_go_with_the_end_and_with_a_suspension(self) -> None:
        world = running_tfjob()
        world.sees("worker-0", Phase.SUCCEEDED)
        assert world.services == {}


class TestRestarts:
    def test_the_pod_before_is_gone_once_its_successor_is_there(self) -> None:
        world = running_tfjob({"Chief": 1, "Worker": 1, "PS": 1})
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        world.advance(61)
        world.start()
        world.settle_deletions()
        assert [name for name in world.pods if "worker" in name] == ["mnist-worker-0-r1"]

    @pytest.mark.parametrize(
        ("policy", "code", "again"),
        [
            ("Never", 137, False),
            ("OnFailure", 1, True),
            ("ExitCode", 1, False),
            ("ExitCode", 127, False),
            ("ExitCode", 128, True),
            ("ExitCode", 130, True),
            ("ExitCode", 139, True),
            ("ExitCode", 42, True),
            ("OnFailure", 75, True),
            ("Never", 75, False),
            ("ExitCode", 75, False),
        ],
    )
    def test_follow_the_restart_policy(self, policy: str, code: int, *, again: bool) -> None:
        world = running_tfjob({"Worker": 1}, restarts=policy)
        world.sees("worker-0", Phase.FAILED, exit_code=code)
        world.wait(61)
        assert ("mnist-worker-0-r1" in world.pods, world.job.status.terminal) == (again, not again)

    def test_are_free_for_code_75_where_a_pod_was_taken_away(self) -> None:
        world = running_tfjob(restarts="Never")
        world.take_away("worker-1")
        world.sees("worker-0", Phase.FAILED, exit_code=75)
        world.wait(61)
        assert not world.job.status.terminal
        assert world.job.status.restarts.disruption == 1

    @pytest.mark.parametrize(("policy", "told"), [("OnFailure", True), ("Always", True), ("Never", False)])
    def test_lose_what_is_in_an_empty_dir_and_say_so_at_the_start(self, policy: str, *, told: bool) -> None:
        worker = role(2)
        object_at(object_at(worker, "template"), "spec")["volumes"] = [{"name": "checkpoints", "emptyDir": {}}]
        world = running_tfjob({"Worker": worker}, restarts=policy)
        assert (Reason.EMPTY_DIR_IS_LOST in [event.reason for event in world.events]) == told

    @pytest.mark.parametrize(
        ("policy", "code", "limit", "runs"),
        [
            *((policy, 1, limit, limit + 1) for policy in ("Always", "OnFailure") for limit in (0, 1, 3)),
            ("Always", 137, 2, 3),
            ("ExitCode", 137, 2, 3),
            ("ExitCode", 1, 2, 1),
            ("Never", 1, 2, 1),
        ],
    )
    @pytest.mark.parametrize(
        "roles", [{"Worker": 2}, {"Worker": 1}, {"Chief": 1, "Worker": 1}, {"Chief": 1, "Worker": 1, "PS": 1}]
    )
    def test_of_a_program_that_always_fails_are_as_many_as_the_backoff_limit(
        self, roles: dict[str, int], policy: str, code: int, limit: int, runs: int
    ) -> None:
        world = running_tfjob(roles, restarts=policy, runPolicy={"backoffLimit": limit})
        for number in range(runs):
            assert not world.job.status.terminal
            world.sees("worker-0" + (f"-r{number}" if number else ""), Phase.FAILED, exit_code=code)
            world.settle_deletions()
            world.wait(61)
            world.start()
        assert world.job.status.state == "Failed"
        assert world.job.status.restarts.total == runs - 1
        assert world.root_cause().exit_code == code

    def test_do_not_come_after_an_end_with_0_whatever_the_policy(self) -> None:
        world = running_tfjob(restarts="Always")
        world.sees("worker-0", Phase.SUCCEEDED)
        assert world.job.status.state == "Succeeded"

    @pytest.mark.parametrize("policy", ["Never", "OnFailure", None])
    def test_say_that_the_policy_of_the_template_does_not_count(self, policy: str | None) -> None:
        worker = role(2)
        object_at(object_at(worker, "template"), "spec").update({"restartPolicy": policy} if policy else {})
        world = running_tfjob({"Worker": worker, "PS": 1})
        told = [(event.type, event.message) for event in world.events if event.reason == "SetPodTemplateRestartPolicy"]
        text = "Restart policy in pod template will be overwritten by restart policy in replica spec"
        assert told == ([("Warning", text)] if policy else [])

    def test_have_no_limit_unless_the_job_names_one(self) -> None:
        world = running_tfjob({"Worker": 1})
        for number in range(8):
            world.sees(f"worker-0{f'-r{number}' if number else ''}", Phase.FAILED, exit_code=1)
            world.advance(3600)
            world.start()
        assert not world.job.status.terminal

    def test_all_get_one_cluster_when_the_number_of_workers_changes(self) -> None:
        world = running_tfjob({"Worker": 2})
        change(world, tfjob({"Worker": 3}, restarts="OnFailure"))
        world.settle_deletions()
        world.start()
        assert sorted(world.pods) == ["mnist-worker-0-r1", "mnist-worker-1-r1", "mnist-worker-2-r1"]


class TestTheEnd:
    def test_deletes_all_pods_where_the_policy_is_empty_as_kubeflow_has_it(self) -> None:
        world = running_tfjob({"Worker": 1, "PS": 1}, runPolicy={"cleanPodPolicy": ""})
        world.sees("worker-0", Phase.SUCCEEDED)
        assert len(world.taken(DeletePod)) == 2

    def test_leaves_pods_that_run_unless_a_policy_says_otherwise(self) -> None:
        world = running_tfjob({"Worker": 1, "PS": 1})
        world.sees("worker-0", Phase.SUCCEEDED)
        assert (world.job.status.terminal, world.taken(DeletePod)) == (True, [])
        other = world_of(tfjob({"Worker": 1, "PS": 1}), clean_pod_policy=CleanPodPolicy.RUNNING).start()
        other.sees("worker-0", Phase.SUCCEEDED)
        assert [action.name for action in other.taken(DeletePod) if isinstance(action, DeletePod)] == ["mnist-ps-0"]

    @pytest.mark.parametrize("policy", [{}, {"cleanPodPolicy": "None"}], ids=str)
    def test_keeps_a_pod_and_its_log_whose_injected_proxy_goes_on_and_says_so(self, policy: JsonObject) -> None:
        world = running_tfjob({"Worker": 2}, runPolicy=policy)
        for replica in ("worker-1", "worker-0"):
            world.set_pod(replica, Phase.RUNNING, exit_code=0)
            world.pods[f"mnist-{replica}"] = replace(world.pods[f"mnist-{replica}"], ready=False, sidecars=True)
            world.settle()
        assert not world.job.status.terminal, "the proxy may end by itself"
        world.wait(6)
        assert conditions(world)["Succeeded"] == "True"
        world.wait(600)
        assert (set(world.pods), world.taken(DeletePod)) == ({"mnist-worker-0", "mnist-worker-1"}, [])
        (said,) = (event.message for event in world.events if event.reason is Reason.PODS_KEPT)
        assert said == (
            "pods that go on after the end of the job and hold their resources, because cleanPodPolicy is None: "
            "mnist-worker-0, mnist-worker-1. Delete them, or set Running"
        )

    def test_keeps_a_worker_that_completes_before_the_others_with_its_proxy(self) -> None:
        world = running_tfjob({"Chief": 1, "Worker": 1})
        world.set_pod("worker-0", Phase.RUNNING, exit_code=0)
        world.pods["mnist-worker-0"] = replace(world.pods["mnist-worker-0"], ready=False, sidecars=True)
        world.settle()
        world.wait(60)
        assert (world.taken(DeletePod), world.job.status.terminal) == ([], False)

    def test_deletes_it_where_pods_that_run_are_to_be_deleted(self) -> None:
        world = running_tfjob({"Worker": 1}, runPolicy={"cleanPodPolicy": "Running"})
        world.set_pod("worker-0", Phase.RUNNING, exit_code=0)
        world.pods["mnist-worker-0"] = replace(world.pods["mnist-worker-0"], ready=False, sidecars=True)
        world.settle()
        world.wait(6)
        assert len(world.taken(DeletePod)) == 1
        assert not [event for event in world.events if event.reason is Reason.PODS_KEPT]

    def test_names_servers_that_go_on(self) -> None:
        world = running_tfjob({"Worker": 1, "PS": 1})
        world.sees("worker-0", Phase.SUCCEEDED)
        (said,) = (event.message for event in world.events if event.reason is Reason.PODS_KEPT)
        assert "because cleanPodPolicy is None: mnist-ps-0." in said

    def test_by_the_deadline_stops_what_runs_under_each_policy_and_keeps_what_has_ended(self) -> None:
        world = running_tfjob(
            {"Worker": 2, "PS": 1}, runPolicy={"activeDeadlineSeconds": 100, "cleanPodPolicy": "None"}
        )
        world.sees("worker-1", Phase.SUCCEEDED)
        world.wait(101)
        world.settle_deletions()
        assert conditions(world)["Failed"] == "True"
        assert [*world.pods] == ["mnist-worker-1"]

    @pytest.mark.parametrize(
        ("field", "read"),
        [("backoffLimit", 1_000_000), ("activeDeadlineSeconds", 2**31 - 1), ("ttlSecondsAfterFinished", 2**31 - 1)],
    )
    def test_a_number_that_means_no_limit_is_read_as_the_largest_of_ours(self, field: str, read: int) -> None:
        world = running_tfjob(runPolicy={field: 2**40})
        assert world.job.spec is not None
        assert world.job.spec.run_policy.model_dump(by_alias=True)[field] == read

    @pytest.mark.parametrize(("run_policy", "stay"), [({"backoffLimit": 0}, False), ({}, True)])
    def test_by_a_failure_stops_what_runs_only_where_restarts_are_used_up(
        self, run_policy: JsonObject, *, stay: bool
    ) -> None:
        restarts = "Never" if stay else "OnFailure"
        world = running_tfjob({"Worker": 1, "PS": 1}, restarts=restarts, runPolicy=run_policy)
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        world.settle_deletions()
        assert conditions(world)["Failed"] == "True"
        assert ("mnist-ps-0" in world.pods) == stay
        assert "mnist-worker-0" in world.pods

    @pytest.mark.parametrize("chief", ["Chief", "Master"])
    def test_is_that_of_a_chief_also_where_all_workers_are_to_succeed(self, chief: str) -> None:
        world = running_tfjob({chief: 1, "Worker": 2, "PS": 1}, successPolicy="AllWorkers")
        assert [event.message for event in world.events if event.reason is Reason.FIELD_IGNORED] == [
            f"no effect: spec.successPolicy AllWorkers, because the job ends with its {chief}"
        ]
        world.sees(f"{chief.lower()}-0", Phase.SUCCEEDED)
        assert conditions(world)["Succeeded"] == "True"

    def test_does_not_wait_for_an_evaluator(self) -> None:
        world = running_tfjob({"Worker": 1, "Evaluator": 1})
        world.sees("worker-0", Phase.SUCCEEDED)
        assert world.job.status.terminal


def installed(world: World, *gangs: Gang) -> World:
    """A cluster that has these schedulers."""
    world.installed, world.gangs = tuple(api for api in APIS if api.gang in gangs), None
    return world.settle()


class TestGangs:
    def test_are_those_of_the_operators_setting_and_nobody_else_makes_a_podgroup(self) -> None:
        policy: JsonObject = {"schedulingPolicy": {"minAvailable": 2, "queue": "research", "priorityClass": "high"}}
        body = tfjob(runPolicy=policy)
        world = installed(world_of(body, gang_of_tfjobs=Gang.VOLCANO), Gang.VOLCANO)
        (group,) = world.gang_manifests
        assert dig(group, "metadata", "name") == "mnist"
        spec = object_at(group, "spec")
        assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (2, "research", "high")
        pod = world.manifests["mnist-worker-0"]
        assert dig(pod, "metadata", "annotations", "scheduling.k8s.io/group-name") == "mnist"
        assert dig(pod, "spec", "schedulerName") == "volcano"
        assert running_tfjob(runPolicy=policy).gang_manifests == []

    def test_of_which_no_pod_is_to_wait_have_no_pod_that_waits_for_another(self) -> None:
        body = tfjob(runPolicy={"schedulingPolicy": {"minAvailable": 0}})
        world = installed(world_of(body, gang_of_tfjobs=Gang.VOLCANO), Gang.VOLCANO)
        assert dig(world.gang_manifests[-1], "spec", "minMember") == 1

    def test_of_volcano_tell_it_the_role_of_each_pod_also_of_one_that_comes_back_alone(self) -> None:
        body = tfjob({"Master": 1, "Worker": 1, "PS": 1})
        world = installed(world_of(body, gang_of_tfjobs=Gang.VOLCANO), Gang.VOLCANO).start()
        world.loses("worker-0")
        world.settle_deletions()
        roles = {
            name: dig(pod, "metadata", "annotations", "volcano.sh/task-spec") for name, pod in world.manifests.items()
        }
        assert [roles[name] for name in sorted(roles)] == ["master", "ps", "worker", "worker"]

    def test_that_can_never_be_complete_stay_created_and_say_why(self) -> None:
        world = world_of(tfjob(runPolicy={"schedulingPolicy": {"minAvailable": 10}}), gang_of_tfjobs=Gang.COSCHEDULING)
        installed(world, Gang.COSCHEDULING)
        assert (last_condition(world)["type"], world.pods) == ("Created", {})
        assert "minAvailable: 10 is more than the 2 pods" in text(last_condition(world)["message"])

    @pytest.mark.parametrize(
        ("gang", "platform", "setting"),
        [
            (Gang.VOLCANO, {"gang_of_tfjobs": Gang.VOLCANO}, "gangScheduler"),
            (Gang.COSCHEDULING, {"gang_of_tfjobs": Gang.COSCHEDULING}, "gangScheduler"),
            (Gang.KUEUE, {"queues_tfjobs": True}, "kueue"),
        ],
    )
    def test_of_a_scheduler_that_is_installed_later_wait_and_say_where_it_is_set(
        self, gang: Gang, platform: dict[str, Any], setting: str
    ) -> None:
        body = tfjob()
        object_at(body, "metadata")["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
        world = installed(world_of(body, **platform))
        assert last_condition(world)["type"] == "Created"
        assert text(last_condition(world)["message"]).startswith(
            f"tfjob.{setting} of the operator's chart: this cluster serves no API of {gang} "
        )
        world.installed = tuple(api for api in APIS if api.gang is gang)
        world.wait(61)
        assert len(world.gang_manifests) == 1
        assert "serves no API" not in text(last_condition(world)["message"])

    def test_a_queue_of_kueue_is_ours_only_if_the_operator_is_told_so(self) -> None:
        body = tfjob()
        object_at(body, "metadata")["labels"] = {"kueue.x-k8s.io/queue-name": "research"}
        assert sorted(world_of(body).start().pods) == ["mnist-worker-0", "mnist-worker-1"]
        world = installed(world_of(body, queues_tfjobs=True), Gang.KUEUE)
        (workload,) = world.gang_manifests
        assert (dig(workload, "spec", "queueName"), world.pods) == ("research", {})
        assert last_condition(world)["type"] == "Suspended"


class TestDynamicWorkers:
    def test_know_themselves_and_the_servers_alone(self) -> None:
        world = running_tfjob({"Worker": 2, "PS": 1}, enableDynamicWorker=True)
        ps = "mnist-ps-0.default.svc:2222"
        assert [tf_config(world, name) for name in ("worker-1", "ps-0")] == [
            {
                "cluster": {"worker": {"1": "mnist-worker-1.default.svc:2222"}, "ps": [ps]},
                "task": {"type": "worker", "index": 1},
            },
            {"cluster": {"worker": {}, "ps": [ps]}, "task": {"type": "ps", "index": 0}},
        ]

    @pytest.mark.parametrize(("dynamic", "problems"), [(True, 0), (False, 1)])
    def test_may_be_more_than_one_variable_could_list(self, dynamic: bool, problems: int) -> None:
        world = world_of(tfjob({"Worker": 10_000, "PS": 1}, enableDynamicWorker=dynamic))
        assert len(JobContext.of(world.observed(), NOW).problems) == problems

    @pytest.mark.parametrize("roles", [{"Worker": 12, "PS": 3}, {"Worker": 1, "PS": 11}])
    def test_have_a_tf_config_whose_longest_is_known(self, roles: Mapping[str, int | JsonObject]) -> None:
        world = running_tfjob(roles, enableDynamicWorker=True)
        made = (environment_of(body)["TF_CONFIG"] for body in world.manifests.values())
        assert JobContext.of(world.observed(), NOW).cluster.longest == max(map(len, made))

    def test_come_and_go_while_the_others_run_on(self) -> None:
        world = running_tfjob({"Worker": 2, "PS": 1}, enableDynamicWorker=True)
        kept = {world.pods[name].uid for name in ("mnist-worker-0", "mnist-ps-0")}
        for count, there in ((3, ["worker-0", "worker-1", "worker-2"]), (1, ["worker-0"])):
            change(world, tfjob({"Worker": count, "PS": 1}, restarts="OnFailure", enableDynamicWorker=True))
            world.settle_deletions()
            world.start()
            assert sorted(world.pods) == sorted(f"mnist-{name}" for name in (*there, "ps-0"))
        assert kept <= {pod.uid for pod in world.pods.values()}

    def test_may_fail_without_an_end_of_the_job(self) -> None:
        world = running_tfjob({"Worker": 2, "PS": 1}, restarts="Never", enableDynamicWorker=True)
        world.sees("worker-1", Phase.FAILED, exit_code=1)
        assert not world.job.status.terminal
        world.sees("ps-0", Phase.FAILED, exit_code=1)
        assert world.job.status.terminal

    @pytest.mark.parametrize("roles", [{"Worker": 2, "PS": 1}, {"Chief": 1, "Worker": 2, "PS": 1}], ids=str)
    def test_that_have_failed_do_not_keep_the_job_from_its_success(self, roles: dict[str, int]) -> None:
        world = running_tfjob(roles, restarts="Never", enableDynamicWorker=True)
        world.sees("worker-1", Phase.FAILED, exit_code=1)
        world.advance(60)
        world.sees("chief-0" if "Chief" in roles else "worker-0", Phase.SUCCEEDED)
        assert conditions(world)["Succeeded"] == "True"
        assert dig(world.job.raw_status, "replicaStatuses", "Worker", "failed") == 1

    @pytest.mark.parametrize(("policy", "limit"), [("ExitCode", 3), ("OnFailure", 0)])
    def test_fail_the_job_by_an_exit_code_or_a_limit_that_says_so(self, policy: str, limit: int) -> None:
        run_policy: JsonObject = {"backoffLimit": limit}
        world = running_tfjob({"Worker": 2, "PS": 1}, restarts=policy, enableDynamicWorker=True, runPolicy=run_policy)
        world.sees("worker-1", Phase.FAILED, exit_code=1)
        world.settle_deletions()
        assert conditions(world).get("Failed") == "True"

    def test_fail_the_job_when_none_is_left(self) -> None:
        world = running_tfjob({"Worker": 2, "PS": 1}, restarts="Never", enableDynamicWorker=True)
        world.sees("worker-0", Phase.FAILED, exit_code=1)
        world.advance(60)
        world.sees("worker-1", Phase.SUCCEEDED)
        assert (last_condition(world)["type"], last_condition(world)["message"]) == (
            "Failed",
            "worker-0 (pod mnist-worker-0) exited with code 1",
        )
