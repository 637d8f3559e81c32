"""The specification of a DistributedTrainingJob: what a user may write.

The models hold types, ranges, defaults and descriptions; the CRD's schema is generated from them. Relations
between fields are the rules of :mod:`dtj.api.rules`, which the API server and the command line both enforce.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from dtj.api import names
from dtj.api.base import SpecModel
from dtj.api.fragments import PodTemplateFragment
from dtj.api.json import JsonObject
from dtj.api.storage import Checkpoint, Export
from dtj.api.tensorboard import TensorBoard


class Strategy(StrEnum):
    """Distribution strategies of ``tf.distribute``, and GPipe's pipeline parallelism."""

    ONE_DEVICE = "OneDevice"
    MIRRORED = "Mirrored"
    CENTRAL_STORAGE = "CentralStorage"
    MULTI_WORKER_MIRRORED = "MultiWorkerMirrored"
    PARAMETER_SERVER = "ParameterServer"
    TPU = "TPU"
    PIPELINE = "Pipeline"


class Role(StrEnum):
    """Task types, spelled as TF_CONFIG spells them."""

    CHIEF = "chief"
    WORKER = "worker"
    PS = "ps"
    EVALUATOR = "evaluator"
    DISPATCHER = "dispatcher"
    DATA_WORKER = "data-worker"


_ROLES: Final = {str(role): role for role in Role}


def as_role(text: str) -> Role | None:
    """The role of this name, or None where there is none."""
    return _ROLES.get(text)


SINGLE_PROCESS: Final = (Strategy.ONE_DEVICE, Strategy.MIRRORED, Strategy.CENTRAL_STORAGE)
"""Strategies whose training runs in one process, however many devices it has."""

COLLECTIVE: Final = (Strategy.MULTI_WORKER_MIRRORED, Strategy.TPU, Strategy.PIPELINE)
"""Strategies whose chief and workers can only go on together."""

ELASTIC: Final = (Strategy.MULTI_WORKER_MIRRORED, Strategy.PARAMETER_SERVER)
"""Strategies that can go on from a checkpoint with another number of workers."""

CLUSTER_ROLES: Final = (Role.CHIEF, Role.WORKER, Role.PS)
"""The roles that appear in TF_CONFIG's ``cluster``; the others appear in nobody's, and nobody depends on their life."""

DATA_SERVICE: Final = (Role.DISPATCHER, Role.DATA_WORKER)
"""The roles of the tf.data service, which prepares examples for those that train."""

SINGLE: Final = (Role.CHIEF, Role.EVALUATOR, Role.DISPATCHER)
"""The roles of which a job has one replica at most."""

MAX_REPLICAS: Final = 10_000
"""Most replicas of a role; larger than the largest Kubernetes cluster has nodes."""


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when a job has ended."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class SuccessPolicy(StrEnum):
    """Whose success is the job's."""

    CHIEF = "Chief"
    ALL_WORKERS = "AllWorkers"


Template = Annotated[JsonObject, PodTemplateFragment()]


class RestartPolicy(StrEnum):
    """Which errors of a replica's own are retried."""

    ON_FAILURE = "OnFailure"
    EXIT_CODE = "ExitCode"
    NEVER = "Never"


class RestartScope(StrEnum):
    """Who starts again when a replica is lost."""

    AUTO = "Auto"
    POD = "Pod"
    JOB = "Job"


class Gang(StrEnum):
    """Who sees to it that all pods of a job are scheduled, or none."""

    AUTO = "Auto"
    NONE = "None"
    VOLCANO = "Volcano"
    COSCHEDULING = "Coscheduling"
    NATIVE = "Native"
    KUEUE = "Kueue"


QUEUEING: Final = (Gang.AUTO, Gang.VOLCANO, Gang.KUEUE)
"""The values of ``gang`` beside which a queue means something."""


class OnStall(StrEnum):
    """What happens to a job that makes no progress."""

    NONE = "None"
    RESTART = "Restart"
    FAIL = "Fail"


ONLY_STOPS_AT_NAN: Final = (Strategy.PARAMETER_SERVER, Strategy.PIPELINE)
"""The strategies whose trainer can neither skip an update nor go back to a checkpoint."""


class OnNaN(StrEnum):
    """What the trainer does when a loss is NaN or infinite."""

    FAIL = "Fail"
    ROLLBACK = "Rollback"
    SKIP = "Skip"


class Accelerator(SpecModel):
    """The accelerator of each pod, by a profile of the operator's configuration."""

    profile: str = Field(
        min_length=1,
        max_length=63,
        description="profile is the name of an accelerator profile of the operator, such as nvidia-l4 or tpu-v5e.",
    )
    count: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="count is the number of accelerators of each pod, in devices. "
        "Defaults to 1 for GPUs, and for TPUs to what the topology gives each host.",
    )
    topology: str | None = Field(
        default=None,
        max_length=20,
        description="topology is the shape of a TPU slice in chips, such as 2x4 or 2x2x4.",
    )


class ReplicaSpec(SpecModel):
    """The pods of one role."""

    replicas: int = Field(default=1, ge=0, le=MAX_REPLICAS, description="replicas is the number of pods of this role.")
    template: Template | None = Field(
        default=None,
        description="template replaces the job's shared pod template for this role, as a whole.",
    )
    command: list[str] | None = Field(
        default=None,
        max_length=256,
        description="command replaces the trainer container's command for this role.",
    )
    args: list[str] | None = Field(
        default=None,
        max_length=1024,
        description="args replaces the trainer container's arguments for this role.",
    )
    env: Annotated[list[JsonObject], PodTemplateFragment("spec", "containers", "env")] | None = Field(
        default=None,
        max_length=256,
        description="env adds environment variables to the trainer container of this role; "
        "a variable of the template with the same name is replaced.",
    )
    resources: Annotated[JsonObject, PodTemplateFragment("spec", "containers", "resources")] | None = Field(
        default=None,
        description="resources replaces the trainer container's resources for this role.",
    )
    restart_policy: RestartPolicy = Field(
        default=RestartPolicy.ON_FAILURE,
        description="restartPolicy tells which errors of this role are retried, within runPolicy.backoffLimit: "
        "OnFailure (all but the exit codes listed as fatal), ExitCode (all but those that no restart can help: 1, 2, "
        "126, 127, 128, 134, 139, unless listed as retryable) or Never. What the infrastructure takes away comes back "
        "under each of them.",
    )
    node_selector: dict[str, str] | None = Field(
        default=None,
        description="nodeSelector adds node labels that this role's pods require.",
    )
    tolerations: Annotated[list[JsonObject], PodTemplateFragment("spec", "tolerations")] | None = Field(
        default=None,
        max_length=64,
        description="tolerations adds tolerations to this role's pods.",
    )
    accelerator: Accelerator | None = Field(
        default=None,
        description="accelerator replaces the job's accelerator for this role.",
    )


class Elastic(SpecModel):
    """How far the number of workers may change while the job runs."""

    min_replicas: int = Field(
        default=1, ge=1, le=MAX_REPLICAS, description="minReplicas is the least number of workers."
    )
    max_replicas: int = Field(ge=1, le=MAX_REPLICAS, description="maxReplicas is the largest number of workers.")


ExitCode = Annotated[int, Field(ge=1, le=255)]


class ExitCodes(SpecModel):
    """Exit codes whose meaning is not the usual one."""

    retryable: list[ExitCode] = Field(
        default=[], max_length=255, description="retryable are exit codes that restartPolicy ExitCode retries, too."
    )
    fatal: list[ExitCode] = Field(
        default=[], max_length=255, description="fatal are exit codes that fail the job at once, under any policy."
    )


class Scheduling(SpecModel):
    """How the pods of a job are scheduled together."""

    gang: Gang = Field(
        default=Gang.AUTO,
        description="gang names who schedules all pods of the job or none: Kueue, Volcano, Coscheduling (of the "
        "scheduler plugins), Native (the PodGroups of Kubernetes 1.35 and later), None, or Auto: with a queue Kueue or "
        "Volcano, else Volcano, Coscheduling or Native, whichever the cluster has.",
    )
    queue: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="queue is the LocalQueue of Kueue, or the Queue of Volcano, in which the job waits.",
    )
    min_available: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REPLICAS,
        description="minAvailable is the number of pods that must be schedulable before any of them starts; all of "
        "the job's by default. Kueue admits whole jobs only.",
    )
    priority_class_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="priorityClassName is the priority class of the job's pods, and of the job in its queue.",
    )
    timeout_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="timeoutSeconds is how long, in seconds, pods that have found a node keep it while they wait for "
        "the others; Coscheduling alone knows such a limit.",
    )


class OnOutOfMemory(SpecModel):
    """What a replica gets that was killed for want of memory."""

    increase_percent: int = Field(
        ge=1,
        le=1000,
        description="increasePercent is by how much the memory of the role's pods grows with each such restart, in "
        "percent of what it was before.",
    )
    max_memory: str = Field(
        min_length=1,
        max_length=32,
        description="maxMemory is the most memory that a pod gets this way, as a Kubernetes quantity such as 64Gi.",
    )


class RunPolicy(SpecModel):
    """How a job runs and ends."""

    suspend: bool = Field(
        default=False,
        description="suspend stops the job's pods, which save a checkpoint within their grace period, and keeps the "
        "job for later. May change at any time; while it is true, templates may change, too.",
    )
    backoff_limit: int = Field(
        default=3,
        ge=0,
        le=1_000_000,
        description="backoffLimit is the number of restarts that errors of the training itself may use.",
    )
    disruption_limit: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="disruptionLimit is the number of restarts that the infrastructure may cause; no limit by default.",
    )
    restart_scope: RestartScope = Field(
        default=RestartScope.AUTO,
        description="restartScope tells who starts again when a replica is lost: Auto (as the strategy needs), Pod "
        "(that replica alone; with MultiWorkerMirrored the others need dtj-launch, which restarts them in their "
        "pods) or Job (all of them).",
    )
    exit_codes: ExitCodes | None = Field(
        default=None, description="exitCodes are exit codes whose meaning is not the usual one."
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="activeDeadlineSeconds is how long the job may run, in seconds from its start or its latest "
        "resumption; then it fails.",
    )
    start_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="startDeadlineSeconds is how long it may take, in seconds from creation or resumption, until all "
        "pods are ready; then the job fails, and says what kept it.",
    )
    stall_timeout_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="stallTimeoutSeconds is how long a job whose pods are all ready may report the same step, in "
        "seconds; then the condition Stalled becomes True, or Unknown if nothing was reported. No limit by default.",
    )
    on_stall: OnStall = Field(
        default=OnStall.NONE,
        description="onStall is what happens to a stalled job beside the condition: None, Restart (a new attempt of "
        "all, which backoffLimit pays) or Fail.",
    )
    on_nan: OnNaN | None = Field(
        default=None,
        alias="onNaN",
        description="onNaN is what the trainer does when a loss is NaN or infinite: Fail (its default), Rollback to "
        "the last checkpoint and leave out the batch, or Skip the update. The trainer gets it as DTJ_ON_NAN.",
    )
    on_out_of_memory: OnOutOfMemory | None = Field(
        default=None,
        description="onOutOfMemory gives more memory to pods of a role that was killed for want of it; the same again "
        "by default.",
    )
    scheduling: Scheduling | None = Field(
        default=None,
        description="scheduling has the job's pods scheduled together, or queued; each on its own by default.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="ttlSecondsAfterFinished is how long the job is kept after its end, in seconds; for ever by "
        "default.",
    )
    managed_by: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="managedBy names the controller that runs the job. With any other name than "
        f"{names.CONTROLLER} the operator keeps its hands off it.",
    )
    clean_pod_policy: CleanPodPolicy = Field(
        default=CleanPodPolicy.RUNNING,
        description="cleanPodPolicy tells which pods are deleted at the end: Running (those that still run), "
        "All or None. Failed pods are kept by default, since their logs are evidence. A pod that only sidecars keep "
        "running is always deleted.",
    )
    success_policy: SuccessPolicy = Field(
        default=SuccessPolicy.CHIEF,
        description="successPolicy is Chief (the chief's success is the job's; worker 0's where there is no chief) "
        "or AllWorkers (the chief, where there is one, and all workers must succeed).",
    )


class JobSpec(SpecModel):
    """A training job that runs one of TensorFlow's distribution strategies."""

    strategy: Strategy = Field(
        description="strategy is the distribution strategy. It decides which roles are allowed, what TF_CONFIG "
        "says and what success means; the trainer gets it as DTJ_STRATEGY."
    )
    template: Template | None = Field(
        default=None,
        description="template is the pod template that all roles share. The container named trainer trains; "
        "the name may be anything where there is only one container. Its image may be left out where the "
        "operator has a default one.",
    )
    replica_specs: dict[str, ReplicaSpec | None] = Field(
        max_length=8,
        description="replicaSpecs holds the roles by task type: chief, worker, ps, evaluator, and dispatcher "
        "and data-worker for the tf.data service.",
    )
    accelerator: Accelerator | None = Field(
        default=None, description="accelerator is the accelerator of each pod that trains; a role's own wins."
    )
    elastic: Elastic | None = Field(
        default=None,
        description="elastic lets the number of workers change while the job runs: kubectl scale, or an autoscaler, "
        "sets replicaSpecs.worker.replicas, and all replicas start again from the last checkpoint.",
    )
    port: int = Field(
        default=names.DEFAULT_PORT,
        ge=1,
        le=65535,
        description="port is the TCP port of TensorFlow's gRPC server in each pod.",
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="checkpoint tells where and how often training state is saved."
    )
    export: Export | None = Field(default=None, description="export tells where the trained model goes.")
    tensor_board: TensorBoard | None = Field(
        default=None,
        description="tensorBoard shows the curves of the job, out of logs below the checkpoint directory, while it "
        "runs and for some time after.",
    )
    run_policy: RunPolicy = Field(default=RunPolicy(), description="runPolicy tells how the job runs and ends.")

    def replicas(self, role: Role) -> int:
        """Number of pods of ``role``; 0 where the role is absent, null or empty."""
        spec = self.replica_specs.get(role)
        return spec.replicas if spec is not None else 0

    def roles(self) -> tuple[Role, ...]:
        """The roles that take part, in TF_CONFIG's order."""
        return tuple(role for role in Role if self.replicas(role) > 0)
