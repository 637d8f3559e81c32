"""The status of a DistributedTrainingJob: what the operator records, and what it reads back after a restart.

Reading is forgiving (:meth:`JobStatus.from_object` never raises): a status that a newer operator wrote before it was
rolled back, or a person edited, must not stop this one.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from dtj.api.goodput import Goodput
from dtj.api.json import JsonObject, fields_of
from dtj.api.lenient import MAX_INTEGER, LenientModel, PodWords, Time, part_of_message, readable
from dtj.api.names import Condition
from dtj.api.node_losses import MAX_NODES, Corrupt, NodeLosses
from dtj.api.printable import one_line

MAX_CONDITIONS: Final = 32
MAX_CONDITION_MESSAGE: Final = 32_768
"""As in metav1.Condition."""

CONDITION_TYPE: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
CONDITION_REASON: Final = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
"""The formats of metav1.Condition."""


class ConditionStatus(LenientModel):
    """A metav1.Condition. The schema requires what that requires."""

    model_config = ConfigDict(
        json_schema_extra={"required": ["type", "status", "reason", "message", "lastTransitionTime"]}
    )

    type: str = Field(
        max_length=316, description="type is the kind of condition.", json_schema_extra={"pattern": CONDITION_TYPE}
    )
    status: Literal["True", "False", "Unknown"] = Field(description="status is True, False or Unknown.")
    reason: str = Field(
        default="",
        max_length=1024,
        description="reason is a CamelCase word that explains the last transition.",
        json_schema_extra={"minLength": 1, "pattern": CONDITION_REASON},
    )
    message: str = Field(
        default="", max_length=MAX_CONDITION_MESSAGE, description="message describes what happened and what to do."
    )
    last_transition_time: Time = Field(
        default="", description="lastTransitionTime is the time of the last change of status (RFC 3339)."
    )
    observed_generation: int = Field(
        default=0,
        description="observedGeneration is the generation of the job that this condition was computed from.",
        json_schema_extra={"minimum": 0},
    )


class ReplicaStatus(LenientModel):
    """Counts of the pods of one role, in the current attempt."""

    desired: int = Field(default=0, description="desired is the number of pods that this role should have.")
    active: int = Field(
        default=0, description="active is the number of pods that have not ended and are not being deleted."
    )
    ready: int = Field(default=0, description="ready is the number of pods that are ready.")
    terminating: int = Field(
        default=0,
        description="terminating is the number of pods that are being deleted and have not ended. Only a TFJob has it.",
    )
    succeeded: int = Field(default=0, description="succeeded is the number of replicas that completed.")
    failed: int = Field(default=0, description="failed is the number of pods that failed and are not being deleted.")
    completed_indexes: str = Field(
        default="",
        max_length=32768,
        description="completedIndexes lists the replicas that completed in this attempt, such as 0-1,3. They do not "
        "run again in it.",
    )
    memory_increases: int = Field(
        default=0,
        ge=0,
        description="memoryIncreases is how often pods of this role were OOMKilled, and with runPolicy.onOutOfMemory "
        "how often their memory grew.",
    )
    restarts: dict[str, int] = Field(
        default={},
        max_length=10_000,
        description="restarts counts how often a replica was replaced on its own, by index. It is part of the names of "
        "later pods.",
    )
    replaced_indexes: str = Field(
        default="",
        max_length=32768,
        description="replacedIndexes lists the replicas that were replaced on their own in this attempt, such as "
        "0-1,3.",
    )
    restarting: dict[str, Time] = Field(
        default={},
        max_length=10_000,
        description="restarting is when the next pod of a replica that is replaced on its own is due, by index.",
    )


class RestartCounts(LenientModel):
    """Restarts by cause. The operator writes them before it touches any pod."""

    user: int = Field(
        default=0, ge=0, description="user is the number of restarts after errors of the training itself."
    )
    out_of_memory: int = Field(default=0, ge=0, description="outOfMemory is the number of restarts after OOMKilled.")
    preemption: int = Field(
        default=0,
        ge=0,
        description="preemption is the number of restarts of replicas that saved a checkpoint and exited on request.",
    )
    disruption: int = Field(
        default=0, ge=0, description="disruption is the number of restarts that the infrastructure caused."
    )
    total: int = Field(default=0, ge=0, description="total is the sum of all counts.")


_MAX_METRICS, _LONGEST_NAME, _LONGEST_VALUE = 32, 64, 32

_MetricName = Annotated[str, StringConstraints(max_length=_LONGEST_NAME)]
_MetricValue = Annotated[str, StringConstraints(max_length=_LONGEST_VALUE)]


def _that_fit(metrics: object) -> object:
    """The first of a pod's metrics, with the beginnings of their names: one too many does not hide the others."""
    found: dict[str, str] = {}
    for name, value in fields_of(metrics).items():
        if isinstance(name, str) and isinstance(value, str) and len(value) <= _LONGEST_VALUE:
            found.setdefault(name[:_LONGEST_NAME], value)
    return dict(islice(found.items(), _MAX_METRICS))


MAX_STRAGGLERS: Final = 8


def _whole(value: object) -> object:
    """A pod's number, rounded: a slow training is not one that stands still. Other values stay, to be refused."""
    if not isinstance(value, float) or not math.isfinite(value) or value < 0:
        return value
    return 1 if 0 < value < 1 else math.floor(value + 0.5)


_PHASES_IN_WORDS: Final = {"Gate": "waiting for peers"}
"""The text for a phase of the trainer whose name alone is not clear."""


class Progress(PodWords):
    """How far the training is, as its chief or worker 0 says."""

    phase: str = Field(
        default="",
        max_length=32,
        description="phase is what the training does: Gate, Building, Training, Evaluating, Exporting or Done.",
    )
    step: int | None = Field(default=None, ge=0, le=MAX_INTEGER, description="step is the number of completed steps.")
    total_steps: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="totalSteps is the total number of steps."
    )
    epoch: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="epoch is the current epoch. The first epoch is 1."
    )
    percent: int | None = Field(default=None, ge=0, le=100, description="percent is the percentage of completed steps.")
    eta_seconds: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="etaSeconds is the estimated remaining time in seconds."
    )
    examples_per_second: Annotated[int | None, BeforeValidator(_whole)] = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="examplesPerSecond is the recent speed over all replicas, as a whole number. Less than 1 is 1.",
    )
    metrics: Annotated[dict[_MetricName, _MetricValue], BeforeValidator(_that_fit)] = Field(
        default={}, max_length=_MAX_METRICS, description="metrics holds the latest metrics by name, as text."
    )
    last_checkpoint_step: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="lastCheckpointStep is the step of the newest checkpoint that outlives the pods.",
    )
    last_checkpoint_time: Time = Field(
        default="",
        max_length=32,
        description="lastCheckpointTime is when the operator first saw that step there (RFC 3339).",
    )
    restarts_in_place: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="restartsInPlace is how often the launcher restarted the training in this pod.",
    )
    world: int | None = Field(
        default=None,
        ge=0,
        le=MAX_INTEGER,
        description="world is the generation of status.world that the replica trains with. It is there if the launcher "
        "can exchange the members without new pods.",
    )
    stragglers: tuple[Annotated[str, StringConstraints(max_length=63)], ...] = Field(
        default=(),
        max_length=MAX_STRAGGLERS,
        description="stragglers lists up to eight replicas, such as worker-3, whose steps take more than 1.5 times as "
        "long as those of the others. It needs the speed of each replica.",
    )
    transport: str = Field(
        default="",
        max_length=256,
        description="transport is what carries the gradients between GPUs, as NCCL says: NET/IB/GDRDMA, NET/Socket or "
        "NET/Libfabric between machines, P2P or SHM within one.",
    )
    warning: str = Field(
        default="",
        max_length=1024,
        description="warning is what is wrong although the replica trains, such as a script that trains alone in each "
        "of several workers.",
    )
    unchecked: tuple[Annotated[str, StringConstraints(max_length=253)], ...] = Field(
        default=(),
        max_length=8,
        description="unchecked lists up to eight layers, steps or weights that the trainer's --unchecked has accepted, "
        "so that the numbers may differ from those of one device.",
    )
    corrupt: Corrupt | None = Field(
        default=None, description="corrupt is what the trainer found last when it compared the weights of the replicas."
    )
    text: str = Field(
        default="",
        max_length=32,
        description="text is the progress for people: 24%, or step 1200 if the total is unknown, the phase before the "
        "first step, and done when the replica that decides has completed.",
    )
    updated_at: Time = Field(
        default="",
        max_length=32,
        description="updatedAt is when the training last advanced (RFC 3339).",
    )

    @classmethod
    def from_object(cls, raw: object) -> Progress | None:
        """Read the answer of a pod, field by field. A field that is not valid counts as missing; None if all do."""
        found = readable(cls, fields_of(raw))
        for ours in ("stragglers", "text", "updatedAt", "lastCheckpointTime"):
            found.pop(ours, None)
        return cls.model_validate(found) if found else None

    @classmethod
    def from_message(cls, message: str) -> Progress | None:
        """Read the last report in the termination message of a completed pod; None if it holds none."""
        return cls.from_object(part_of_message(message, "progress"))

    @property
    def reported(self) -> bool:
        """Whether a pod has reported any of it."""
        return self.model_copy(update={"text": ""}) != Progress()

    def in_words(self) -> str:
        """What :attr:`text` should be."""
        if self.percent is not None:
            return f"{self.percent}%"
        if self.step is not None:
            return f"step {self.step}"
        known = _PHASES_IN_WORDS.get(self.phase)
        return known or (self.phase.lower() if self.phase.isalnum() and self.phase.isascii() else "running")

    def advanced(self, since: Progress) -> bool:
        """Whether the training has moved, or began again: rates and estimates change also while it stands still."""
        return self.place != since.place

    @property
    def place(self) -> tuple[object, ...]:
        return self.phase, self.step, self.epoch, self.last_checkpoint_step, self.restarts_in_place


def _require_printable(value: str) -> str:
    """The text as it is: a path with a character left out would be another path."""
    if one_line(value) != value:
        raise ValueError("holds characters that are not printable")
    return value


_Printable = AfterValidator(_require_printable)


class ExportedModel(LenientModel):
    """The model that a job has exported, as the pod that did it says."""

    path: Annotated[str, _Printable] = Field(
        default="", max_length=4096, description="path is the directory of this version of the model, as pods see it."
    )
    formats: tuple[Annotated[str, StringConstraints(max_length=32), _Printable], ...] = Field(
        default=(), max_length=16, description="formats lists the available formats: SavedModel, TFLite, TensorFlowJS."
    )
    size: int | None = Field(default=None, ge=0, le=2**53, description="size is the total size of its files, in bytes.")
    digest: Annotated[str, _Printable] = Field(
        default="",
        max_length=128,
        description="digest identifies the model. docs/export.md has the command that computes it.",
    )

    @classmethod
    def from_message(cls, message: str) -> ExportedModel | None:
        """Read the termination message of a completed pod, field by field; None if it describes no model."""
        found = readable(cls, fields_of(part_of_message(message, "export")))
        return cls.model_validate(found) if found.get("path") else None


class RootCause(PodWords):
    """The first failure of the job."""

    kind: str = Field(
        default="", alias="class", description="class is what kind of end it was: UserError, OutOfMemory, Disruption, …"
    )
    role: str = Field(default="", description="role is the task type of the replica that failed first.")
    index: int = Field(default=0, description="index is its task index.")
    pod: str = Field(default="", description="pod is its pod.")
    node: str = Field(default="", description="node is the node that it ran on.")
    exit_code: int | None = Field(default=None, description="exitCode is the exit code of its trainer container.")
    signal: int | None = Field(default=None, description="signal is the signal that ended it, if one did.")
    reason: str = Field(default="", description="reason is the kubelet's word for the end, such as OOMKilled.")
    message: str = Field(
        default="",
        max_length=32768,
        description="message is the line that names the error, or else the last line that the pod wrote.",
    )
    log_tail: str = Field(
        default="", max_length=32768, description="logTail is the last lines of the pod's log, message included."
    )
    hint: str = Field(default="", max_length=1024, description="hint is the remedy, if the error is known.")

    @property
    def hostname(self) -> str:
        """Role and index of the replica: ``worker-1``."""
        return f"{self.role}-{self.index}"


class WorldStatus(LenientModel):
    """The replicas of an elastic job that train together."""

    generation: int = Field(
        default=0, ge=0, le=MAX_INTEGER, description="generation grows with each change of the members."
    )
    members: dict[str, Annotated[str, StringConstraints(max_length=32768)]] = Field(
        default={}, max_length=8, description="members lists the indexes of the members of each role, such as 0-1,3."
    )


class PendingRestart(LenientModel):
    """A restart of all replicas that waits for its time: it takes place also when the pod that failed is deleted."""

    not_before: Time = Field(default="", description="notBefore is when it may begin (RFC 3339).")
    message: str = Field(default="", description="message is what ended.")
    kind: str = Field(default="", alias="class", description="class is what kind of end it was.")
    role: str = Field(default="", description="role is its task type.")
    pod: str = Field(default="", description="pod is its pod.")


class JobStatus(LenientModel):
    """What the operator knows of a job."""

    observed_generation: int = Field(
        default=0, description="observedGeneration is the generation of the spec that this status describes."
    )
    state: str = Field(
        default="",
        description="state is the job in one word for people: Pending, Starting, Running, Restarting, Suspended, "
        "Succeeded or Failed. Programs read the conditions.",
    )
    reason: str = Field(default="", description="reason is why the job is in this state, in one word.")
    ready: str = Field(default="", description="ready is the number of ready pods out of all pods, such as 3/4.")
    conditions: tuple[ConditionStatus, ...] = Field(
        default=(),
        max_length=MAX_CONDITIONS,
        description="conditions are those of the operator, and of other types, which it leaves unchanged.",
    )
    start_time: Time | None = Field(
        default=None,
        description="startTime is when the pods of this run were first created (RFC 3339), empty while the job is "
        "suspended.",
    )
    ready_time: Time | None = Field(
        default=None, description="readyTime is when all pods of this run were ready for the first time (RFC 3339)."
    )
    completion_time: Time | None = Field(
        default=None, description="completionTime is when the job succeeded or failed (RFC 3339)."
    )
    attempt: int = Field(
        default=0, description="attempt is the number of the current attempt of the whole job, from 1."
    )
    first_attempt: int = Field(
        default=0,
        ge=0,
        description="firstAttempt is the attempt from which pods have the first names again. Only a TFJob has it, "
        "after a suspension.",
    )
    last_restart_time: Time | None = Field(
        default=None, description="lastRestartTime is when the latest attempt after the first one began (RFC 3339)."
    )
    ready_attempt: int = Field(
        default=0, ge=0, description="readyAttempt is the latest attempt whose pods were all ready."
    )
    pending_restart: PendingRestart | None = Field(
        default=None, description="pendingRestart is a restart of all replicas that waits."
    )
    restarts: RestartCounts = Field(
        default=RestartCounts(),
        description="restarts counts restarts by cause, over the whole life of the job.",
    )
    restarts_without_evidence: int = Field(
        default=0,
        ge=0,
        description="restartsWithoutEvidence is the number of restarts in a row that the pods blame on the "
        "infrastructure, while no pod was lost and no new step was completed. After three of them the next one counts "
        "against backoffLimit.",
    )
    furthest_step: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="furthestStep is the largest step known at a restart."
    )
    replica_statuses: dict[str, ReplicaStatus] = Field(default={}, description="replicaStatuses counts pods by role.")
    world: WorldStatus | None = Field(
        default=None,
        description="world is the replicas of an elastic job that train together, if they are not the ones that this "
        "attempt began with. Pods of others wait until they can join.",
    )
    straggler_replaced_time: Time | None = Field(
        default=None, description="stragglerReplacedTime is when a spare last took a slow worker's place (RFC 3339)."
    )
    node_losses: tuple[NodeLosses, ...] = Field(
        default=(),
        max_length=MAX_NODES,
        description="nodeLosses counts the losses that were faults of a node, until an hour after the latest one. New "
        "pods avoid a node that has two.",
    )
    progress: Progress | None = Field(
        default=None, description="progress is how far the training is, if its image publishes it."
    )
    goodput: Goodput | None = Field(
        default=None, description="goodput is what the time of the job went to. A TFJob has none."
    )
    root_cause: RootCause | None = Field(default=None, description="rootCause is the first failure, if there was one.")
    export: ExportedModel | None = Field(
        default=None, description="export is the model that the job exported, if its image reports it."
    )
    gang: str = Field(
        default="",
        description="gang is what schedules the pods of this run together: a value of runPolicy.scheduling.gang.",
    )
    queue: str = Field(
        default="",
        max_length=253,
        description="queue is Kueue's default LocalQueue, which the operator chose before it created the first pods, "
        "because the job names no queue.",
    )
    selector: str = Field(default="", description="selector selects the worker pods for the scale subresource.")

    @classmethod
    def from_object(cls, raw: object) -> JobStatus:
        """Read a stored status, field by field. A field that cannot be read counts as missing."""
        if not isinstance(raw, dict):
            return cls()
        try:
            return cls.model_validate(raw)
        except ValidationError:
            return cls.model_validate(
                readable(cls, raw, items={"conditions": ConditionStatus, "node_losses": NodeLosses})
            )

    def condition(self, kind: Condition) -> ConditionStatus | None:
        """The condition of this type, or None if it was never set."""
        return next((c for c in self.conditions if c.type == kind), None)

    def when_true(self, kind: Condition) -> ConditionStatus | None:
        """The condition of this type if it is True, else None."""
        found = self.condition(kind)
        return found if found is not None and found.status == "True" else None

    def is_true(self, kind: Condition) -> bool:
        """Whether the condition of this type is True."""
        return self.when_true(kind) is not None

    @property
    def terminal(self) -> bool:
        """Whether the job has ended; such a job never starts again."""
        return self.is_true(Condition.COMPLETE) or self.is_true(Condition.FAILED)

    def to_object(self) -> JsonObject:
        """The JSON to store; fields without a value are left out, but for a 0 that a person looks for."""
        body: JsonObject = self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
        if self.conditions:
            body["conditions"] = [condition.model_dump(mode="json", by_alias=True) for condition in self.conditions]
        if self.attempt:
            body.setdefault("restarts", {"total": 0})
        return body
