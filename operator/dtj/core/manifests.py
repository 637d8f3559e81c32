"""The objects that a job owns: its Service, its claim, and its pods, as JSON ready to be created."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from fractions import Fraction
from typing import Final

from pydantic import JsonValue

from dtj.api import names, quantities
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, extend, object_at, objects
from dtj.api.names import Env, Label
from dtj.api.spec import JobSpec, ReplicaSpec, RestartScope, Role
from dtj.core import accelerators, data_service
from dtj.core.platform import Platform
from dtj.core.replicas import Replica, incarnation, pod_name
from dtj.core.tf_config import Cluster

_AUTO: Final = RestartScope.AUTO

_MOST_INCREASES: Final = 1000
"""Increases that are computed; by then any most is reached."""


def service_selector(job: Job, attempt: int) -> dict[str, str]:
    """The labels by which a job's Service, and nobody else's, finds the pods of one attempt."""
    return {Label.JOB_UID: job.uid, Label.ATTEMPT: str(attempt)}


def service(job: Job, spec: JobSpec, *, attempt: int) -> JsonObject:
    """The headless Service that gives each replica its name.

    It publishes addresses of pods that are not ready: peers must find each other before any is.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(job, job.name, labels=labels_of(job)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(service_selector(job, attempt)),
            "ports": [
                {"name": "tf", "port": spec.port, "targetPort": spec.port},
                {"name": "status", "port": names.STATUS_PORT, "targetPort": names.STATUS_PORT},
            ],
        },
    }


def claim_name(job: Job) -> str:
    """Name of the claim that holds the checkpoints."""
    return f"{job.name}-checkpoint"


def claim(job: Job, spec: JobSpec) -> JsonObject | None:
    """The PersistentVolumeClaim that the job asks for, if it asks for one."""
    template = spec.checkpoint.claim_template if spec.checkpoint is not None else None
    if template is None:
        return None
    claim_spec: JsonObject = {
        "accessModes": [str(mode) for mode in template.access_modes],
        "resources": {"requests": {"storage": template.storage}},
    }
    if template.storage_class_name is not None:
        claim_spec["storageClassName"] = template.storage_class_name
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata_of(job, claim_name(job), labels=labels_of(job)),
        "spec": claim_spec,
    }


def pods(job: Job, spec: JobSpec, wanted: Iterable[Replica], *, platform: Platform) -> tuple[JsonObject, ...]:
    """The pods of these replicas: the user's template, with what each replica needs added.

    Where both speak, ours wins for identity (name, host name, labels, TF_CONFIG, restart policy), the user's
    for everything else.
    """
    wanted = tuple(wanted)
    cluster = Cluster.of(job, spec, platform.network)
    attempt = max(job.status.attempt, 1)
    roles = {replica.role for replica in wanted}
    templates = {role: role_template(job, spec, role, platform=platform) for role in roles}
    return tuple(
        _pod(
            job,
            replica,
            template=templates[replica.role],
            environment=_environment(job, spec, replica, cluster=cluster, platform=platform, attempt=attempt),
            attempt=attempt,
        )
        for replica in wanted
    )


def role_template(job: Job, spec: JobSpec, role: Role, *, platform: Platform) -> JsonObject:
    """The user's pod template with all that is the same for every replica of a role. The pods share its parts."""
    role_spec = spec.replica_specs.get(role) or ReplicaSpec()
    template = copy.deepcopy(role_spec.template or spec.template or {})
    pod_spec = object_at(template, "spec")
    main = main_container(pod_spec)

    if platform.trainer_image and not main.get("image"):
        main["image"] = platform.trainer_image
    _apply_role(pod_spec, main, role_spec)
    _apply_more_memory(job, spec, role, main)
    _apply_accelerator(pod_spec, main, accelerators.needs(spec, role, platform))
    _apply_ports(main, spec)
    mount_checkpoint(job, spec, pod_spec)
    for container in _containers(pod_spec):
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    apply_security(pod_spec, restricted=platform.restricted)
    pod_spec.update(restartPolicy="Never", subdomain=job.name)
    pod_spec.setdefault("enableServiceLinks", False)
    scheduling = spec.run_policy.scheduling
    if scheduling is not None and scheduling.priority_class_name is not None:
        pod_spec.setdefault("priorityClassName", scheduling.priority_class_name)
    return template


def _pod(job: Job, replica: Replica, *, template: JsonObject, environment: dict[str, str], attempt: int) -> JsonObject:
    """The pod of one replica. What it does not share with its peers is copied; nothing in ``template`` changes."""
    pod_spec: JsonObject = {**_map(template, "spec"), "hostname": replica.hostname}
    for kind in _CONTAINER_KINDS:
        if kind in pod_spec:
            pod_spec[kind] = [_with_environment(container, environment) for container in objects(pod_spec[kind])]
    metadata = metadata_of(
        job,
        pod_name(job.name, replica, incarnation(job.status, replica)),
        labels={
            **_map(template, "metadata", "labels"),
            **labels_of(job),
            Label.APP_COMPONENT: str(replica.role),
            Label.ROLE: str(replica.role),
            Label.INDEX: str(replica.index),
            Label.ATTEMPT: str(attempt),
        },
    )
    annotations = _map(template, "metadata", "annotations")
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}


def main_container(pod_spec: JsonObject) -> JsonObject:
    """The container that trains: the one named trainer, or the only one there is."""
    containers = objects(pod_spec.get("containers"))
    named = [container for container in containers if container.get("name") == names.MAIN_CONTAINER]
    return next(iter(named or containers), {})


_CONTAINER_KINDS = ("initContainers", "containers")


def _containers(pod_spec: JsonObject) -> list[JsonObject]:
    return [container for kind in _CONTAINER_KINDS for container in objects(pod_spec.get(kind))]


def labels_of(job: Job) -> JsonObject:
    """The labels of everything that the job owns."""
    return {
        Label.APP_NAME: "distributed-training-job",
        Label.APP_INSTANCE: job.name,
        Label.APP_PART_OF: job.name,
        Label.APP_MANAGED_BY: names.MANAGER,
        Label.JOB_NAME: job.name,
        Label.JOB_UID: job.uid,
    }


def gang_metadata(job: Job) -> JsonObject:
    """Metadata of the one PodGroup or Workload of a job."""
    return metadata_of(job, job.name, labels=labels_of(job))


def metadata_of(job: Job, name: str, *, labels: JsonObject) -> JsonObject:
    """Metadata of an object that the job owns."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": labels,
        "ownerReferences": [job.owner_reference()],
    }


def _apply_role(pod_spec: JsonObject, main: JsonObject, role: ReplicaSpec) -> None:
    """The small differences between roles that need no template of their own."""
    if role.command is not None:
        main["command"] = list(role.command)
    if role.args is not None:
        main["args"] = list(role.args)
    if role.resources is not None:
        main["resources"] = copy.deepcopy(role.resources)
    if role.env is not None:
        main["env"] = _merged_environment(main, [copy.deepcopy(variable) for variable in role.env])
    if role.node_selector is not None:
        object_at(pod_spec, "nodeSelector").update(role.node_selector)
    if role.tolerations is not None:
        extend(pod_spec, "tolerations", role.tolerations)


def _apply_more_memory(job: Job, spec: JobSpec, role: Role, main: JsonObject) -> None:
    """What a role gets whose pods were killed for want of memory: more each time, up to a most."""
    policy, counts = spec.run_policy.on_out_of_memory, job.status.replica_statuses.get(role)
    if policy is None or counts is None or counts.memory_increases == 0:
        return
    most = quantities.parse(policy.max_memory)
    factor = Fraction(100 + policy.increase_percent, 100) ** min(counts.memory_increases, _MOST_INCREASES)
    for kind in ("limits", "requests"):
        given = dig(main, "resources", kind)
        before = quantities.parse(given.get("memory")) if isinstance(given, dict) else None
        if isinstance(given, dict) and before is not None and most is not None and before < most:
            given["memory"] = quantities.as_memory(min(before * factor, most))


def _apply_accelerator(pod_spec: JsonObject, main: JsonObject, needs: accelerators.AcceleratorNeeds | None) -> None:
    if needs is None:
        return
    resources = object_at(main, "resources")
    for kind in ("limits", "requests"):  # extended resources need both to be equal
        object_at(resources, kind)[needs.resource] = needs.count
    object_at(pod_spec, "nodeSelector").update(needs.node_selector)
    extend(pod_spec, "tolerations", needs.tolerations)


def _apply_ports(main: JsonObject, spec: JobSpec) -> None:
    """Declare our ports where the user did not; TensorFlow listens whether or not they are declared."""
    present = objects(main.get("ports"))
    for name, number in (("tf", spec.port), ("status", names.STATUS_PORT)):
        if not any(port.get("name") == name or port.get("containerPort") == number for port in present):
            extend(main, "ports", ({"name": name, "containerPort": number},))


def mount_checkpoint(job: Job, spec: JobSpec, pod_spec: JsonObject, *, read_only: bool = False) -> None:
    """Mount the checkpoint volume into each container, where there is such a volume."""
    checkpoint = spec.checkpoint
    if checkpoint is None or not checkpoint.mounted or checkpoint.directory is None:
        return
    source: JsonObject = (
        copy.deepcopy(checkpoint.volume)
        if checkpoint.volume is not None
        else {"persistentVolumeClaim": {"claimName": claim_name(job)}}
    )
    extend(pod_spec, "volumes", ({**source, "name": names.CHECKPOINT_VOLUME},))
    for container in _containers(pod_spec):
        mount: JsonObject = {"name": names.CHECKPOINT_VOLUME, "mountPath": checkpoint.directory}
        if read_only:
            mount["readOnly"] = True
        extend(container, "volumeMounts", (mount,))


def _environment(
    job: Job, spec: JobSpec, replica: Replica, *, cluster: Cluster, platform: Platform, attempt: int
) -> dict[str, str]:
    directories = platform.directories
    checkpoint = spec.checkpoint
    needs = accelerators.needs(spec, replica.role, platform)
    optional = {
        Env.CHECKPOINT_DIR: directories.checkpoint(spec),
        Env.EXPORT_DIR: directories.export(spec),
        Env.EXPORT_FORMATS: ",".join(spec.export.formats) if spec.export is not None else None,
        Env.LOG_DIR: directories.logs(spec),
        Env.CHECKPOINT_EVERY_STEPS: checkpoint.every_steps if checkpoint is not None else None,
        Env.CHECKPOINT_EVERY_SECONDS: checkpoint.every_seconds if checkpoint is not None else None,
        Env.CHECKPOINT_KEEP: checkpoint.keep if checkpoint is not None else None,
        # Tells a launcher how long a lost peer may take to come back: as long as a pod's start where it comes alone.
        Env.RESTART_SCOPE: spec.run_policy.restart_scope if spec.run_policy.restart_scope is not _AUTO else None,
    }
    return {
        Env.TF_CONFIG: cluster.tf_config(replica),
        Env.JOB_NAME: job.name,
        Env.NAMESPACE: job.namespace,
        Env.STRATEGY: str(spec.strategy),
        Env.ROLE: str(replica.role),
        Env.INDEX: str(replica.index),
        Env.ATTEMPT: str(attempt),
        Env.STATUS_PORT: str(platform.network.status_port(role=replica.role, index=replica.index)),
        **{name: str(value) for name, value in optional.items() if value is not None},
        **data_service.environment(job, spec, replica, platform.network),
        **(
            accelerators.tpu_environment(job, spec, replica, platform.network)
            if needs is not None and needs.tpu
            else {}
        ),
    }


def _with_environment(container: JsonObject, environment: dict[str, str]) -> JsonObject:
    """``container`` with variables of ours; itself it stays as it is."""
    variables: list[JsonObject] = [{"name": name, "value": value} for name, value in environment.items()]
    return {**container, "env": _merged_environment(container, variables)}


def _merged_environment(container: JsonObject, variables: list[JsonObject]) -> list[JsonValue]:
    """A container's variables; one of the same name is replaced where it stands, so that $(VAR) references hold."""
    merged = {str(variable.get("name")): variable for variable in objects(container.get("env"))}
    merged.update({str(variable.get("name")): variable for variable in variables})
    return list(merged.values())


def apply_security(pod_spec: JsonObject, *, restricted: bool) -> None:
    """Safe defaults where the user set nothing; the whole "restricted" standard where it is asked for.

    A service account that the user names is there to be used, so its token stays mounted.
    """
    if "serviceAccountName" not in pod_spec:
        pod_spec.setdefault("automountServiceAccountToken", False)
    pod_context = object_at(pod_spec, "securityContext")
    pod_context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    if restricted:
        pod_context.setdefault("runAsNonRoot", True)
    for container in _containers(pod_spec):
        context = object_at(container, "securityContext")
        if not _may_escalate(context):
            context.setdefault("allowPrivilegeEscalation", False)
        if restricted:
            object_at(context, "capabilities").setdefault("drop", ["ALL"])


def _may_escalate(context: JsonObject) -> bool:
    """The API server refuses allowPrivilegeEscalation=false beside what implies the contrary."""
    added = dig(context, "capabilities", "add")
    return context.get("privileged") is True or (
        isinstance(added, list) and ("SYS_ADMIN" in added or "CAP_SYS_ADMIN" in added)
    )


def _map(template: JsonObject, *path: str) -> JsonObject:
    """The user's labels or annotations; empty where there are none."""
    value = dig(template, *path)
    return value if isinstance(value, dict) else {}
