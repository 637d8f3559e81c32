"""What may change once a job exists. Only the API server can enforce it: it alone knows the stored object."""

from __future__ import annotations

from typing import Final

from dtj.api.rule import JOB, ROLE, RUN_POLICY, SPEC, Path, Rule
from dtj.api.spec import Role


def _cel_same(field: str, here: str = "self", there: str = "oldSelf") -> str:
    """That a field, which may be missing, is as it was.

    The API server evaluates this at each write of a status, too, and pays for each look at a field with a copy of the
    schemas of all its neighbours: none is looked at twice.
    """
    return f"(has({here}.{field}) ? has({there}.{field}) && {here}.{field} == {there}.{field} : !has({there}.{field}))"


_MAKES_PODS: Final = ("template", "accelerator", "communication")
"""The fields of a spec by which pods are made."""

_MAKES_PODS_OF_ROLE: Final = (
    "template",
    "command",
    "args",
    "env",
    "resources",
    "nodeSelector",
    "tolerations",
    "accelerator",
)
"""Those of a role."""


def _cel_makes_same_pods() -> str:
    here, there = "self.spec.replicaSpecs[r]", "oldSelf.spec.replicaSpecs[r]"
    of_role = " && ".join(_cel_same(field, here, there) for field in _MAKES_PODS_OF_ROLE)
    of_job = " && ".join(_cel_same(field, "self.spec", "oldSelf.spec") for field in _MAKES_PODS)
    return (
        f"{of_job} && self.spec.replicaSpecs.all(r, !(r in oldSelf.spec.replicaSpecs) || {here} == null || "
        f"{there} == null || ({of_role}))"
    )


_ENDED: Final = "has(oldSelf.status) && has(oldSelf.status.completionTime)"
_CANNOT_BEGIN: Final = (
    "has(oldSelf.status) && !has(oldSelf.status.startTime) && has(oldSelf.status.conditions) && "
    "oldSelf.status.conditions.exists(c, c.type == 'Invalid' && c.status == 'True')"
)
_NOT_WHILE_IT_RUNS: Final = f"oldSelf.spec.runPolicy.suspend || ({_ENDED}) || ({_CANNOT_BEGIN})"
"""Where these fields may change: in a suspended job, and in one that has no pods because its manifest is wrong. One
that has ended is the matter of another rule."""

_TEMPLATE_MESSAGE: Final = (
    "cannot be changed while the job runs: suspend the job first, or delete it and create it again"
)
_NOT_STOPPED: Final = (
    "fields that define the pods cannot be changed before the job has stopped: wait until the condition Suspended is "
    "True, then change them"
)
_IS_OVER: Final = "fields that define the pods cannot be changed: the job has ended: delete it and create it again"


def _immutable(field: str, *, at: Path = SPEC) -> Rule:
    """A field that is fixed once the job exists."""
    return Rule(
        at=(at,),
        cel=_cel_same(field),
        message=f"{field} cannot be changed: delete the job and create it again",
        holds=None,
        field=field,
    )


CHANGES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel="size(self.replicaSpecs) == size(oldSelf.replicaSpecs) && "
        "self.replicaSpecs.all(r, r in oldSelf.replicaSpecs)",
        message="roles cannot be added or removed: delete the job and create it again",
        holds=None,
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel="self.replicaSpecs.all(r, !(r in oldSelf.replicaSpecs) || self.replicaSpecs[r] == null || "
        "oldSelf.replicaSpecs[r] == null || self.replicaSpecs[r].replicas == oldSelf.replicaSpecs[r].replicas || "
        f"(r == '{Role.WORKER}' && has(self.elastic)))",
        message="only the workers of an elastic job can be scaled: delete the job, and create it again "
        "with the new numbers or with elastic",
        holds=None,
        field="replicaSpecs",
    ),
    *(
        Rule(
            at=(JOB,),
            cel="self.spec.replicaSpecs.all(r, !(r in oldSelf.spec.replicaSpecs) || "
            "self.spec.replicaSpecs[r] == null || oldSelf.spec.replicaSpecs[r] == null || "
            f"({_cel_same(field, 'self.spec.replicaSpecs[r]', 'oldSelf.spec.replicaSpecs[r]')})) || "
            f"{_NOT_WHILE_IT_RUNS}",
            message=f"{field} of a role {_TEMPLATE_MESSAGE}",
            holds=None,
            field="spec.replicaSpecs",
        )
        for field in _MAKES_PODS_OF_ROLE
    ),
    *(
        Rule(
            at=(JOB,),
            cel=f"{_cel_same(field, 'self.spec', 'oldSelf.spec')} || {_NOT_WHILE_IT_RUNS}",
            message=f"{field} {_TEMPLATE_MESSAGE}",
            holds=None,
            field=f"spec.{field}",
        )
        for field in _MAKES_PODS
    ),
    Rule(
        at=(JOB,),
        # The operator may not have seen yet that the job is suspended. It takes startTime away when it does: pods are
        # made with a new number from then on. (A batch Job has the same rule.)
        # A job that has ended makes no pods any more, and never becomes Suspended.
        cel="!has(oldSelf.status) || !has(oldSelf.status.completionTime) && "
        "(!oldSelf.spec.runPolicy.suspend || !has(oldSelf.status.startTime)) || "
        f"({_cel_makes_same_pods()})",
        message=f"{_NOT_STOPPED}; if it has ended, delete it and create it again",
        message_cel=f"has(oldSelf.status.completionTime) ? '{_IS_OVER}' : '{_NOT_STOPPED}'",
        holds=None,
        field="spec",
    ),
    _immutable("restartPolicy", at=ROLE),
    *(_immutable(field) for field in ("strategy", "elastic", "port", "checkpoint", "export")),
    *(
        _immutable(field, at=RUN_POLICY)
        for field in (
            "cleanPodPolicy",
            "successPolicy",
            "backoffLimit",
            "disruptionLimit",
            "restartScope",
            "exitCodes",
            "scheduling",
            "onNaN",
            "onOutOfMemory",
        )
    ),
)
