"""TensorBoard next to a job: when it is there, and what it is made of.

TensorBoard is not a replica: it never delays or fails the job. It is created when all replicas run, and removed when a
replica cannot start, because it may hold the volume, the node or the quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import PurePosixPath
from typing import Final

from dtj.api import names
from dtj.api.job import Job, parse_time
from dtj.api.json import JsonObject, object_at, objects, picked, text
from dtj.api.names import Condition, Label, Reason
from dtj.api.spec import JobSpec
from dtj.api.status import JobStatus
from dtj.core.actions import (
    Action,
    BestEffort,
    Create,
    CreatePod,
    Decision,
    Delete,
    DeletePod,
    Emit,
    Kind,
    Plan,
    RequeueAfter,
)
from dtj.core.context import JobContext
from dtj.core.manifests.metadata import labels_of, metadata_of
from dtj.core.manifests.pod import apply_security, mount_checkpoint, role_template
from dtj.core.observed import Phase, Pod
from dtj.core.platform import Platform
from dtj.core.replicas import deciding_replica

ROOM_SECONDS: Final = 10.0
"""For how long a replica's pod may be pending until TensorBoard makes room."""

REMADE_AFTER: Final = timedelta(seconds=60)
"""How old TensorBoard's pod must be to be made again after its end: a node may refuse each at once."""

DEFAULT_RESOURCES: Final[JsonObject] = {
    "requests": {"cpu": "50m", "memory": "256Mi"},
    "limits": {"memory": "2Gi"},
}


class _DesiredState(StrEnum):
    WANTED = "wanted"
    LEFT_ALONE = "left alone"
    GONE = "gone"


def tensorboard_name(job: str) -> str:
    """The name of TensorBoard's pod and of its Service; no job has a name that is too long for it."""
    return f"{job}-{names.TENSORBOARD}"


def alongside(context: JobContext, decision: Decision) -> Plan:
    """What is to be done about TensorBoard, once ``decision`` about the job is carried out."""
    wanted, again = _desired(context, decision.status or context.job.status)
    observed, job, name = context.observed, context.job, tensorboard_name(context.job.name)
    pod = next((pod for pod in observed.pods if pod.name == name and job.owns(pod)), None)
    service = observed.tensorboard
    if service is not None and not job.owns(service):
        service = None
    if wanted is _DesiredState.GONE:
        return (
            *((BestEffort(Delete(Kind.SERVICE, service.name, service.uid)),) if service is not None else ()),
            *((BestEffort(DeletePod(pod.name, pod.uid)),) if pod is not None and not pod.terminating else ()),
        )
    actions: list[Action] = []
    if again is not None and (pod is not None or service is not None):
        actions.append(RequeueAfter(again))
    if wanted is _DesiredState.WANTED:
        actions += [BestEffort(Create(Kind.SERVICE, _service(context.job)))] if service is None else []
        made = BestEffort(CreatePod(name, partial(tensorboard_pod, context.job, context.spec, context.platform)))
        actions += _remade(pod, context.now) if pod is not None else [made]
    return tuple(actions)


def failed(message: str) -> Emit:
    """The event that reports one of these actions that failed."""
    return Emit(
        "Warning", Reason.TENSORBOARD_FAILED, f"{message}; the job goes on without TensorBoard, which is tried again"
    )


def _remade(pod: Pod, now: datetime) -> list[Action]:
    """A pod that was evicted makes room for the next of its name."""
    if not pod.all_containers_ended or pod.terminating:  # its container is started again after its end
        return []
    wait = (pod.created_at + REMADE_AFTER - now).total_seconds() if pod.created_at is not None else 0.0
    return [RequeueAfter(wait)] if wait > 0 else [BestEffort(DeletePod(pod.name, pod.uid))]


def _desired(context: JobContext, status: JobStatus) -> tuple[_DesiredState, float | None]:
    """What becomes of it, and in how many seconds that may be something else without anything happening.

    A job that never was ready in this run, as one that is suspended, has no curves to show.
    """
    spec, observed = context.spec, context.observed
    wanted = spec.tensor_board
    if wanted is None or not observed.platform.tensorboard or status.ready_time is None:
        return _DesiredState.GONE, None
    if observed.platform.directories.logs(spec) is None:
        return _DesiredState.GONE, None
    if status.terminal:
        ended = parse_time(status.completion_time)
        left = (ended - context.now).total_seconds() + wanted.ttl_seconds if ended is not None else 0.0
        return (_DesiredState.WANTED, left) if left > 0 else (_DesiredState.GONE, None)
    if status.is_true(Condition.SUCCESS_CRITERIA_MET) or status.is_true(Condition.FAILURE_TARGET):
        return _DesiredState.LEFT_ALONE, None
    return _desired_with_replicas(context)


def _desired_with_replicas(context: JobContext) -> tuple[_DesiredState, float | None]:
    if context.observed.refusal is not None:
        return _DesiredState.GONE, None
    pending = [pod for pod in context.current if pod.phase is Phase.PENDING]
    if not pending:
        return (_DesiredState.LEFT_ALONE if context.missing else _DesiredState.WANTED), None
    since = min(pod.created_at or context.now for pod in pending)
    left = ROOM_SECONDS - (context.now - since).total_seconds()
    return (_DesiredState.LEFT_ALONE, left) if left > 0 else (_DesiredState.GONE, None)


def _labels(job: Job) -> JsonObject:
    return {**labels_of(job), Label.APP_COMPONENT: names.TENSORBOARD, Label.ROLE: names.TENSORBOARD}


def _service(job: Job) -> JsonObject:
    port: JsonObject = {"name": "http", "port": names.TENSORBOARD_PORT, "targetPort": names.TENSORBOARD_PORT}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(job, tensorboard_name(job.name), labels=_labels(job)),
        "spec": {"selector": {Label.JOB_UID: job.uid, Label.ROLE: names.TENSORBOARD}, "ports": [port]},
    }


def tensorboard_pod(job: Job, spec: JobSpec, platform: Platform) -> JsonObject:
    """The pod of a job whose spec has ``tensorBoard``."""
    metadata = metadata_of(job, tensorboard_name(job.name), labels=_labels(job))
    # Else it would keep an autoscaler from taking away the node of a job that has ended.
    metadata["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": _pod_spec(job, spec, platform),
    }


_IMAGE: Final = ("image", "imagePullPolicy")
_OF_THE_POD: Final = (
    "imagePullSecrets",
    "serviceAccountName",
    "serviceAccount",
    "automountServiceAccountToken",
    "securityContext",
)
"""What of the template decides whether the image can be pulled and the logs can be read."""

_OF_THE_CONTAINER: Final = ("runAsUser", "runAsGroup", "runAsNonRoot", "seLinuxOptions")
"""The same, of the security context of the container that trains."""

_STORE_VARIABLES: Final = ("AWS_", "GOOGLE_", "STORAGE_EMULATOR_HOST")
"""How the variables begin by which an object store is reached."""

_KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
"""The variable with the path of a file of credentials."""


def _pod_spec(job: Job, spec: JobSpec, platform: Platform) -> JsonObject:
    """The image, the identity and the volume of a replica that trains; neither its accelerator nor its place."""
    trains = deciding_replica(spec)
    assert spec.tensor_board is not None
    assert trains is not None
    given = object_at(role_template(job, spec, trains.role, platform=platform), "spec")
    main = job.form.main_container(given)
    image: JsonObject = {"image": spec.tensor_board.image} if spec.tensor_board.image else picked(main, _IMAGE)
    container: JsonObject = {
        "name": names.TENSORBOARD,
        **image,
        "command": [
            "tensorboard",
            f"--logdir={platform.directories.logs(spec)}",
            f"--port={names.TENSORBOARD_PORT}",
            "--bind_all",
        ],
        "ports": [{"name": "http", "containerPort": names.TENSORBOARD_PORT}],
        "readinessProbe": {"tcpSocket": {"port": names.TENSORBOARD_PORT}, "periodSeconds": 2},
        "resources": spec.tensor_board.resources or DEFAULT_RESOURCES,
        "securityContext": picked(object_at(main, "securityContext"), _OF_THE_CONTAINER),
    }
    volumes: list[JsonObject] = []
    if "://" in str(platform.directories.logs(spec)):
        volumes = _give_store_access(container, main, objects(given.get("volumes")))
    pod_spec: JsonObject = {
        **picked(given, _OF_THE_POD),
        "containers": [container],
        **({"volumes": [*volumes]} if volumes else {}),
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 5,
        "enableServiceLinks": False,
        "affinity": _near(job),
    }
    mount_checkpoint(job, spec, pod_spec, read_only=True)
    apply_security(pod_spec, restricted=platform.restricted)
    return pod_spec


def _give_store_access(container: JsonObject, main: JsonObject, volumes: Sequence[JsonObject]) -> list[JsonObject]:
    """Adds the variables by which the container that trains reaches the object store, and the mount of its key file.

    Returns:
        The volume of that mount, if there is one.
    """
    env = [each for each in objects(main.get("env")) if text(each.get("name")).startswith(_STORE_VARIABLES)]
    container |= {**({"env": [*env]} if env else {}), **picked(main, ("envFrom",))}
    key = next((PurePosixPath(text(each.get("value"))) for each in env if each.get("name") == _KEY_FILE), None)
    mounts = objects(main.get("volumeMounts"))
    holding = [each for each in mounts if key and key.is_relative_to(text(each.get("mountPath")))]
    if not holding:
        return []
    # Of mounts within each other, the innermost one has the file.
    mount = max(holding, key=lambda each: len(PurePosixPath(text(each.get("mountPath"))).parts))
    container["volumeMounts"] = [{**mount, "readOnly": True}]
    return [each for each in volumes if each.get("name") == mount.get("name")]


def _near(job: Job) -> JsonObject:
    """A volume may be one that a single node can mount: where one of the replicas is, it can be read."""
    term: JsonObject = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {Label.JOB_UID: job.uid}},
    }
    return {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}
    }
