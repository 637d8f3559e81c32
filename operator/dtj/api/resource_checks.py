"""What an API server asks of the resources of a container, in its words.

Source: kubernetes, pkg/apis/core/validation/validation.go, ValidateResourceRequirements.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from pydantic import JsonValue

from dtj.api import quantities
from dtj.api.formats import qualified_name_problem
from dtj.api.json import JsonObject
from dtj.api.violation import Violation

_STANDARD: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES: Final = "hugepages-"
_NATIVE: Final = "kubernetes.io/"


def resource_problems(resources: JsonObject, path: str) -> Iterator[Violation]:
    """What is wrong with ``resources``, whose quantities match the schema."""
    limits, requests = _amounts(resources, "limits"), _amounts(resources, "requests")
    for kind, given in (("limits", limits), ("requests", requests)):
        for name, amount in given.items():
            yield from _name_or_size(name, amount, f"{path}.{kind}[{name}]")
    for name, amount in requests.items():
        yield from _against_limit(name, amount, limits.get(name), path)
    named = {*limits, *requests}
    if any(name.startswith(_HUGE_PAGES) for name in named) and not named & {"cpu", "memory"}:
        yield Violation(path, "Forbidden: HugePages require cpu or memory")


def _amounts(resources: JsonObject, kind: str) -> JsonObject:
    found = resources.get(kind)
    return found if isinstance(found, dict) else {}


def _is_extended(name: str) -> bool:
    return "/" in name and _NATIVE not in name


def _name_or_size(name: str, amount: JsonValue, path: str) -> Iterator[Violation]:
    shown = f"Invalid value: {json.dumps(name)}"
    if problem := qualified_name_problem(name):
        yield Violation(path, f"{shown}: {problem}")
    elif "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        hint = '; did you mean "nvidia.com/gpu"?' if name in ("gpu", "gpus") else ""
        yield Violation(path, f"{shown}: must be a standard resource for containers{hint}")
    number = quantities.parse(amount)
    if _is_extended(name) and number is not None and number.denominator != 1:
        yield Violation(path, f"Invalid value: {json.dumps(quantities.shown(number))}: must be an integer")


def _against_limit(name: str, amount: JsonValue, limit: JsonValue, path: str) -> Iterator[Violation]:
    fixed = _is_extended(name) or name.startswith(_HUGE_PAGES)
    if limit is None:
        if fixed:
            words = "Required value: Limit must be set for non overcommitable resources"
            yield Violation(f"{path}.limits", f"{words}; set {name} in limits too")
        return
    requested, allowed = quantities.parse(amount), quantities.parse(limit)
    if requested is None or allowed is None or not _breaks(requested, allowed, fixed=fixed):
        return
    relation = "equal to" if fixed else "less than or equal to"
    words = f"must be {relation} {name} limit of {limit}"
    yield Violation(f"{path}.requests", f"Invalid value: {_shown(amount)}: {words}")


def _breaks(requested: Fraction, allowed: Fraction, *, fixed: bool) -> bool:
    return requested != allowed if fixed else requested > allowed


def _shown(amount: JsonValue) -> str:
    return json.dumps(str(amount))
