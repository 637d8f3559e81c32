"""What a job records of nodes that lost its pods, and what a trainer says of weights that are wrong."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BeforeValidator, Field, StringConstraints

from dtj.api.json import fields_of
from dtj.api.lenient import MAX_INTEGER, LenientModel, PodWords, Time, part_of_message, readable
from dtj.api.names import DNS_SUBDOMAIN

MAX_NODES: Final = 16
_HostName = Annotated[str, StringConstraints(max_length=63)]


class NodeLosses(LenientModel):
    """How often one node lost this job's pods."""

    node: str = Field(default="", max_length=253, pattern=DNS_SUBDOMAIN, description="node is the name of the node.")
    count: int = Field(default=0, ge=0, description="count is the number of losses.")
    last_time: Time = Field(default="", max_length=32, description="lastTime is the time of the latest (RFC 3339).")


MAX_WORKERS_NAMED: Final = 64
_MAX_VARIABLE: Final = 256


def _cut_to(most: int) -> BeforeValidator:
    """Keeps the beginning of a long list or text: of a large job, hundreds of workers may be suspects."""
    return BeforeValidator(lambda value: value[:most] if isinstance(value, list | tuple | str) else value)


class Corrupt(PodWords):
    """Replicas that have to hold the same bits did not, as the trainer found."""

    workers: Annotated[tuple[_HostName, ...], _cut_to(MAX_WORKERS_NAMED)] = Field(
        default=(),
        max_length=MAX_WORKERS_NAMED,
        description="workers lists the first 64 workers that were wrong. If there are several, any of them may be.",
    )
    step: int | None = Field(default=None, ge=0, le=MAX_INTEGER, description="step is the step at which it was found.")
    start: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="start is the number of the restart in place that followed."
    )
    attempt: int | None = Field(
        default=None, ge=0, le=MAX_INTEGER, description="attempt is the attempt of the job in which it was found."
    )
    variable: Annotated[str, _cut_to(_MAX_VARIABLE)] = Field(
        default="", max_length=_MAX_VARIABLE, description="variable is the first variable that differed."
    )

    @classmethod
    def from_message(cls, message: str) -> Corrupt | None:
        """Read the last line of a termination message; None if it says nothing of the kind."""
        line = message.rstrip().rpartition("\n")[2]
        found = readable(cls, fields_of(part_of_message(line, "corrupt"))) if line.startswith("{") else {}
        return cls.model_validate(found) if found else None
