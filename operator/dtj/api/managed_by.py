"""Which controller runs a job: ``spec.managedBy``, in the place where MultiKueue reads and removes it."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject
from dtj.api.patterns import matches
from dtj.api.rule import RUN_POLICY, SPEC, Rule

_CONTROLLER: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/._~%!$&'()*+,;=:-]+$"
"""A domain and a path, as ``managedBy`` of a batch Job must be (kubernetes, IsDomainPrefixedPath)."""


def other_controller(spec: JsonObject) -> str | None:
    """The controller that runs a job with this spec in place of our operator; None if our operator runs it."""
    given = spec.get("managedBy")
    return None if given in (None, names.CONTROLLER) else str(given)


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
