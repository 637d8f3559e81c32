"""The specification of a DistributedTrainingJob: what a user may write.

The models hold types, ranges, defaults and descriptions; the CRD's schema is generated from them. Relations
between fields are the rules of :mod:`dtj.api.rules`, which the API server and the command line both enforce.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from dtj.api import names
from dtj.api.base import PodTemplateFragment, SpecModel
from dtj.api.json import JsonObject
from dtj.api.storage import Checkpoint, Export
from dtj.api.strategies import CLUSTER_ROLES as CLUSTER_ROLES
from dtj.api.strategies import COLLECTIVE as COLLECTIVE
from dtj.api.strategies import COMMUNICATING as COMMUNICATING
from dtj.api.strategies import ELASTIC as ELASTIC
from dtj.api.strategies import MAX_REPLICAS as MAX_REPLICAS
from dtj.api.strategies import SINGLE_PROCESS as SINGLE_PROCESS
from dtj.api.strategies import Communication as Communication
from dtj.api.strategies import Role as Role
from dtj.api.strategies import Strategy as Strategy

_ROLES: Final = {str(role): role for role in Role}


def as_role(text: str) -> Role | None:
    """The role of this name, or None if there is none."""
    return _ROLES.get(text)


DATA_SERVICE: Final = (Role.DISPATCHER, Role.DATA_WORKER)
"""The roles of the tf.data service, which prepares examples for those that train."""

SINGLE: Final = (Role.CHIEF, Role.EVALUATOR, Role.DISPATCHER)
"""The roles of which a job has one replica at most."""


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
    """Which replicas start again when one is lost."""

    AUTO = "Auto"
    POD = "Pod"
    JOB = "Job"


class Gang(StrEnum):
    """The scheduler that schedules all pods of a job or none."""

    AUTO = "Auto"
    NONE = "None"
    VOLCANO = "Volcano"
    COSCHEDULING = "Coscheduling"
    NATIVE = "Native"
    KUEUE = "Kueue"


QUEUEING: Final = (Gang.AUTO, Gang.VOLCANO, Gang.KUEUE)
"""The values of ``gang`` that can have a queue."""


class OnStall(StrEnum):
    """What happens to a job that makes no progress."""

    NONE = "None"
    RESTART = "Restart"
    FAIL = "Fail"


class OnStraggler(StrEnum):
    """What happens to a member that is slower than the others."""

    NONE = "None"
    REPLACE = "Replace"


class OnNaN(StrEnum):
    """What the trainer does when a loss is NaN or infinite."""

    FAIL = "Fail"
    SKIP = "Skip"


class Accelerator(SpecModel):
    """The accelerator of each pod, by a profile of the operator's configuration."""

    profile: str = Field(
        min_length=1,
        max_length=63,
        description="profile is an accelerator profile of the operator, such as nvidia-l4 or tpu-v5e.",
    )
    count: int | None = Field(
        default=None,
        ge=1,
        le=1024,
        description="count is the number of devices of each pod. Defaults for GPUs to what the container asks for, or "
        "1, and for TPUs to the chips of each host in the topology.",
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
        description="template replaces the whole pod template of the job.",
    )
    command: list[str] | None = Field(
        default=None,
        max_length=256,
        description="command replaces that of the trainer container.",
    )
    args: list[str] | None = Field(
        default=None,
        max_length=1024,
        description="args replaces those of the trainer container.",
    )
    env: Annotated[list[JsonObject], PodTemplateFragment("spec", "containers", "env")] | None = Field(
        default=None,
        max_length=256,
        description="env adds variables to the trainer container, or replaces those of the same name.",
    )
    resources: Annotated[JsonObject, PodTemplateFragment("spec", "containers", "resources")] | None = Field(
        default=None,
        description="resources replaces those of the trainer container.",
    )
    restart_policy: RestartPolicy = Field(
        default=RestartPolicy.ON_FAILURE,
        description="restartPolicy decides which errors of this role are retried, within runPolicy.backoffLimit: "
        "OnFailure (all exit codes except those listed as fatal, and errors of which the trainer says that no restart "
        "can help), ExitCode (also not 1, 2, 126, 127, 128, 134 and 139, "
        "unless listed as retryable) or Never. Pods that the infrastructure removes are always replaced.",
    )
    node_selector: dict[str, str] | None = Field(
        default=None,
        description="nodeSelector adds node labels that the pods of this role require.",
    )
    tolerations: Annotated[list[JsonObject], PodTemplateFragment("spec", "tolerations")] | None = Field(
        default=None,
        max_length=64,
        description="tolerations adds tolerations to the pods of this role.",
    )
    accelerator: Accelerator | None = Field(
        default=None,
        description="accelerator replaces that of the job.",
    )


class Elastic(SpecModel):
    """How far the number of workers may change while the job runs."""

    min_replicas: int = Field(
        default=1,
        ge=1,
        le=MAX_REPLICAS,
        description="minReplicas is the smallest number of workers, with which Kueue may start the job.",
    )
    max_replicas: int = Field(ge=1, le=MAX_REPLICAS, description="maxReplicas is the largest number of workers.")
    shrink_after_seconds: int = Field(
        default=30,
        ge=0,
        le=86_400,
        description="shrinkAfterSeconds is how long the others wait for the next pod of a lost worker, before they go "
        "on without it if at least minReplicas workers are left. It joins again when it is ready. Strategy "
        "MultiWorkerMirrored with dtj-launch only.",
    )
    spares: int = Field(
        default=0,
        ge=0,
        le=MAX_REPLICAS,
        description="spares is how many more pods import all and wait. One takes the place of a lost worker at once. "
        "They are no replicas. Strategy MultiWorkerMirrored with dtj-launch only, without gang, queue and topology.",
    )
    on_straggler: OnStraggler = Field(
        default=OnStraggler.NONE,
        description="onStraggler is what also happens to a slow worker: None, or Replace (by a spare, at most once in "
        "10 minutes).",
    )


ExitCode = Annotated[int, Field(ge=1, le=255)]


class ExitCodes(SpecModel):
    """Exit codes whose meaning is not the usual one."""

    retryable: list[ExitCode] = Field(
        default=[],
        max_length=255,
        description="retryable lists exit codes that restartPolicy ExitCode also retries; with 2, also what the "
        "trainer says that no restart can help.",
    )
    fatal: list[ExitCode] = Field(
        default=[],
        max_length=255,
        description="fatal lists exit codes that fail the job at once, under every restart policy.",
    )


class Scheduling(SpecModel):
    """How the pods of a job are scheduled together."""

    gang: Gang = Field(
        default=Gang.AUTO,
        description="gang names the scheduler that starts all pods or none: Kueue, Volcano, Coscheduling (of the "
        "scheduler plugins), Native (PodGroups of Kubernetes 1.37 and later), None or Auto. Auto takes what the "
        "cluster has: with a queue Kueue or Volcano, without one Volcano, Coscheduling or Native.",
    )
    queue: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="queue is the LocalQueue of Kueue or the Queue of Volcano in which the job waits. Defaults to "
        "Kueue's default LocalQueue of the namespace, if there is one.",
    )
    min_available: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REPLICAS,
        description="minAvailable is the number of pods that must be schedulable before any starts. Defaults to all "
        "pods. Kueue admits whole jobs only.",
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
        description="timeoutSeconds is how long, in seconds, pods keep their nodes while they wait for the others. "
        "Only for Coscheduling.",
    )


class OnOutOfMemory(SpecModel):
    """How the memory of a role grows after one of its pods was out of memory."""

    increase_percent: int = Field(
        ge=1,
        le=1000,
        description="increasePercent is how much the memory grows with each such restart, in percent of the previous "
        "amount.",
    )
    max_memory: str = Field(
        min_length=1,
        max_length=32,
        description="maxMemory is the largest amount of memory that a pod gets this way, such as 64Gi.",
    )


class RunPolicy(SpecModel):
    """How a job runs and ends."""

    suspend: bool = Field(
        default=False,
        description="suspend stops the pods and keeps the job for later. The pods save a checkpoint within their grace "
        "period. suspend can change at any time, and templates while it is true.",
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
        description="disruptionLimit is the number of restarts that the infrastructure may cause. Unlimited by "
        "default.",
    )
    restart_scope: RestartScope = Field(
        default=RestartScope.AUTO,
        description="restartScope decides which replicas start again when one is lost: Auto (as the strategy needs), "
        "Pod (only that one; with MultiWorkerMirrored the others need dtj-launch, which restarts them in their pods) "
        "or Job (all).",
    )
    exit_codes: ExitCodes | None = Field(
        default=None, description="exitCodes lists exit codes whose meaning is not the usual one."
    )
    active_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="activeDeadlineSeconds is how long the job may run, in seconds since it started or last resumed. "
        "Then it fails.",
    )
    start_deadline_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="startDeadlineSeconds is how long the pods may take until all are ready, in seconds since the job "
        "was created, resumed or admitted. Then the job fails, and the message gives the reason.",
    )
    evaluation_timeout_seconds: int = Field(
        default=300,
        ge=0,
        le=2_147_483_647,
        description="evaluationTimeoutSeconds is how long, in seconds, a job whose training has succeeded waits for "
        "its evaluator. Then the evaluator is stopped, and the condition Complete says so.",
    )
    stall_timeout_seconds: int | None = Field(
        default=None,
        ge=1,
        le=2_147_483_647,
        description="stallTimeoutSeconds is how long, in seconds, a job whose pods are all ready may report the same "
        "step. Then the condition ProgressStalled becomes True, or Unknown if no pod reported progress. Unlimited by "
        "default.",
    )
    on_stall: OnStall = Field(
        default=OnStall.NONE,
        description="onStall is what also happens to a stalled job: None, Restart (of all replicas, against "
        "backoffLimit) or Fail.",
    )
    on_nan: OnNaN | None = Field(
        default=None,
        alias="onNaN",
        description="onNaN is what the trainer does when a loss is NaN or infinite: Fail (its default) or Skip (skip "
        "the update).",
    )
    on_out_of_memory: OnOutOfMemory | None = Field(
        default=None,
        description="onOutOfMemory gives the pods of a role more memory after one of them is OOMKilled. By default "
        "they get the same again. A job of Kueue waits in its queue for the larger amount.",
    )
    scheduling: Scheduling | None = Field(
        default=None,
        description="scheduling starts the pods together, or puts the job into a queue. By default each pod is "
        "scheduled on its own.",
    )
    ttl_seconds_after_finished: int | None = Field(
        default=None,
        ge=0,
        le=2_147_483_647,
        description="ttlSecondsAfterFinished is how long the job is kept after it ends, in seconds. Forever by "
        "default.",
    )
    managed_by: str | None = Field(
        default=None,
        max_length=63,
        description="managedBy is refused: use spec.managedBy.",
    )
    clean_pod_policy: CleanPodPolicy = Field(
        default=CleanPodPolicy.RUNNING,
        description="cleanPodPolicy decides which pods are deleted when the job ends: Running (those that still run), "
        "All or None. A pod in which only sidecars run is always deleted.",
    )
    success_policy: SuccessPolicy = Field(
        default=SuccessPolicy.CHIEF,
        description="successPolicy decides when the job succeeds: Chief (when the chief succeeds, or worker 0 without "
        "a chief) or AllWorkers (when all workers succeed, and the chief if there is one).",
    )


class TensorBoard(SpecModel):
    """A pod and a Service that show the job's curves."""

    enabled: bool | None = Field(
        default=None, description="enabled is refused: set tensorBoard to {}, or leave tensorBoard out."
    )
    image: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="image is an image that has the command tensorboard. Defaults to the trainer's image. A change "
        "takes effect when the pod is created.",
    )
    resources: Annotated[JsonObject, PodTemplateFragment("spec", "containers", "resources")] | None = Field(
        default=None,
        description="resources are those of TensorBoard's container. By default it requests 50m of a CPU and 256Mi, "
        "and its limit is 2Gi. A change takes effect when the pod is created.",
    )
    ttl_seconds: int = Field(
        default=3600,
        ge=0,
        le=2_147_483_647,
        description="ttlSeconds is how long TensorBoard is kept after the job ends, in seconds. 0 removes it at once.",
    )


class JobSpec(SpecModel):
    """A training job that runs one of TensorFlow's distribution strategies."""

    strategy: Strategy = Field(
        description="strategy is the distribution strategy. It decides the allowed roles, the content of TF_CONFIG and "
        "what success means."
    )
    template: Template | None = Field(
        default=None,
        description="template is the pod template of all roles. The container named trainer, or else the only "
        "container, runs the training. Its image may be left out if the operator has a default image.",
    )
    replica_specs: dict[str, ReplicaSpec | None] = Field(
        max_length=8,
        description="replicaSpecs maps each role to its replicas: chief, worker, ps, evaluator, and for the tf.data "
        "service dispatcher and data-worker.",
    )
    accelerator: Accelerator | None = Field(
        default=None,
        description="accelerator is the accelerator of each pod that trains, unless its role has its own.",
    )
    communication: Communication | None = Field(
        default=None,
        description="communication is how GPUs add up gradients under MultiWorkerMirrored and Mirrored: NCCL, Ring "
        "(without NCCL) or Auto (its default), which is NCCL if all that train have GPUs. Tasks with different numbers "
        "of GPUs are refused.",
    )
    elastic: Elastic | None = Field(
        default=None,
        description="elastic lets the number of workers change while the job runs, when replicaSpecs.worker.replicas "
        "changes (kubectl scale, an autoscaler) or a worker is lost. With dtj-launch the pods of the others stay; else "
        "all replicas start again from the last checkpoint.",
    )
    port: int = Field(
        default=names.DEFAULT_PORT,
        ge=1,
        le=65535,
        description="port is the TCP port of TensorFlow's gRPC server in each pod.",
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="checkpoint configures where and how often the training state is saved."
    )
    export: Export | None = Field(default=None, description="export configures where the trained model is written.")
    tensor_board: TensorBoard | None = Field(
        default=None,
        description="tensorBoard shows the curves of the job while it runs and for some time after. It reads the logs "
        "in the checkpoint directory.",
    )
    run_policy: RunPolicy = Field(default=RunPolicy(), description="runPolicy configures how the job runs and ends.")
    managed_by: str | None = Field(
        default=None,
        min_length=1,
        max_length=63,
        description="managedBy names the controller that runs the job, as a domain and a path. The operator ignores "
        f"the job if the name is not {names.CONTROLLER}. If it is kueue.x-k8s.io/multikueue, the operator queues the "
        "job, and MultiKueue runs a copy in another cluster.",
    )

    def replicas(self, role: Role) -> int:
        """Number of replicas of ``role``; 0 if the role is absent, null or empty."""
        spec = self.replica_specs.get(role)
        return spec.replicas if spec is not None else 0

    def pods(self, role: Role) -> int:
        """The same with the workers that wait as spares."""
        return self.replicas(role) + (self.spares if role is Role.WORKER else 0)

    @property
    def spares(self) -> int:
        """Number of workers that wait for the place of a lost one."""
        return self.elastic.spares if self.elastic is not None else 0

    @property
    def scheduling(self) -> Scheduling:
        """How the pods are scheduled together; the defaults where that is left open."""
        return self.run_policy.scheduling or Scheduling()

    def roles(self) -> tuple[Role, ...]:
        """The roles that take part, in TF_CONFIG's order."""
        return tuple(role for role in Role if self.replicas(role) > 0)
