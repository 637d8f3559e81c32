"""What the hours of a job bought: the ledger in its status, and what a trainer answers of its container's time.

A job is in exactly one state at a time, so the seconds of all states add up to its lifetime. Only a step that counts is
``training``; what a restart makes necessary once more is ``repeated``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import floor
from typing import Annotated, Final

from pydantic import Field

from dtj.api.json import fields_of
from dtj.api.lenient import MAX_INTEGER, LenientModel, Time, part_of_message, readable

_MAX_SECONDS: Final = 10**11
"""Some 3,000 years."""

_Seconds = Annotated[int, Field(ge=0, le=_MAX_SECONDS)]
_Steps = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class Use(StrEnum):
    """What a second of a job's life went to: the names in ``status.goodput.seconds``."""

    QUEUED = "queued"
    STARTING = "starting"
    TRAINING = "training"
    INPUT = "input"
    CHECKPOINTING = "checkpointing"
    VALIDATING = "validating"
    REPEATED = "repeated"
    RECOVERING = "recovering"
    STALLED = "stalled"
    SUSPENDED = "suspended"
    OTHER = "other"


TOLD: Final = (
    Use.CHECKPOINTING,
    Use.VALIDATING,
    Use.INPUT,
    Use.REPEATED,
    Use.TRAINING,
    Use.RECOVERING,
    Use.STARTING,
)
"""What a trainer measures; the operator knows the rest. In this order its seconds count where they are more than have
passed: the start of a container passes before its pods are ready, and counts then already."""

HOLDS_NOTHING: Final = (Use.QUEUED, Use.SUSPENDED)
"""While a job holds no nodes: this time counts neither for nor against it."""


class Seconds(LenientModel):
    """Whole seconds by what they went to."""

    queued: _Seconds = Field(default=0, description="queued is the time before the job could have pods.")
    starting: _Seconds = Field(
        default=0, description="starting is the time from its pods' creation until the training begins."
    )
    training: _Seconds = Field(default=0, description="training is the time of steps, each of which counts once.")
    input: _Seconds = Field(
        default=0,
        description="input is the time in which the training waited for data, where its image says that. The trainer's "
        "does not: it is in training.",
    )
    checkpointing: _Seconds = Field(
        default=0, description="checkpointing is the time in which the training waited for its checkpoints."
    )
    validating: _Seconds = Field(default=0, description="validating is the time of validations during the training.")
    repeated: _Seconds = Field(default=0, description="repeated is the time of steps that were taken again.")
    recovering: _Seconds = Field(
        default=0, description="recovering is the time from the loss of a replica until the training goes on."
    )
    stalled: _Seconds = Field(default=0, description="stalled is the time in which ProgressStalled was True.")
    suspended: _Seconds = Field(default=0, description="suspended is the time in which the job was suspended.")
    other: _Seconds = Field(
        default=0, description="other is the rest: exports, the end, and what no pod told, as one that was lost."
    )

    @classmethod
    def of(cls, seconds: Mapping[Use, int]) -> Seconds:
        """These seconds, at most as many as a status may hold; what has none is 0."""
        return cls.model_validate({str(use): min(number, _MAX_SECONDS) for use, number in seconds.items()})

    def by_use(self) -> dict[Use, int]:
        """All of them, in their order."""
        return {use: getattr(self, use) for use in Use}

    @property
    def total(self) -> int:
        """The lifetime that they add up to."""
        return sum(self.by_use().values())

    @property
    def held(self) -> int:
        """Those in which the job could have held nodes."""
        return sum(number for use, number in self.by_use().items() if use not in HOLDS_NOTHING)


class Sums(LenientModel):
    """What a trainer answers of the time since its container began, in whole seconds; only of :data:`TOLD`."""

    seconds: Seconds = Field(
        default=Seconds(), description="seconds is what of its sums is counted. They begin at 0 in each container."
    )
    first_step: _Steps | None = Field(default=None, description="firstStep is the step that its container began at.")
    repeated_steps: _Steps = Field(default=0, description="repeatedSteps is how many steps it has taken again.")

    @classmethod
    def from_object(cls, raw: object) -> Sums | None:
        """Read the answer of a pod, field by field. What is not valid counts as missing; None without any second."""
        answer = fields_of(raw)
        told = {use: _whole(number) for use, number in fields_of(answer.get("seconds")).items() if use in TOLD}
        if not any(told.values()):
            return None
        return cls.model_validate(readable(cls, {**answer, "seconds": told}))

    @classmethod
    def from_message(cls, message: str) -> Sums | None:
        """Read the last report in the termination message of a pod; None if it holds none."""
        return cls.from_object(part_of_message(message, "progress"))


class Counted(Sums):
    """How far the answers of the trainer are counted: the next one counts from there on."""

    pod: str = Field(default="", max_length=253, description="pod is the pod that answered.")
    at: Time = Field(default="", max_length=32, description="at is when its answer was counted (RFC 3339).")
    step: _Steps | None = Field(default=None, description="step is the last step that is known.")


class Goodput(LenientModel):
    """What the time of a job went to. It is written along with other changes of the status."""

    percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="percent is the share of training in all seconds but those queued and suspended. It is there once "
        "the job has trained.",
    )
    steps: _Steps = Field(default=0, description="steps is the number of steps taken, each of which counts once.")
    repeated_steps: _Steps = Field(default=0, description="repeatedSteps is the number of steps that were taken again.")
    seconds: Seconds = Field(
        default=Seconds(), description="seconds is the lifetime of the job until updatedAt, by what it went to."
    )
    covered_seconds: _Seconds = Field(
        default=0, description="coveredSeconds is how many training seconds a checkpoint covers. It never falls."
    )
    counted: Counted | None = Field(
        default=None, description="counted is how far the answers of the trainer are counted."
    )
    updated_at: Time = Field(default="", max_length=32, description="updatedAt is when this was computed (RFC 3339).")


def _whole(value: object) -> int:
    """A pod's number in whole seconds: what is left of one is counted with the next answer. 0 if it is none."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= _MAX_SECONDS:
        return 0
    return floor(value)
