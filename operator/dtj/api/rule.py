"""What a rule is, and the places in a job's schema to which rules are attached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dtj.api.json import JsonObject

Path = tuple[str, ...]
ANY_KEY: Final = "*"

JOB: Final[Path] = ()
SPEC: Final[Path] = ("spec",)
ROLES: Final[Path] = (*SPEC, "replicaSpecs")
ROLE: Final[Path] = (*ROLES, ANY_KEY)
TEMPLATES: Final[tuple[Path, ...]] = ((*SPEC, "template"), (*ROLE, "template"))
ACCELERATORS: Final[tuple[Path, ...]] = ((*SPEC, "accelerator"), (*ROLE, "accelerator"))
CHECKPOINT: Final[Path] = (*SPEC, "checkpoint")
CLAIM: Final[Path] = (*CHECKPOINT, "claimTemplate")
ELASTICITY: Final[Path] = (*SPEC, "elastic")
RUN_POLICY: Final[Path] = (*SPEC, "runPolicy")
TENSORBOARD: Final[Path] = (*SPEC, "tensorBoard")
SCHEDULING: Final[Path] = (*RUN_POLICY, "scheduling")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One relation.

    ``at`` are the places in the schema where it applies; ``cel`` and ``holds`` see the value there as ``self``.
    ``field`` is the field below that place which the message is about (CEL's ``fieldPath``). A rule whose
    ``holds`` is None compares with the stored object, which only the API server knows. ``names`` and ``message_cel``
    give a message that names what is wrong, where ``message`` alone cannot.
    """

    at: tuple[Path, ...]
    cel: str
    message: str
    holds: Callable[[JsonObject], bool] | None
    field: str = ""
    names: Callable[[JsonObject], str] | None = None
    message_cel: str = ""

    def words(self, value: JsonObject) -> str:
        """The message about ``value``, which breaks this rule."""
        return self.names(value) if self.names is not None else self.message
