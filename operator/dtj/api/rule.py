"""What a rule is, where in a job's schema rules are, and numbers of replicas as rules need them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dtj.api.json import JsonObject, fields_of
from dtj.api.spec import Role

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
IN_MEMORY: Final[Path] = (*CHECKPOINT, "inMemory")
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


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: where, and what to do."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def broken(rules: Iterable[Rule], root: JsonObject, *, member: str = "[{}]") -> tuple[Violation, ...]:
    """What ``root`` breaks of ``rules``, in their order. ``member`` is how a path shows the key of a map."""
    # Dozens of rules apply at the same few places, and each pass over a job asks all of them.
    values: dict[Path, list[tuple[str, JsonObject]]] = {}
    found: list[Violation] = []
    for rule in rules:
        holds = rule.holds
        for place in rule.at if holds is not None else ():
            if place not in values:
                values[place] = [*_values(root, place, member)]
            found.extend(
                Violation(".".join(part for part in (path, rule.field) if part), rule.words(value))
                for path, value in values[place]
                if holds is not None and not holds(value)
            )
    return tuple(found)


def _values(root: JsonObject, place: Path, member: str) -> Iterator[tuple[str, JsonObject]]:
    """The objects at a place, with their paths as the API server writes them; nothing if the place is empty."""
    found: list[tuple[str, JsonObject]] = [("", root)]
    for step in place:
        found = [
            (f"{path}{member.format(key)}" if step == ANY_KEY else f"{path}.{key}".removeprefix("."), child)
            for path, value in found
            for key, child in (value.items() if step == ANY_KEY else [(step, value.get(step))])
            if isinstance(child, dict)
        ]
    yield from found


def roles_of(spec: JsonObject) -> JsonObject:
    """``replicaSpecs``; empty if there is none."""
    return fields_of(spec.get("replicaSpecs"))


def count(spec: JsonObject, *roles: Role) -> int:
    """Number of replicas of these roles. A role that is null has none; it breaks a rule of its own."""
    total = 0
    for role in roles:
        role_spec = roles_of(spec).get(role)
        if isinstance(role_spec, dict):
            replicas = role_spec.get("replicas", 1)
            total += replicas if isinstance(replicas, int) else 0
    return total


def cel_count(*roles: Role) -> str:
    """The same in CEL."""
    return " + ".join(
        f"('{role}' in self.replicaSpecs && self.replicaSpecs['{role}'] != null"
        f" ? self.replicaSpecs['{role}'].replicas : 0)"
        for role in roles
    )
