"""The objects that a job owns: what the user wrote survives, what a replica needs is added."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import JsonValue

from builders import job, spec_of
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, objects
from dtj.api.names import Env, Label
from dtj.api.profiles import Profile
from dtj.api.spec import Role
from dtj.api.status import JobStatus
from dtj.core.manifests.pod import PodRenderer
from dtj.core.platform import Platform
from dtj.core.policies.job_service import service as service_of
from dtj.core.replicas import Replica
from dtj.core.validity import problems

WORKER = Replica(Role.WORKER, 0)


def pod(owner: Job, replica: Replica = WORKER, platform: Platform | None = None) -> JsonObject:
    return PodRenderer(owner, spec_of(owner), platform or Platform()).render(replica)


def environment(manifest: JsonObject, *path: str | int) -> dict[str, str]:
    container = dig(manifest, "spec", *(path or ("containers", 0)))
    return {str(v["name"]): str(v.get("value")) for v in objects(dig(container, "env"))}


def template(**spec: object) -> dict[str, object]:
    return {"spec": {"containers": [{"name": "trainer", "image": "x"}], **spec}}


class TestIdentity:
    def test_labels_of_the_user_stay_and_ours_win(self) -> None:
        labels = {"team": "vision", Label.ROLE: "boss"}
        made = pod(job(template={"metadata": {"labels": labels, "annotations": {"a": "b"}}, **template()}))
        assert dig(made, "metadata", "labels", "team") == "vision"
        assert dig(made, "metadata", "labels", Label.ROLE) == "worker"
        assert dig(made, "metadata", "annotations", "a") == "b"

    def test_the_service_is_headless_publishes_early_and_selects_one_attempt_of_one_job(self) -> None:
        owner = job()
        service = service_of(owner, spec_of(owner), attempt=3)
        assert dig(service, "spec", "clusterIP") == "None"
        assert dig(service, "spec", "publishNotReadyAddresses") is True
        assert dig(service, "spec", "selector") == {Label.JOB_UID: owner.uid, Label.ATTEMPT: "3"}

    @pytest.mark.parametrize(
        ("given", "policy"),
        [
            ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
            ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
            ({"hostNetwork": False}, None),
            ({}, None),
        ],
    )
    def test_a_pod_on_the_hosts_network_still_finds_its_peers_by_name(
        self, given: dict[str, object], policy: str | None
    ) -> None:
        assert dig(pod(job(template=template(**given))), "spec", "dnsPolicy") == policy


class TestEnvironment:
    def test_every_container_gets_tf_config_and_our_variables(self) -> None:
        spec = template(initContainers=[{"name": "i", "image": "x"}])
        spec["spec"]["containers"].append({"name": "sidecar", "image": "y"})  # type: ignore[index]
        made = pod(job(template=spec))
        for place in (("initContainers", 0), ("containers", 0), ("containers", 1)):
            assert {"TF_CONFIG", "DTJ_ROLE", "DTJ_INDEX", "DTJ_STATUS_PORT"} <= environment(made, *place).keys()

    def test_the_port_shows_in_the_addresses(self) -> None:
        config = json.loads(environment(pod(job(port=4444)))["TF_CONFIG"])
        assert config["cluster"]["worker"][0] == "worker-0.digits.default.svc:4444"

    def test_a_roles_variable_replaces_the_templates_where_it_stands(self) -> None:
        variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]
        shared = {"spec": {"containers": [{"name": "trainer", "image": "x", "env": variables}]}}
        worker = {"env": [{"name": "A", "value": "2"}]}
        made = environment(pod(job(template=shared, replicaSpecs={"worker": worker})))
        assert list(made.items())[:2] == [("A", "2"), ("B", "$(A)")]

    def test_a_users_variable_can_refer_to_ours_and_cannot_replace_them(self) -> None:
        variables = [{"name": "SHARD", "value": "part-$(DTJ_INDEX)"}, {"name": "TF_CONFIG", "value": "mine"}]
        made = list(environment(pod(job(template=template(containers=[{"name": "t", "env": variables}])))).items())
        names = [name for name, _ in made]
        assert names.index("DTJ_INDEX") < names.index("SHARD"), "a kubelet expands what was defined before"
        assert names.count("TF_CONFIG") == 1
        assert dict(made)["TF_CONFIG"] != "mine"

    def test_a_path_that_refers_to_a_users_variable_comes_after_it(self) -> None:
        shared = template(containers=[{"name": "t", "env": [{"name": "BUCKET", "value": "b"}]}])
        made = list(environment(pod(job(template=shared, checkpoint={"path": "gs://$(BUCKET)/c"}))))
        assert made.index("BUCKET") < made.index("DTJ_CHECKPOINT_DIR")


class TestRoles:
    def test_small_differences_apply_to_the_trainer_container_alone(self) -> None:
        shared = {"spec": {"containers": [{"name": "sidecar", "image": "s"}, {"name": "trainer", "image": "t"}]}}
        worker = {"args": ["--a"], "command": ["c"], "resources": {"limits": {"cpu": "2"}}, "nodeSelector": {"n": "1"}}
        made = pod(job(template=shared, replicaSpecs={"worker": worker}))
        sidecar, trainer = objects(dig(made, "spec", "containers"))
        assert "args" not in sidecar
        assert (trainer["args"], trainer["command"], trainer["resources"]) == (["--a"], ["c"], {"limits": {"cpu": "2"}})
        assert dig(made, "spec", "nodeSelector") == {"n": "1"}

    def test_a_roles_template_replaces_the_shared_one_as_a_whole(self) -> None:
        own = {"spec": {"containers": [{"name": "mine", "image": "own"}], "priorityClassName": "high"}}
        made = pod(job(template=template(terminationGracePeriodSeconds=7), replicaSpecs={"worker": {"template": own}}))
        assert dig(made, "spec", "containers", 0, "image") == "own"
        assert dig(made, "spec", "terminationGracePeriodSeconds") is None

    @pytest.mark.parametrize(("named", "taken"), [({}, "ours"), ({"image": ""}, "ours"), ({"image": "own"}, "own")])
    def test_a_trainer_without_an_image_gets_the_operators(self, named: dict[str, str], taken: str) -> None:
        shared = {"spec": {"containers": [{"name": "trainer", **named}, {"name": "sidecar"}]}}
        made = pod(job(template=shared), platform=Platform(trainer_image="ours"))
        trainer, sidecar = objects(dig(made, "spec", "containers"))
        assert trainer["image"] == taken
        assert "image" not in sidecar

    @pytest.mark.parametrize("chosen", [None, "json"])
    def test_all_jobs_get_the_log_format_that_the_operator_was_given(self, chosen: str | None) -> None:
        made = pod(job(), platform=Platform(trainer_log_format=chosen))
        variables = {each["name"]: each["value"] for each in objects(dig(made, "spec", "containers", 0, "env"))}
        assert variables.get(Env.LOG_FORMAT) == chosen

    def test_making_pods_leaves_the_manifest_as_it_was(self) -> None:
        containers: list[JsonObject] = [
            {"name": "trainer", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"memory": "1Gi"}}},
            {"name": "sidecar", "image": "x", "securityContext": {"capabilities": {"add": ["CHOWN"]}}},
        ]
        roles = {
            "worker": {
                "resources": {"limits": {"memory": "2Gi"}},
                "nodeSelector": {"a": "b"},
                "tolerations": [{"key": "b"}],
                "env": [{"name": "B", "value": "c"}],
            },
            "chief": {},
        }
        owner = job(
            template=template(
                containers=containers, tolerations=[{"key": "a"}], nodeSelector={"c": "d"}, securityContext={}
            ),
            replicaSpecs=roles,
            accelerator={"profile": "nvidia"},
            checkpoint={"directory": "/c", "volume": {"emptyDir": {}}},
            runPolicy={"onOutOfMemory": {"increasePercent": 50, "maxMemory": "8Gi"}},
        )
        profiles = {"nvidia": Profile(name="nvidia", resource="nvidia.com/gpu", tolerations=({"key": "gpu"},))}
        counts = {"worker": {"memoryIncreases": 2}, "chief": {"memoryIncreases": 1}}
        grown = replace(owner, status=JobStatus.from_object({"replicaStatuses": counts}))
        before = spec_of(owner).model_dump_json(), json.dumps(owner.raw_spec, sort_keys=True)
        for role in (Role.WORKER, Role.CHIEF):
            pod(grown, Replica(role, 0), Platform(restricted=True, profiles=profiles))
        assert (spec_of(owner).model_dump_json(), json.dumps(owner.raw_spec, sort_keys=True)) == before

    def test_the_pods_of_all_roles_share_what_no_role_changes(self) -> None:
        owner = job(template=template(volumes=[{"name": "a"}], unknown={"b": {}}), roles={"worker": 1, "chief": 1})
        renderer = PodRenderer(owner, spec_of(owner), Platform())
        pods = [renderer.render(Replica(role, 0)) for role in spec_of(owner).roles()]
        for field in ("volumes", "unknown"):
            assert dig(pods[0], "spec", field) is dig(pods[1], "spec", field)


class TestSecurity:
    def test_safe_defaults_are_set_where_the_user_set_nothing(self) -> None:
        made = pod(job())
        assert dig(made, "spec", "automountServiceAccountToken") is False
        assert dig(made, "spec", "securityContext") == {"seccompProfile": {"type": "RuntimeDefault"}}
        assert dig(made, "spec", "containers", 0, "securityContext") == {"allowPrivilegeEscalation": False}

    @pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
    def test_a_service_account_that_the_user_names_keeps_its_token(self, field: str) -> None:
        made = pod(job(template=template(**{field: "bucket-reader"})))
        assert dig(made, "spec", "automountServiceAccountToken") is None

    @pytest.mark.parametrize("context", [{"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}])
    def test_a_privileged_container_is_not_made_contradictory(self, context: dict[str, object]) -> None:
        own = {"spec": {"containers": [{"name": "trainer", "image": "x", "securityContext": context}]}}
        made = pod(job(template=own))
        assert dig(made, "spec", "containers", 0, "securityContext", "allowPrivilegeEscalation") is None

    def test_the_restricted_standard_is_met_by_every_container_where_it_is_asked_for(self) -> None:
        own = template(initContainers=[{"name": "i", "image": "x"}])
        made = pod(job(template=own), platform=Platform(restricted=True))
        assert dig(made, "spec", "securityContext") == {
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        for kind in ("initContainers", "containers"):
            assert dig(made, "spec", kind, 0, "securityContext") == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }

    def test_the_restricted_standard_overrides_nothing_that_the_user_set(self) -> None:
        container = {"runAsNonRoot": False, "runAsUser": 0, "capabilities": {"drop": ["NET_RAW"], "add": ["CHOWN"]}}
        own = {
            "spec": {
                "containers": [{"name": "trainer", "image": "x", "securityContext": container}],
                "securityContext": {"runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}},
            }
        }
        made = pod(job(template=own), platform=Platform(restricted=True))
        assert dig(made, "spec", "securityContext") == own["spec"]["securityContext"]
        found = dig(made, "spec", "containers", 0, "securityContext")
        assert found == {**container, "allowPrivilegeEscalation": False}


class TestCheckpoints:
    def test_a_volume_is_mounted_at_the_same_path_in_every_container(self) -> None:
        checkpoint = {"path": "/ckpt", "volume": {"nfs": {"server": "s", "path": "/"}}, "everySteps": 50, "keep": 2}
        made = pod(job(checkpoint=checkpoint))
        assert dig(made, "spec", "volumes", 0) == {"name": "dtj-checkpoint", "nfs": {"server": "s", "path": "/"}}
        assert dig(made, "spec", "containers", 0, "volumeMounts", 0, "mountPath") == "/ckpt"
        variables = environment(made)
        assert variables["DTJ_CHECKPOINT_DIR"] == "/ckpt"
        assert (variables["DTJ_CHECKPOINT_EVERY_STEPS"], variables["DTJ_CHECKPOINT_KEEP"]) == ("50", "2")
        assert variables["DTJ_LOG_DIR"] == "/ckpt/logs"

    @pytest.mark.parametrize(
        ("every", "restarts", "told"),
        [
            ("auto", {"disruption": 2, "user": 1, "preemption": 3, "total": 6}, "1200"),
            ("auto", {"preemption": 3, "total": 3}, None),
            ("auto", {}, None),
            (300, {"disruption": 2, "total": 2}, None),
        ],
        ids=["losses", "saved before each end", "no loss", "a time of its own"],
    )
    def test_a_trainer_that_chooses_the_time_between_checkpoints_is_told_how_often_the_job_lost_a_replica(
        self, every: int | str, restarts: dict[str, int], told: str | None
    ) -> None:
        seconds = {"training": 3000, "recovering": 500, "other": 100, "queued": 5000, "suspended": 700}
        status = JobStatus.from_object({"restarts": restarts, "goodput": {"seconds": seconds}})
        owner = job(checkpoint={"path": "/c", "everySeconds": every})
        variables = environment(pod(replace(owner, status=status)))
        assert variables["DTJ_CHECKPOINT_EVERY_SECONDS"] == str(every)
        assert variables.get("DTJ_SECONDS_BETWEEN_LOSSES") == told

    def test_without_a_number_of_steps_the_trainer_chooses_how_often_it_copies_to_memory(self) -> None:
        owner = job(checkpoint={"inMemory": {}}, runPolicy={"restartScope": "Pod"})
        assert "DTJ_CHECKPOINT_MEMORY_EVERY_STEPS" not in environment(pod(owner, Replica(Role.WORKER, 0)))

    def test_memory_is_mounted_where_the_job_trains_and_nowhere_else(self) -> None:
        sidecar: JsonObject = {"name": "proxy", "image": "x", "restartPolicy": "Always"}
        owner = job(
            checkpoint={"inMemory": {"everySteps": 25, "sizeLimit": "3Gi"}},
            roles={"chief": 1, "worker": 1, "evaluator": 1},
            runPolicy={"restartScope": "Pod"},
            template={"spec": {"containers": [{"name": "trainer", "image": "x"}], "initContainers": [sidecar]}},
        )
        for role in ("chief", "worker"):
            made = pod(owner, Replica(Role(role), 0))
            assert dig(made, "spec", "volumes") == [
                {"name": "dtj-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "3Gi"}}
            ]
            mounts = [{"name": "dtj-memory", "mountPath": "/dtj/memory"}]
            assert dig(made, "spec", "containers", 0, "volumeMounts") == mounts
            assert dig(made, "spec", "initContainers", 0, "volumeMounts") is None
            variables = environment(made)
            assert variables["DTJ_CHECKPOINT_MEMORY_DIR"] == "/dtj/memory"
            assert variables["DTJ_CHECKPOINT_MEMORY_EVERY_STEPS"] == "25"
            assert "DTJ_CHECKPOINT_DIR" not in variables
        evaluator = pod(owner, Replica(Role.EVALUATOR, 0))
        assert dig(evaluator, "spec", "volumes") is None
        assert "DTJ_CHECKPOINT_MEMORY_DIR" not in environment(evaluator)

    @pytest.mark.parametrize(("on_nan", "value"), [(None, None), ("Fail", "fail"), ("Skip", "skip")])
    def test_the_trainer_is_configured_for_a_loss_that_is_not_finite(
        self, on_nan: str | None, value: str | None
    ) -> None:
        policy = {"onNaN": on_nan} if on_nan else {}
        assert environment(pod(job(runPolicy=policy))).get("DTJ_ON_NAN") == value

    def test_the_trainer_is_told_how_gpus_add_up_gradients_if_the_manifest_says_it(self) -> None:
        assert environment(pod(job(communication="NCCL")))["DTJ_COMMUNICATION"] == "nccl"
        assert "DTJ_COMMUNICATION" not in environment(pod(job()))


def with_gpus(limits: JsonObject, **container: JsonValue) -> JsonObject:
    """A template whose trainer asks for these devices, next to a sidecar."""
    trainer: JsonObject = {"name": "trainer", "image": "x", "resources": {"limits": limits}, **container}
    return {"spec": {"containers": [{"name": "proxy", "image": "p"}, trainer]}}


class TestFabrics:
    def test_a_profile_of_a_machine_with_a_fast_network_asks_for_all_that_this_needs(self) -> None:
        trainer = {"name": "trainer", "image": "x", "securityContext": {"capabilities": {"add": ["CHOWN"]}}}
        owner = job(
            template={"spec": {"containers": [trainer, {"name": "proxy", "image": "p"}]}},
            accelerator={"profile": "eks-p5-efa", "count": 8},
        )
        made = pod(owner)
        asked = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": "32", "hugepages-2Mi": "5120Mi"}
        main, sidecar = objects(dig(made, "spec", "containers"))
        assert main["resources"] == {"limits": asked, "requests": asked}
        assert dig(main, "securityContext", "capabilities") == {"add": ["CHOWN", "IPC_LOCK"]}
        assert dig(made, "spec", "nodeSelector") == {"node.kubernetes.io/instance-type": "p5.48xlarge"}
        assert "resources" not in sidecar
        assert dig(sidecar, "securityContext", "capabilities") is None
        assert dig(owner.raw_spec, "template", "spec", "containers", 0, "securityContext", "capabilities") == {
            "add": ["CHOWN"]
        }


class TestSharedMemory:
    MOUNT: ClassVar = {"name": "dtj-shm", "mountPath": "/dev/shm"}

    @pytest.mark.parametrize(
        "asked",
        [
            {"template": with_gpus({"nvidia.com/gpu": 2})},
            {"template": with_gpus({"nvidia.com/gpu": "8"})},
            {"template": with_gpus({"nvidia.com/mig-1g.10gb": 1, "nvidia.com/gpu": 1})},
            {"accelerator": {"profile": "nvidia", "count": 4}},
        ],
    )
    def test_a_trainer_with_several_gpus_gets_more_of_it(self, asked: dict[str, Any]) -> None:
        made = pod(job(**asked))
        volume = {"name": "dtj-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
        assert dig(made, "spec", "volumes") == [volume]
        *others, trainer = objects(dig(made, "spec", "containers"))
        assert trainer["volumeMounts"] == [self.MOUNT]
        assert all("volumeMounts" not in other for other in others)

    @pytest.mark.parametrize(
        "limits",
        [{}, {"nvidia.com/gpu": 1}, {"google.com/tpu": 4}, {"nvidia.com/gpu": "many"}, {"nvidia.com/gpu": "9" * 5000}],
        ids=["none", "one", "a TPU", "no number", "10^5000"],
    )
    def test_any_other_keeps_that_of_its_container(self, limits: JsonObject) -> None:
        assert dig(pod(job(template=with_gpus(limits))), "spec", "volumes") is None

    @pytest.mark.parametrize("path", ["/dev/shm", "/dev/shm/"])
    def test_what_the_template_mounts_there_stays(self, path: str) -> None:
        mounts: list[JsonValue] = [{"name": "mine", "mountPath": path}]
        made = pod(job(template=with_gpus({"nvidia.com/gpu": 2}, volumeMounts=mounts)))
        assert dig(made, "spec", "containers", 1, "volumeMounts") == mounts
        assert dig(made, "spec", "volumes") is None


class TestExport:
    def test_directory_and_formats_are_variables_of_every_pod(self) -> None:
        variables = environment(pod(job(export={"path": "/e", "formats": ["TFLite", "SavedModel"]})))
        assert (variables["DTJ_EXPORT_DIR"], variables["DTJ_EXPORT_FORMATS"]) == ("/e", "TFLite,SavedModel")

    def test_a_saved_model_is_what_a_path_alone_asks_for(self) -> None:
        assert environment(pod(job(export={"path": "/e"})))["DTJ_EXPORT_FORMATS"] == "SavedModel"


class TestAccelerators:
    @pytest.mark.parametrize(("asked", "given"), [({"count": 2}, 2), ({}, 1)], ids=["two", "one, which goes unsaid"])
    def test_a_gpu_profile_gives_resource_selector_and_toleration_to_roles_that_train(
        self, asked: dict[str, int], given: int
    ) -> None:
        owner = job(
            strategy="ParameterServer",
            roles={"chief": 1, "worker": 1, "ps": 1},
            accelerator={"profile": "gke-nvidia-l4", **asked},
        )
        worker = pod(owner)
        assert dig(worker, "spec", "containers", 0, "resources", "limits") == {"nvidia.com/gpu": given}
        assert dig(worker, "spec", "nodeSelector") == {"cloud.google.com/gke-accelerator": "nvidia-l4"}
        assert dig(worker, "spec", "tolerations", 0, "key") == "nvidia.com/gpu"
        server = pod(owner, Replica(Role.PS, 0))
        assert dig(server, "spec", "nodeSelector") is None

    @pytest.mark.parametrize("kind", ["limits", "requests"])
    @pytest.mark.parametrize(("said", "given"), [({}, 4), ({"count": 2}, 2)], ids=["unless a count is said", "said"])
    def test_a_container_gets_as_many_gpus_as_it_asks_for(self, kind: str, said: dict[str, int], given: int) -> None:
        own = {"name": "trainer", "image": "x", "resources": {kind: {"nvidia.com/gpu": 4}}}
        made = pod(job(template={"spec": {"containers": [own]}}, accelerator={"profile": "nvidia", **said}))
        resources = dig(made, "spec", "containers", 0, "resources")
        assert resources == {"limits": {"nvidia.com/gpu": given}, "requests": {"nvidia.com/gpu": given}}

    def test_a_slice_of_two_hosts_knows_its_ranks_and_host_names(self) -> None:
        owner = job(strategy="TPU", roles={"worker": 2}, accelerator={"profile": "tpu-v5e", "topology": "2x4"})
        second = pod(owner, Replica(Role.WORKER, 1))
        variables = environment(second)
        assert variables["TPU_WORKER_ID"] == "1"
        assert variables["TPU_WORKER_HOSTNAMES"] == "worker-0.digits.default.svc,worker-1.digits.default.svc"
        assert dig(second, "spec", "containers", 0, "resources", "limits") == {"google.com/tpu": 4}
        assert dig(second, "spec", "nodeSelector") == {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
            "cloud.google.com/gke-tpu-topology": "2x4",
        }

    def test_an_evaluators_slice_is_its_own(self) -> None:
        evaluator = {"accelerator": {"profile": "tpu-v5e", "topology": "1x1"}}
        owner = job(
            strategy="TPU",
            replicaSpecs={"chief": {}, "worker": {}, "evaluator": evaluator},
            accelerator={"profile": "tpu-v5e", "topology": "2x4"},
        )
        assert problems(owner, Platform()) == ()
        made = pod(owner, Replica(Role.EVALUATOR, 0))
        assert environment(made)["TPU_WORKER_ID"] == "0"
        assert environment(made)["TPU_WORKER_HOSTNAMES"] == "evaluator-0.digits.default.svc"
        assert dig(made, "spec", "containers", 0, "resources", "limits") == {"google.com/tpu": 1}
        assert environment(pod(owner))["TPU_WORKER_HOSTNAMES"] == "worker-0.digits.default.svc"

    def test_a_chief_drives_the_hosts_of_a_slice_from_a_pod_without_tpus(self) -> None:
        owner = job(
            strategy="TPU",
            roles={"chief": 1, "worker": 4},
            accelerator={"profile": "tpu-v5e", "topology": "4x4"},
        )
        assert problems(owner, Platform()) == ()
        chief, last = pod(owner, Replica(Role.CHIEF, 0)), pod(owner, Replica(Role.WORKER, 3))
        assert dig(chief, "spec", "nodeSelector") is None
        assert dig(chief, "spec", "containers", 0, "resources") is None
        assert "TPU_WORKER_ID" not in environment(chief)
        assert environment(last)["TPU_WORKER_ID"] == "3"
        hosts = [f"worker-{index}.digits.default.svc" for index in range(4)]
        assert environment(last)["TPU_WORKER_HOSTNAMES"].split(",") == hosts
        assert dig(last, "spec", "containers", 0, "resources", "limits") == {"google.com/tpu": 4}

    @pytest.mark.parametrize(
        ("profile", "topology", "why"),
        [
            ("tpu-v4", "2x2x4", "TensorFlow 2.19 hangs on it"),
            ("tpu-v5p", "2x2x4", "no report says that TensorFlow works on it"),
            ("tpu-v6e", "4x4", "TensorFlow 2.19 fails on it"),
        ],
    )
    def test_slices_that_tensorflow_cannot_use_so_are_refused_with_the_reason(
        self, profile: str, topology: str, why: str
    ) -> None:
        asked = {"profile": profile, "topology": topology}
        (problem,) = problems(job(strategy="TPU", roles={"chief": 1, "worker": 4}, accelerator=asked), Platform())
        assert problem.message.startswith(
            f'spec.accelerator.profile: no chief drives the hosts of a slice of "{profile}"'
        )
        assert why in problem.message
        assert problems(job(strategy="TPU", roles={"worker": 4}, accelerator=asked), Platform()) == ()

    def test_a_chief_with_a_tpu_of_its_own_is_a_problem(self) -> None:
        tpu = {"profile": "tpu-v5e", "topology": "2x4"}
        owner = job(strategy="TPU", replicaSpecs={"chief": {"accelerator": tpu}, "worker": {}}, accelerator=tpu)
        (problem,) = problems(owner, Platform())
        assert "drives the hosts of the TPU from a pod without one: remove it" in problem.message

    def test_next_to_a_tpu_job_an_evaluator_may_have_a_gpu(self) -> None:
        owner = job(
            strategy="TPU",
            replicaSpecs={"worker": {}, "evaluator": {"accelerator": {"profile": "nvidia"}}},
            accelerator={"profile": "tpu-v5e", "topology": "2x2"},
        )
        assert problems(owner, Platform()) == ()
        assert "TPU_WORKER_ID" not in environment(pod(owner, Replica(Role.EVALUATOR, 0)))

    def test_an_evaluators_slice_of_several_hosts_is_a_problem(self) -> None:
        evaluator = {"accelerator": {"profile": "tpu-v5e", "topology": "4x4"}}
        owner = job(replicaSpecs={"worker": {}, "evaluator": evaluator})
        (problem,) = problems(owner, Platform())
        assert problem.message == (
            "spec.replicaSpecs.evaluator.accelerator.topology: 4x4 has 16 chips, 4 per host: it needs 4 replicas of "
            "evaluator, not 1; choose another topology, or set their number"
        )

    def test_a_slice_of_more_hosts_than_training_replicas_is_a_problem(self) -> None:
        owner = job(strategy="TPU", roles={"worker": 3}, accelerator={"profile": "tpu-v5e", "topology": "4x4"})
        (problem,) = problems(owner, Platform())
        assert problem.message == (
            "spec.accelerator.topology: 4x4 has 16 chips, 4 per host: it needs 4 workers, not 3; set "
            "replicaSpecs.worker.replicas to 4, with a chief that drives them"
        )

    @pytest.mark.parametrize(
        ("profile", "topology", "workers", "chips"),
        [
            ("tpu-v5e", "1x1", 1, 1),
            ("tpu-v5e", "2x2", 1, 4),
            ("tpu-v5e", "2x4", 1, 8),
            ("tpu-v5e", "2x4", 2, 4),
            ("tpu-v4", "2x2x4", 4, 4),
            ("tpu-v5p", "2x2x1", 1, 4),
            ("tpu-v6e", "4x4", 4, 4),
        ],
    )
    def test_chips_per_host_follow_from_topology_and_replicas(
        self, profile: str, topology: str, workers: int, chips: int
    ) -> None:
        owner = job(strategy="TPU", roles={"worker": workers}, accelerator={"profile": profile, "topology": topology})
        assert problems(owner, Platform()) == ()
        assert dig(pod(owner), "spec", "containers", 0, "resources", "requests", "google.com/tpu") == chips
