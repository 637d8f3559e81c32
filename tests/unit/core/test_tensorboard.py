"""TensorBoard next to a job: when it is there, and that it is in nobody's way."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from builders import CLAIM_TEMPLATE, NOW, edited, job
from dtj.api import names
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Label
from dtj.api.spec import Role
from dtj.core.actions import BestEffort, CreatePod, PatchStatus
from dtj.core.observed import CreationRefusal, Phase
from dtj.core.platform import Platform
from dtj.core.policies.tensorboard import REMADE_AFTER, ROOM_SECONDS
from world import World, running

CLAIM: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}
POD = "digits-tensorboard"


def world(*, platform: Platform | None = None, checkpoint: JsonObject = CLAIM, **spec: object) -> World:
    board = {"tensorBoard": {}, "checkpoint": checkpoint, **spec}
    return World(job(**board), platform=platform or Platform())  # type: ignore[arg-type]


def all_running(**spec: object) -> World:
    """A job whose replicas run, and its TensorBoard too."""
    return running(world(**spec), seconds=0).all_run()  # type: ignore[arg-type]


class TestWhenItIsThere:
    def test_it_comes_when_all_replicas_run(self) -> None:
        there = world().settle()
        there.sees("worker-0", Phase.RUNNING)
        assert POD not in there.pods
        there.all_run()
        assert POD in there.pods
        assert there.tensorboard is not None

    def test_a_job_that_does_not_ask_for_it_has_none(self) -> None:
        assert POD not in all_running(tensorBoard=None).pods

    def test_on_a_machine_without_pods_there_is_none(self) -> None:
        assert POD not in all_running(platform=Platform(tensorboard=False)).pods

    def test_it_is_created_again_when_it_is_lost(self) -> None:
        there = all_running()
        there.remove("tensorboard")
        there.tensorboard = None
        there.settle()
        assert POD in there.pods
        assert there.tensorboard is not None
        assert there.job.status.restarts.total == 0

    def test_one_that_was_evicted_is_created_again_but_not_without_end(self) -> None:
        there = all_running()
        there.sees("tensorboard", Phase.FAILED, reason="Evicted")
        assert not there.pods[POD].terminating
        there.advance(REMADE_AFTER.total_seconds())
        there.settle_deletions()
        assert there.pods[POD].phase is Phase.PENDING

    def test_it_stays_for_its_time_after_the_end(self) -> None:
        there = all_running(tensorBoard={"ttlSeconds": 100})
        there.sees("worker-0", Phase.SUCCEEDED)
        assert there.is_true(Condition.SUCCESS_CRITERIA_MET)
        assert not there.pods[POD].terminating
        there.pods = {name: pod for name, pod in there.pods.items() if name == POD}
        there.settle()
        assert there.is_true(Condition.COMPLETE)
        there.wait(99)
        assert not there.pods[POD].terminating
        (again,) = (action.seconds for action in there.step() if hasattr(action, "seconds"))
        assert again == 1.0
        there.advance(1)
        there.settle_deletions()
        assert (there.pods, there.tensorboard) == ({}, None)

    def test_it_can_be_had_back_after_the_end(self) -> None:
        there = all_running(tensorBoard=None)
        there.set_pod("worker-0", Phase.SUCCEEDED)
        there.settle_deletions()
        there.becomes(job(checkpoint=CLAIM, tensorBoard={}))
        assert POD in there.pods

    def test_of_a_job_that_never_ran_there_is_none_after_the_end(self) -> None:
        there = world(runPolicy={"startDeadlineSeconds": 5}).settle()
        there.advance(6)
        there.settle_deletions()
        assert there.is_true(Condition.FAILED)
        assert (there.pods, there.tensorboard) == ({}, None)

    def test_a_suspended_job_has_none_until_it_goes_on(self) -> None:
        there = all_running()
        there.job = edited(there.job, suspend=True)
        there.settle_deletions()
        assert (there.pods, there.tensorboard) == ({}, None)
        there.job = edited(there.job, suspend=False)
        there.settle()
        assert POD not in there.pods
        there.all_run()
        assert POD in there.pods


class TestThatItIsInNobodysWay:
    def test_its_end_is_no_end_of_the_jobs(self) -> None:
        there = all_running(runPolicy={"backoffLimit": 0})
        there.sees("tensorboard", Phase.FAILED, exit_code=1)
        assert there.job.status.state == "Running"
        there.loses("tensorboard")
        assert there.job.status.state == "Running"

    def test_it_makes_room_for_a_replica_that_cannot_start(self) -> None:
        there = all_running()
        there.set_pod("worker-1", Phase.FAILED, exit_code=3)
        there.wait(1)
        waits = [action.seconds for action in there.step() if hasattr(action, "seconds")]
        assert ROOM_SECONDS in waits
        there.wait(ROOM_SECONDS - 0.5)
        assert not there.pods[POD].terminating
        there.wait(0.5)
        there.finish_deletions()
        assert POD not in there.pods

    def test_it_makes_room_where_a_quota_refuses_a_pod(self) -> None:
        there = all_running()
        there.remove("worker-1")
        there.refusal = CreationRefusal("digits-worker-1-r1", "Forbidden", "exceeded quota", NOW)
        there.step()
        assert there.pods[POD].terminating

    def test_what_is_done_about_it_comes_last_and_never_fails_the_rest(self) -> None:
        there = world().settle()
        there.run_all()
        plan = there.step()
        kinds = [type(action) for action in plan]
        assert BestEffort in kinds
        assert kinds[kinds.index(BestEffort) :] == [BestEffort] * kinds.count(BestEffort)
        assert PatchStatus in kinds[: kinds.index(BestEffort)]


class TestWhatItIsMadeOf:
    @staticmethod
    def manifest(**spec: object) -> JsonObject:
        return all_running(**spec).manifests[POD]

    def test_it_shows_the_logs_of_the_job_and_can_only_read_them(self) -> None:
        pod = self.manifest()
        container = dig(pod, "spec", "containers", 0)
        assert dig(container, "command") == [
            "tensorboard",
            "--logdir=/dtj/checkpoint/logs",
            "--port=6006",
            "--bind_all",
        ]
        mount = {"name": names.CHECKPOINT_VOLUME, "mountPath": "/dtj/checkpoint", "readOnly": True}
        assert dig(container, "volumeMounts") == [mount]
        assert dig(pod, "spec", "volumes", 0, "persistentVolumeClaim", "claimName") == "digits-checkpoint"

    def test_it_is_the_image_that_trains_with_its_user_and_its_pull_secret(self) -> None:
        pod_spec: JsonObject = {
            "imagePullSecrets": [{"name": "registry"}],
            "serviceAccount": "bucket-reader",
            "securityContext": {"fsGroup": 7},
            "nodeSelector": {"gpu": "a100"},
            "containers": [
                {
                    "name": "trainer",
                    "image": "example/own:2",
                    "resources": {"limits": {"nvidia.com/gpu": 8}},
                    "securityContext": {"runAsUser": 7, "privileged": True},
                }
            ],
        }
        made = self.manifest(template={"spec": pod_spec}, accelerator={"profile": "nvidia"})
        container = dig(made, "spec", "containers", 0)
        assert dig(container, "image") == "example/own:2"
        assert dig(container, "securityContext", "runAsUser") == 7
        assert dig(container, "securityContext", "privileged") is None
        assert dig(made, "spec", "imagePullSecrets") == [{"name": "registry"}]
        assert dig(made, "spec", "serviceAccount") == "bucket-reader"
        assert dig(made, "spec", "automountServiceAccountToken") is None
        assert dig(made, "spec", "securityContext", "fsGroup") == 7
        assert dig(made, "spec", "nodeSelector") is None
        assert "nvidia.com/gpu" not in str(made)

    def test_an_image_and_resources_of_its_own_win(self) -> None:
        pod = self.manifest(tensorBoard={"image": "example/tb:1", "resources": {"limits": {"memory": "9Gi"}}})
        assert dig(pod, "spec", "containers", 0, "image") == "example/tb:1"
        assert dig(pod, "spec", "containers", 0, "resources") == {"limits": {"memory": "9Gi"}}

    def test_neither_the_jobs_service_nor_its_scale_selects_it(self) -> None:
        there = all_running()
        labels = dig(there.manifests[POD], "metadata", "labels")
        assert isinstance(labels, dict)
        assert there.service is not None
        assert not there.service.selector.items() <= labels.items()
        assert labels[Label.ROLE] not in list(Role)
        assert there.tensorboard is not None
        assert there.tensorboard.selector.items() <= labels.items()

    def test_logs_at_a_url_are_read_with_the_credentials_of_the_training(self) -> None:
        given = {"name": "AWS_ACCESS_KEY_ID", "valueFrom": {"secretKeyRef": {"name": "s3", "key": "id"}}}
        source = {"secretRef": {"name": "s3"}}
        main = {"name": "trainer", "image": "i", "env": [{"name": "OTHER", "value": "1"}, given], "envFrom": [source]}
        template = {"spec": {"containers": [main]}}
        container = dig(self.manifest(template=template, checkpoint={"path": "s3://b/c"}), "spec", "containers", 0)
        assert (dig(container, "env"), dig(container, "envFrom")) == ([given], [source])
        container = dig(self.manifest(template=template), "spec", "containers", 0)
        assert (dig(container, "env"), dig(container, "envFrom")) == (None, None)

    def test_logs_in_google_cloud_storage_are_read_with_the_key_file_of_the_training(self) -> None:
        env: list[JsonValue] = [
            {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/secrets/gs/key.json"},
            {"name": "GOOGLE_CLOUD_PROJECT", "value": "p"},
            {"name": "STORAGE_EMULATOR_HOST", "value": "http://emulator:4443"},
        ]
        key: JsonObject = {"name": "key", "mountPath": "/secrets/gs"}
        mounts: list[JsonValue] = [
            {"name": "all", "mountPath": "/secrets"},
            key,
            {"name": "data", "mountPath": "/data"},
        ]
        main: JsonObject = {"name": "trainer", "image": "i", "env": env, "volumeMounts": mounts}
        volume: JsonObject = {"name": "key", "secret": {"secretName": "gs"}}
        volumes: list[JsonValue] = [{"name": "all", "emptyDir": {}}, volume, {"name": "data", "emptyDir": {}}]
        template: JsonObject = {"spec": {"containers": [main], "volumes": volumes}}
        pod = self.manifest(template=template, checkpoint={"path": "gs://b/c"})
        container = dig(pod, "spec", "containers", 0)
        assert dig(container, "env") == env
        assert dig(container, "volumeMounts") == [{**key, "readOnly": True}]
        assert dig(pod, "spec", "volumes") == [volume]

    @pytest.mark.parametrize(("roles", "longest"), [({"worker": 1}, 46), ({"chief": 1}, 50)])
    def test_its_name_fits_where_the_jobs_does(self, roles: dict[str, int], longest: int) -> None:
        name = "d" * longest
        there = World(job(name, roles=roles, tensorBoard={}, checkpoint=CLAIM)).start()
        made = {action.action.name for action in there.taken(BestEffort) if creates(action)}  # type: ignore[union-attr]
        assert made == {f"{name}-tensorboard"}
        assert all(len(str(given)) <= names.MAX_NAME_LENGTH for given in made)


def creates(action: object) -> bool:
    return isinstance(action, BestEffort) and isinstance(action.action, CreatePod)
