"""Numbers of replicas as rules need them, in Python and in CEL; and how long TF_CONFIG becomes by them."""

from __future__ import annotations

from typing import Final

from dtj.api import names
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import Env
from dtj.api.rule import JOB, Rule
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


_LISTED: Final = (Role.WORKER, Role.PS)
"""The roles in TF_CONFIG's ``cluster`` of which there can be many."""

_ADDRESS_LENGTH: Final = len("-" + "." + "." + "n" + ".svc" + ":" + '"",')
"""What an address in TF_CONFIG has besides role, index, name and port, in a namespace whose name is shortest."""

_FIRST_WITH_MORE_DIGITS: Final = (0, 10, 100, 1000)
_LIMIT: Final = names.MAX_VARIABLE_LENGTH - len(f"{Env.TF_CONFIG}=")


def _least_tf_config(job: JsonObject) -> int:
    """Characters that TF_CONFIG has at least, in any namespace; :mod:`dtj.core.validity` knows the exact number."""
    spec = job.get("spec")
    assert isinstance(spec, dict)
    name, port = text(dig(job, "metadata", "name")), spec.get("port", names.DEFAULT_PORT)
    counts = {role: count(spec, role) for role in _LISTED}
    return sum(
        number * (len(role) + _ADDRESS_LENGTH + len(name) + len(str(port)))
        + sum(max(0, number - first) for first in _FIRST_WITH_MORE_DIGITS)
        for role, number in counts.items()
    )


def _cel_tf_config_fits() -> str:
    """``_least_tf_config`` in CEL; ``[x].all(v, …)`` gives a value a name."""
    lengths = (
        f"{role[0]} * ({len(role) + _ADDRESS_LENGTH} + size(self.metadata.name) + size(string(self.spec.port))) + "
        + " + ".join(f"({role[0]} > {first} ? {role[0]} - {first} : 0)" for first in _FIRST_WITH_MORE_DIGITS)
        for role in _LISTED
    )
    fits = f"{' + '.join(lengths)} <= {_LIMIT}"
    for role in _LISTED:
        fits = f"[{cel_count(role, spec='self.spec')}].all({role[0]}, {fits})"
    return fits


TF_CONFIG_FITS: Final = Rule(
    at=(JOB,),
    cel=_cel_tf_config_fits(),
    message=f"TF_CONFIG lists each chief, worker and ps, and would be longer than {_LIMIT:,} bytes, "
    "the most that Linux passes to a program in one variable: use fewer replicas, or a "
    "shorter name",
    holds=lambda job: _least_tf_config(job) <= _LIMIT,
    field="spec.replicaSpecs",
)
"""Refuses what cannot fit in any namespace. What fits in some is for :mod:`dtj.core.validity`: CEL does not know the
namespace."""
