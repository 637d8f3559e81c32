"""The rules of TFJobs as a ValidatingAdmissionPolicy, which the API server evaluates without a webhook server, and on
Kubeflow's CRD, too. The chart gives it a name and binds it."""

from __future__ import annotations

import json
import re
from typing import Final

from pydantic import JsonValue

from dtj.api.json import JsonObject
from dtj.api.rule import ANY_KEY, JOB, RUN_POLICY, SPEC, Path, Rule
from dtj.api.tfjob import names
from dtj.api.tfjob.rules import GANG, RULES, TF_ROLE, TF_ROLES

_PLACES: Final[dict[Path, str]] = {
    JOB: "object",
    SPEC: "variables.spec",
    TF_ROLES: "variables.roles",
    TF_ROLE: "variables.roles[role]",
    RUN_POLICY: "variables.runPolicy",
    GANG: "variables.gang",
}
"""How CEL writes the value of a place."""

_VARIABLES: Final = {
    "spec": "object.?spec.orValue({})",
    "roles": "variables.spec.?tfReplicaSpecs.orValue({})",
    "runPolicy": "variables.spec.?runPolicy.orValue({})",
    "gang": "variables.runPolicy.?schedulingPolicy.orValue({})",
    "replicas": "variables.roles.map(role, variables.roles[role] == null ? 1 : "
    "variables.roles[role].?replicas.orValue(1))",
    "several": "variables.replicas.exists(n, n > 1) || variables.replicas.filter(n, n > 0).size() > 1",
    "oldRoles": "oldObject.?spec.?tfReplicaSpecs.orValue({})",
    "mayChange": "variables.runPolicy.?suspend.orValue(false) || "
    "oldObject.?spec.?runPolicy.?suspend.orValue(false) || oldObject.?status.?completionTime.hasValue() || "
    f"oldObject.?status.?conditions.orValue([]).exists(c, c.type == '{names.Condition.FAILED}' && c.status == 'True')",
}
"""In the order in which one needs the other. Who suspends a job, or resumes it, may change its pods with that: Kueue
does both in one patch. A job that has not begun, because it breaks a rule, is Failed without a completionTime."""


def validating_admission_policy() -> JsonObject:
    """The policy without metadata."""
    variables: list[JsonValue] = [{"name": name, "expression": expression} for name, expression in _VARIABLES.items()]
    validations: list[JsonValue] = []
    for number, rule in enumerate(RULES):
        (place,) = rule.at
        cel, says = (re.sub(r"\bself\b", _PLACES[place], words) for words in (rule.cel, _says(rule)))
        if place == TF_ROLE:
            broken = f"variables.broken{number}"
            variables.append(
                {"name": broken.rpartition(".")[2], "expression": f"variables.roles.filter(role, !({cel}))"}
            )
            cel, says = f"size({broken}) == 0", f"{broken}.map(role, {says})[0]"
        known = "oldObject == null || " if rule.holds is None else ""
        validations.append({"expression": f"{known}{cel}", "messageExpression": says, "reason": "Forbidden"})
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [names.GROUP],
                        "apiVersions": [names.VERSION],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": [names.PLURAL],
                    }
                ]
            },
            # Labels and finalizers of a job that is there already may always change.
            "matchConditions": [
                {"name": "spec-changes", "expression": "oldObject == null || object.?spec != oldObject.?spec"}
            ],
            "variables": variables,
            "validations": validations,
        },
    }


def _says(rule: Rule) -> str:
    """A CEL expression of the line that a broken rule gives, as :class:`dtj.api.rule.Violation` writes it."""
    before, key, after = ".".join(part for part in (*rule.at[0], rule.field) if part).partition(ANY_KEY)
    path = f"{json.dumps(before)} + role + {json.dumps(f'{after}: ')}" if key else json.dumps(f"{before}: ")
    return f"{path} + {rule.message_cel}"
