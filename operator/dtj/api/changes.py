"""What may change once a job exists. Only the API server can enforce it: it alone knows the stored object."""

from __future__ import annotations

from typing import Final

from dtj.api.rule import ROLE, RUN_POLICY, SPEC, Path, Rule
from dtj.api.spec import Role


def _cel_same(field: str, here: str = "self", there: str = "oldSelf") -> str:
    """That a field, which may be missing, is as it was.

    The API server evaluates this at each write of a status, too, and pays for each look at a field with a copy of the
    schemas of all its neighbours: none is looked at twice.
    """
    return f"(has({here}.{field}) ? has({there}.{field}) && {here}.{field} == {there}.{field} : !has({there}.{field}))"


_WHILE_SUSPENDED: Final = "oldSelf.runPolicy.suspend"
_TEMPLATE_MESSAGE: Final = "cannot be changed while the job runs: suspend it first, or delete it and create it anew"


def _immutable(field: str, *, at: Path = SPEC) -> Rule:
    """A field that is fixed once the job exists."""
    return Rule(
        at=(at,),
        cel=_cel_same(field),
        message=f"{field} cannot be changed: delete the job and create it anew",
        holds=None,
        field=field,
    )


CHANGES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel="size(self.replicaSpecs) == size(oldSelf.replicaSpecs) && "
        "self.replicaSpecs.all(r, r in oldSelf.replicaSpecs)",
        message="roles cannot be added or removed: delete the job and create it anew",
        holds=None,
        field="replicaSpecs",
    ),
    Rule(
        at=(SPEC,),
        cel="self.replicaSpecs.all(r, !(r in oldSelf.replicaSpecs) || self.replicaSpecs[r] == null || "
        "oldSelf.replicaSpecs[r] == null || self.replicaSpecs[r].replicas == oldSelf.replicaSpecs[r].replicas || "
        f"(r == '{Role.WORKER}' && has(self.elastic)))",
        message="only the workers of a job with elastic can be scaled: delete the job, and create it anew with "
        "the new numbers, or with elastic",
        holds=None,
        field="replicaSpecs",
    ),
    *(
        Rule(
            at=(SPEC,),
            cel=f"{_WHILE_SUSPENDED} || self.replicaSpecs.all(r, !(r in oldSelf.replicaSpecs) || "
            "self.replicaSpecs[r] == null || oldSelf.replicaSpecs[r] == null || "
            f"({_cel_same(field, 'self.replicaSpecs[r]', 'oldSelf.replicaSpecs[r]')}))",
            message=f"{field} of a role {_TEMPLATE_MESSAGE}",
            holds=None,
            field="replicaSpecs",
        )
        for field in ("template", "command", "args", "env", "resources", "nodeSelector", "tolerations", "accelerator")
    ),
    *(
        Rule(
            at=(SPEC,),
            cel=f"{_WHILE_SUSPENDED} || ({_cel_same(field)})",
            message=f"{field} {_TEMPLATE_MESSAGE}",
            holds=None,
            field=field,
        )
        for field in ("template", "accelerator")
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
            "onOutOfMemory",
            "managedBy",
        )
    ),
)
