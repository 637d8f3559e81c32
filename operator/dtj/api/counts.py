"""Numbers of replicas as rules need them, in Python and in CEL."""

from __future__ import annotations

from dtj.api.json import JsonObject
from dtj.api.spec import Role


def roles_of(spec: JsonObject) -> JsonObject:
    """``replicaSpecs``; empty if there is none."""
    value = spec.get("replicaSpecs")
    return value if isinstance(value, dict) else {}


def count(spec: JsonObject, *roles: Role) -> int:
    """Number of replicas of these roles. A role that is null has none; it breaks a rule of its own."""
    total = 0
    for role in roles:
        role_spec = roles_of(spec).get(role)
        if isinstance(role_spec, dict):
            replicas = role_spec.get("replicas", 1)
            total += replicas if isinstance(replicas, int) else 0
    return total


def cel_count(*roles: Role, spec: str = "self") -> str:
    """The same in CEL."""
    return " + ".join(
        f"('{role}' in {spec}.replicaSpecs && {spec}.replicaSpecs['{role}'] != null"
        f" ? {spec}.replicaSpecs['{role}'].replicas : 0)"
        for role in roles
    )
