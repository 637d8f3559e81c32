"""The facts about a job's platform that plans depend on: addresses, directories, accelerator profiles, security.

The operator has one for its cluster (the defaults of :class:`Platform`); the local runner has one whose
addresses are loopback ports and whose directories are folders of the run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import MEMORY_MOUNT, STATUS_PORT
from dtj.api.profiles import SHIPPED_PROFILES, Profile
from dtj.api.spec import CleanPodPolicy, Gang, JobSpec, Role
from dtj.core.replicas import TRAINING_ROLES, Replica

TRAINER_LOG_FORMATS: Final = ("plain", "text", "json")
"""As `dtj_launch.logs` has them."""


class Network(Protocol):
    """Where replicas are reached."""

    def address(self, *, namespace: str, job: str, role: str, index: int, port: int) -> str:
        """``host:port`` of a replica's gRPC server, valid before its pod exists."""

    def pattern(self, *, namespace: str, job: str, port: int) -> str | None:
        """An address of the job with ``{role}`` and ``{index}`` in it; None if addresses follow no pattern."""

    def status_port(self, *, role: Role, index: int) -> int:
        """The port on which a replica serves its progress."""


def address_of(replica: Replica, job: Job, spec: JobSpec, network: Network) -> str:
    """``host:port`` at which a job's replica is reached."""
    return network.address(
        namespace=job.namespace,
        job=job.name,
        role=job.form.word(replica.role),
        index=replica.index,
        port=job.form.port(spec, replica.role),
    )


def keeps_in_memory(spec: JobSpec, role: Role) -> bool:
    """Whether the pods of a role keep checkpoints in memory."""
    return spec.checkpoint is not None and spec.checkpoint.in_memory is not None and role in TRAINING_ROLES


class Directories(Protocol):
    """Which directories a job's pods use; None where the job has none."""

    def checkpoint(self, spec: JobSpec) -> str | None: ...

    def memory(self, spec: JobSpec, replica: Replica) -> str | None:
        """Where a replica keeps its checkpoints in memory."""

    def export(self, spec: JobSpec) -> str | None: ...

    def logs(self, spec: JobSpec) -> str | None: ...


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """DNS names of a headless Service: ``<role>-<index>.<job>.<namespace>.svc``."""

    def address(self, *, namespace: str, job: str, role: str, index: int, port: int) -> str:
        return self.pattern(namespace=namespace, job=job, port=port).format(role=role, index=index)

    def pattern(self, *, namespace: str, job: str, port: int) -> str:
        return f"{{role}}-{{index}}.{job}.{namespace}.svc:{port}"

    def status_port(self, *, role: Role, index: int) -> int:
        return STATUS_PORT


@dataclass(frozen=True, slots=True)
class ReplicaServiceNetwork:
    """DNS names of a headless Service of each replica: ``<job>-<role>-<index>.<namespace>.svc``."""

    domain: str = ""
    """What follows, where the cluster's DNS needs it, such as ``cluster.local``."""

    def address(self, *, namespace: str, job: str, role: str, index: int, port: int) -> str:
        return f"{job}-{role}-{index}.{namespace}.svc{f'.{self.domain}' if self.domain else ''}:{port}"

    def pattern(self, *, namespace: str, job: str, port: int) -> None:
        """Each role may have a port of its own."""
        return

    def status_port(self, *, role: Role, index: int) -> int:
        return STATUS_PORT


@dataclass(frozen=True, slots=True)
class PodDirectories:
    """The directories that the manifest names, as pods see them."""

    def checkpoint(self, spec: JobSpec) -> str | None:
        return spec.checkpoint.directory if spec.checkpoint is not None else None

    def memory(self, spec: JobSpec, replica: Replica) -> str | None:
        return MEMORY_MOUNT if keeps_in_memory(spec, replica.role) else None

    def export(self, spec: JobSpec) -> str | None:
        return spec.export.path if spec.export is not None else None

    def logs(self, spec: JobSpec) -> str | None:
        """TensorBoard's logs lie next to the checkpoints, the one place that all pods share."""
        directory = self.checkpoint(spec)
        return f"{directory.rstrip('/')}/logs" if directory is not None else None


@dataclass(frozen=True, slots=True)
class JobAccess:
    """The NetworkPolicy peers that may connect to the pods of a job, in addition to these pods themselves."""

    status: tuple[JsonObject, ...] = ()
    """Peers that may read the status and the metrics of a training, port 2223: the operator, and perhaps Prometheus."""

    tensorboard: tuple[JsonObject, ...] = ()
    """Peers that may connect to a job's TensorBoard, port 6006."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A place to run jobs. ``restricted`` adds what the Pod Security Standard of that name asks for, everywhere."""

    network: Network = field(default_factory=ClusterNetwork)
    directories: Directories = field(default_factory=PodDirectories)
    profiles: dict[str, Profile] = field(default_factory=lambda: dict(SHIPPED_PROFILES))
    restricted: bool = False
    trainer_image: str = ""
    """The image of trainer containers whose template names none."""

    trainer_log_format: str | None = None
    """One of TRAINER_LOG_FORMATS for all jobs; None leaves it to each job."""

    job_access: JobAccess | None = None
    """What the NetworkPolicy of each job lets in; None if jobs get no such policy."""

    bind_address: str = ""
    """The address that the start gates and the status servers listen on; all interfaces where it is empty."""

    inline_addresses: int | None = 1024
    """The longest list of addresses, in bytes, that each pod has in its own manifest; a longer one is in a ConfigMap.
    None if it has any in its manifest. ``bench/addresses.py`` measures what it costs."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """That of jobs that name none."""

    gang_of_tfjobs: Gang = Gang.NONE
    """The scheduler that starts all pods of a TFJob or none."""

    queues_tfjobs: bool = False
    """Whether TFJobs wait in Kueue as our own jobs do: Kueue's integration does not serve them."""

    tensorboard: bool = True
    """Whether a job's TensorBoard can be a pod next to the others."""


PLATFORM_OF_TFJOBS: Final = Platform(
    network=ReplicaServiceNetwork(), inline_addresses=None, clean_pod_policy=CleanPodPolicy.NONE
)
"""That of TFJobs, whose pods get what Kubeflow's operator gives them."""
