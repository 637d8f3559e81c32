"""Which controller runs a job: ``spec.managedBy``, in the place where MultiKueue reads and removes it."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, dig
from dtj.api.patterns import matches
from dtj.api.rule import RUN_POLICY, SPEC, Rule

_CONTROLLER: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/._~%!$&'()*+,;=:-]+$"
"""A domain and a path, as ``managedBy`` of a batch Job must be (kubernetes, IsDomainPrefixedPath)."""


def other_controller(spec: JsonObject) -> str | None:
    """The controller that runs a job with this spec in place of our operator; None if our operator runs it.

    A job that was stored with the old field, ``runPolicy.managedBy``, is obeyed. If the two fields differ, the operator
    leaves the job alone: two controllers of one job are worse than none.
    """
    for given in (spec.get("managedBy"), dig(spec, "runPolicy", "managedBy")):
        if given not in (None, names.CONTROLLER):
            return str(given)
    return None


def _cel_manager(spec: str) -> str:
    """The value of the field or of the old one; empty if there is neither."""
    old = f"has({spec}.runPolicy.managedBy) ? {spec}.runPolicy.managedBy : ''"
    return f"(has({spec}.managedBy) ? {spec}.managedBy : {old})"


MANAGED_BY_RULES: Final[tuple[Rule, ...]] = (
    Rule(
        at=(SPEC,),
        cel=f'!has(self.managedBy) || self.managedBy.matches("{_CONTROLLER}")',
        message=f"managedBy must name a controller as a domain and a path, such as {names.CONTROLLER}: "
        "correct it, or remove it",
        holds=lambda spec: spec.get("managedBy") is None or matches(_CONTROLLER, spec["managedBy"]),
        field="managedBy",
    ),
    Rule(
        at=(RUN_POLICY,),
        cel="!has(self.managedBy) || oldSelf.?managedBy.hasValue()",
        message="managedBy has moved: set spec.managedBy, and remove runPolicy.managedBy",
        holds=lambda policy: policy.get("managedBy") is None,
        field="managedBy",
        stored_jobs_are_exempt=True,
    ),
    Rule(
        at=(SPEC,),
        # The value may move from the old field to the new one.
        cel=f"{_cel_manager('self')} == {_cel_manager('oldSelf')}",
        message="managedBy cannot be changed: delete the job and create it again",
        holds=None,
        field="managedBy",
    ),
)
