"""The rules of ``spec.runPolicy`` and ``spec.managedBy``."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, dig, items_of
from dtj.api.names import DOMAIN_PATH, matches
from dtj.api.rule import RUN_POLICY, SCHEDULING, SPEC, Rule, cel_count, count
from dtj.api.spec import QUEUEING, Gang, OnNaN, OnStall, Role, Strategy


def _numbers(codes: JsonObject, field: str) -> list[int]:
    return [code for code in items_of(codes.get(field)) if isinstance(code, int)]


RUN_POLICY_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=((*RUN_POLICY, "exitCodes"),),
        cel="!has(self.retryable) || !has(self.fatal) || self.retryable.all(c, !(c in self.fatal))",
        message="an exit code cannot be both retryable and fatal: remove it from one of them",
        holds=lambda codes: not set(_numbers(codes, "retryable")) & set(_numbers(codes, "fatal")),
    ),
    Rule(
        at=(SPEC,),
        cel=f"!has(self.runPolicy.onNaN) || self.runPolicy.onNaN == '{OnNaN.FAIL}' || "
        f"self.strategy != '{Strategy.PARAMETER_SERVER}'",
        message=f"strategy {Strategy.PARAMETER_SERVER} can only fail at a loss that is not finite: set onNaN to Fail, "
        "or remove it",
        holds=lambda spec: (
            dig(spec, "runPolicy", "onNaN") in (None, OnNaN.FAIL) or spec.get("strategy") != Strategy.PARAMETER_SERVER
        ),
        field="runPolicy.onNaN",
    ),
    Rule(
        at=(SCHEDULING,),
        cel=f"!has(self.queue) || self.gang in [{', '.join(repr(str(gang)) for gang in QUEUEING)}]",
        message="only Kueue and Volcano have queues: remove queue, or change gang",
        holds=lambda scheduling: "queue" not in scheduling or scheduling.get("gang", Gang.AUTO) in QUEUEING,
        field="queue",
    ),
    Rule(
        at=(SPEC,),
        cel="!has(self.runPolicy.scheduling) || !has(self.runPolicy.scheduling.minAvailable) || "
        f"self.runPolicy.scheduling.minAvailable <= {cel_count(*Role)}",
        message="minAvailable must not be larger than the number of the job's pods: lower it, or remove it",
        holds=lambda spec: (
            not isinstance(least := dig(spec, "runPolicy", "scheduling", "minAvailable"), int)
            or least <= count(spec, *Role)
        ),
        field="runPolicy",
    ),
    Rule(
        at=(RUN_POLICY,),
        cel=f"!has(self.onStall) || self.onStall == '{OnStall.NONE}' || has(self.stallTimeoutSeconds)",
        message="onStall needs a time limit: set stallTimeoutSeconds",
        holds=lambda policy: policy.get("onStall", OnStall.NONE) == OnStall.NONE or "stallTimeoutSeconds" in policy,
        field="onStall",
    ),
)


MANAGED_BY_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel=f'!has(self.managedBy) || self.managedBy.matches("{DOMAIN_PATH}")',
        message=f"managedBy must name a controller as a domain and a path, such as {names.CONTROLLER}: "
        "correct it, or remove it",
        holds=lambda spec: spec.get("managedBy") is None or matches(DOMAIN_PATH, spec["managedBy"]),
        field="managedBy",
    ),
    Rule(
        at=(RUN_POLICY,),
        cel="!has(self.managedBy)",
        message="managedBy has moved: set spec.managedBy, and remove runPolicy.managedBy",
        holds=lambda policy: policy.get("managedBy") is None,
        field="managedBy",
    ),
    Rule(
        at=(SPEC,),
        # Optional types would cost more than the API server allows.
        cel="(has(self.managedBy) ? self.managedBy : '') == (has(oldSelf.managedBy) ? oldSelf.managedBy : '')",
        message="managedBy cannot be changed: delete the job and create it again",
        holds=None,
        field="managedBy",
    ),
)
