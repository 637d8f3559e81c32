"""The manifests of the pods of a job: the user's template with what each replica needs added."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, extend, fields_of, items_of, object_at, objects, text
from dtj.api.names import Annotation, Env, Label
from dtj.api.spec import JobSpec, ReplicaSpec, Role
from dtj.core import on_out_of_memory
from dtj.core.manifests import accelerators
from dtj.core.manifests.environment import environment, merged_environment, with_environment
from dtj.core.manifests.metadata import claim_name, labels_of, metadata_of
from dtj.core.manifests.tf_config import Cluster, Variables
from dtj.core.membership import World, has_world, world_of
from dtj.core.platform import Platform, keeps_in_memory
from dtj.core.replicas import TRAINING_ROLES, Replica, base_name, deciding_replica, incarnation, pod_name


@dataclass(frozen=True)
class PodRenderer:
    """Makes the pods of one job, one at a time: the user's template, with what each replica needs added.

    Where both set a field, ours wins for identity (name, host name, labels, TF_CONFIG, restart policy), the user's
    for everything else. What pods share (the text of the cluster, a template for each role) is computed once, when it
    is first needed; a manifest itself is not kept.
    """

    job: Job
    spec: JobSpec
    platform: Platform
    world: World | None = None
    """Which replicas train together; None: those that the status says, or all."""

    def render(self, replica: Replica) -> JsonObject:
        """The manifest of a replica's next pod. It shares parts with those of its peers: change none in place."""
        job, template = self.job, self._template(replica.role)
        variables = environment(
            job,
            self.spec,
            replica,
            platform=self.platform,
            cluster=self._cluster.variables(replica),
            tpu=self._tpu_environment(replica),
        )
        hostname = base_name(job, replica) if job.form.replica_services else replica.hostname
        pod_spec: JsonObject = {**fields_of(dig(template, "spec")), "hostname": hostname}
        for kind in _CONTAINER_KINDS:
            if kind in pod_spec:
                pod_spec[kind] = [
                    with_environment(container, _wanted(job, container, variables))
                    for container in objects(pod_spec[kind])
                ]
        number = incarnation(job.status, replica)
        decides = replica == deciding_replica(self.spec)
        metadata = metadata_of(
            job,
            pod_name(job, replica, number),
            labels={
                **fields_of(dig(template, "metadata", "labels")),
                **labels_of(job),
                **job.form.replica_labels(replica.role, replica.index, decides=decides),
                Label.ATTEMPT: str(job.attempt),
                **({Label.INCARNATION: str(number)} if job.form.replica_services and number else {}),
            },
        )
        main = text(job.form.main_container(pod_spec).get("name"))
        world = self._world if replica.role in TRAINING_ROLES else ""
        annotations = {
            **fields_of(dig(template, "metadata", "annotations")),
            **({Annotation.MAIN_CONTAINER: main} if main else {}),
            **({Annotation.WORLD: world} if world else {}),
        }
        if annotations:
            metadata["annotations"] = annotations
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}

    @cached_property
    def _world(self) -> str:
        world = self.world or world_of(self.job, self.spec)
        return world.text(self.job, self.spec, self.platform.network) if world is not None else ""

    @cached_property
    def _cluster(self) -> Cluster:
        return Cluster(self.job, self.spec, self.platform)

    @cached_property
    def _templates(self) -> dict[Role, JsonObject]:
        return {}

    def _template(self, role: Role) -> JsonObject:
        if role not in self._templates:
            self._templates[role] = role_template(self.job, self.spec, role, platform=self.platform)
        return self._templates[role]

    @cached_property
    def _slices(self) -> dict[Role, accelerators.SliceHosts]:
        return {}

    def _tpu_environment(self, replica: Replica) -> dict[str, str]:
        needs = accelerators.needs(self.spec, replica.role, self.platform)
        if needs is None or needs.profile.tpu is None:
            return {}
        if replica.role not in self._slices:
            hosts = accelerators.SliceHosts.of(self.job, self.spec, replica.role, self.platform.network)
            self._slices[replica.role] = hosts
        return self._slices[replica.role].environment(replica)


def first_pods(job: Job, spec: JobSpec, *, platform: Platform) -> tuple[JsonObject, ...]:
    """The first pod of each role."""
    renderer = PodRenderer(job, spec, platform)
    return tuple(renderer.render(Replica(role, 0)) for role in spec.roles())


def role_template(job: Job, spec: JobSpec, role: Role, *, platform: Platform) -> JsonObject:
    """The user's pod template with all that is the same for every replica of a role. The pods share its parts, and it
    shares with the spec of the job what no role changes: a template may be long, and there are six roles."""
    role_spec = spec.replica_specs.get(role) or ReplicaSpec()
    template = _changeable(role_spec.template or spec.template or {})
    pod_spec = object_at(template, "spec")
    main = job.form.main_container(pod_spec)

    if platform.trainer_image and not main.get("image"):
        main["image"] = platform.trainer_image
    _apply_role(pod_spec, main, role_spec)
    _apply_more_memory(job, spec, role, main)
    _apply_accelerator(pod_spec, main, accelerators.needs(spec, role, platform))
    _apply_ports(job, spec, role, main)
    mount_checkpoint(job, spec, pod_spec)
    _mount_memory(spec, role, pod_spec, main)
    if role in TRAINING_ROLES and has_world(job, spec):
        _mount_world(pod_spec, main)
    for container in _containers(pod_spec):
        container.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    if not job.form.pod_defaults:
        pod_spec["restartPolicy"] = "Never"
        return template
    _mount_shared_memory(pod_spec, main)
    apply_security(pod_spec, restricted=platform.restricted)
    pod_spec.update(restartPolicy="Never", subdomain=job.name)
    pod_spec.setdefault("enableServiceLinks", False)
    if pod_spec.get("hostNetwork") is True:
        # Otherwise such a pod asks its node's resolver, which does not know the names in TF_CONFIG.
        pod_spec.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    if spec.scheduling.priority_class_name is not None:
        pod_spec.setdefault("priorityClassName", spec.scheduling.priority_class_name)
    return template


def _changeable(template: JsonObject) -> JsonObject:
    """A copy of those parts of a template that :func:`role_template` changes in place; the others are shared."""
    template = dict(template)
    pod_spec = _own_object(template, "spec")
    for field in ("nodeSelector", "securityContext"):
        _own_object(pod_spec, field)
    for kind in _CONTAINER_KINDS:
        if isinstance(containers := pod_spec.get(kind), list):
            pod_spec[kind] = [dict(each) if isinstance(each, dict) else each for each in containers]
    for container in _containers(pod_spec):
        _own_object(_own_object(container, "securityContext"), "capabilities")
        resources = _own_object(container, "resources")
        for field in ("limits", "requests"):
            _own_object(resources, field)
    return template


def _own_object(parent: JsonObject, key: str) -> JsonObject:
    """A copy of the object at ``key``, in its place; where there is none, an empty one that nobody has."""
    value = parent.get(key)
    if not isinstance(value, dict):
        return {}
    parent[key] = copied = dict(value)
    return copied


def _wanted(job: Job, container: JsonObject, environment: Variables) -> Variables:
    """Our variables of a container. Kubeflow's operator sets none of a sidecar, so what that says of itself stays."""
    if job.form.pod_defaults or container.get("name") == job.form.container:
        return environment
    own = {text(variable.get("name")) for variable in objects(container.get("env"))}
    return {name: value for name, value in environment.items() if name not in own}


_CONTAINER_KINDS = ("initContainers", "containers")


def _containers(pod_spec: JsonObject) -> list[JsonObject]:
    return [container for kind in _CONTAINER_KINDS for container in objects(pod_spec.get(kind))]


def _apply_role(pod_spec: JsonObject, main: JsonObject, role: ReplicaSpec) -> None:
    """The small differences between roles that need no template of their own."""
    if role.command is not None:
        main["command"] = list(role.command)
    if role.args is not None:
        main["args"] = list(role.args)
    if role.resources is not None:
        main["resources"] = dict(role.resources)
        for kind in ("limits", "requests"):
            _own_object(object_at(main, "resources"), kind)
    if role.env is not None:
        main["env"] = merged_environment(main, [*role.env])
    if role.node_selector is not None:
        object_at(pod_spec, "nodeSelector").update(role.node_selector)
    if role.tolerations is not None:
        extend(pod_spec, "tolerations", role.tolerations)


def _apply_more_memory(job: Job, spec: JobSpec, role: Role, main: JsonObject) -> None:
    """What a role gets whose pods were killed for lack of memory."""
    resources = object_at(main, "resources") if "resources" in main else {}
    for kind, memory in on_out_of_memory.raised(job, spec, role, resources).items():
        object_at(resources, kind)["memory"] = memory


def _apply_accelerator(pod_spec: JsonObject, main: JsonObject, needs: accelerators.AcceleratorNeeds | None) -> None:
    if needs is None:
        return
    profile, resources = needs.profile, object_at(main, "resources")
    asked = (dig(resources, kind, profile.resource) for kind in ("limits", "requests"))
    count = needs.count or next((amount for amount in asked if amount is not None), 1)
    for kind in ("limits", "requests"):  # extended resources and huge pages need both to be equal
        object_at(resources, kind).update({**profile.resources, profile.resource: count})
    if profile.capabilities:
        capabilities = object_at(object_at(main, "securityContext"), "capabilities")
        added = items_of(capabilities.get("add"))
        capabilities["add"] = [*added, *(one for one in profile.capabilities if one not in added)]
    object_at(pod_spec, "nodeSelector").update(needs.node_selector)
    extend(pod_spec, "tolerations", profile.tolerations)


def _apply_ports(job: Job, spec: JobSpec, role: Role, main: JsonObject) -> None:
    """Declare our ports where the user did not; TensorFlow listens whether or not they are declared."""
    present = objects(main.get("ports"))
    ports = [(job.form.port_name, job.form.port(spec, role))]
    if job.form.pod_defaults:
        ports.append(("status", names.STATUS_PORT))
    for name, number in ports:
        if not any(port.get("name") == name or port.get("containerPort") == number for port in present):
            extend(main, "ports", ({"name": name, "containerPort": number},))


def _mount_world(pod_spec: JsonObject, main: JsonObject) -> None:
    """Have the kubelet write the annotation into a file, again and again: a variable would stay as it is."""
    item: JsonObject = {"path": "world", "fieldRef": {"fieldPath": f"metadata.annotations['{Annotation.WORLD}']"}}
    extend(pod_spec, "volumes", ({"name": names.WORLD_VOLUME, "downwardAPI": {"items": [item]}},))
    mount: JsonObject = {"name": names.WORLD_VOLUME, "mountPath": names.WORLD_MOUNT, "readOnly": True}
    extend(main, "volumeMounts", (mount,))
    extend(main, "env", ({"name": Env.WORLD_FILE, "value": f"{names.WORLD_MOUNT}/world"},))


def _mount_memory(spec: JobSpec, role: Role, pod_spec: JsonObject, main: JsonObject) -> None:
    """Give the main container memory that outlives its process, and itself: it goes with the pod."""
    if spec.checkpoint is None or spec.checkpoint.in_memory is None or not keeps_in_memory(spec, role):
        return
    source: JsonObject = {"medium": "Memory", "sizeLimit": spec.checkpoint.in_memory.size_limit}
    extend(pod_spec, "volumes", ({"name": names.MEMORY_VOLUME, "emptyDir": source},))
    extend(main, "volumeMounts", ({"name": names.MEMORY_VOLUME, "mountPath": names.MEMORY_MOUNT},))


def _mount_shared_memory(pod_spec: JsonObject, main: JsonObject) -> None:
    """Give several GPUs more shared memory than the 64 MiB of each container: NCCL fails there (NVIDIA/nccl#525).

    What is used of it counts against the memory limit of the container, as all emptyDirs in memory do.
    """
    mounts = {text(mount.get("mountPath")).rstrip("/") for mount in objects(main.get("volumeMounts"))}
    if accelerators.nvidia_gpus(main) < 2 or names.SHARED_MEMORY_MOUNT in mounts:
        return
    source: JsonObject = {"medium": "Memory", "sizeLimit": "1Gi"}
    extend(pod_spec, "volumes", ({"name": names.SHARED_MEMORY_VOLUME, "emptyDir": source},))
    mount: JsonObject = {"name": names.SHARED_MEMORY_VOLUME, "mountPath": names.SHARED_MEMORY_MOUNT}
    extend(main, "volumeMounts", (mount,))


def mount_checkpoint(job: Job, spec: JobSpec, pod_spec: JsonObject, *, read_only: bool = False) -> None:
    """Mount the checkpoint volume into each container, where there is such a volume."""
    checkpoint = spec.checkpoint
    if checkpoint is None or not checkpoint.mounted or checkpoint.directory is None:
        return
    source: JsonObject = (
        checkpoint.volume
        if checkpoint.volume is not None
        else {"persistentVolumeClaim": {"claimName": claim_name(job)}}
    )
    extend(pod_spec, "volumes", ({**source, "name": names.CHECKPOINT_VOLUME},))
    for container in _containers(pod_spec):
        mount: JsonObject = {"name": names.CHECKPOINT_VOLUME, "mountPath": checkpoint.directory}
        if read_only:
            mount["readOnly"] = True
        extend(container, "volumeMounts", (mount,))


def apply_security(pod_spec: JsonObject, *, restricted: bool) -> None:
    """Safe defaults where the user set nothing; the whole "restricted" standard where it is asked for.

    A service account that the user names is there to be used, so its token stays mounted.
    """
    if not (pod_spec.get("serviceAccountName") or pod_spec.get("serviceAccount")):  # the old name, which still counts
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
    """The API server refuses allowPrivilegeEscalation=false next to what implies the contrary."""
    added = items_of(dig(context, "capabilities", "add"))
    return context.get("privileged") is True or "SYS_ADMIN" in added or "CAP_SYS_ADMIN" in added
