"""Statuses of Workloads and PodGroups, whose schemas are of other projects, without what the CRD of Kueue refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from operator_adversaries import extremes
from operator_adversaries.extremes import Many, Row
from operator_adversaries.sample import Path

_LABEL: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_REASON: Final = "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
_QUANTITIES: Final = ("0", "1", "-1", "1e400", "9" * 60, 2**63 - 1, 1)
_CONDITIONS: Final = ("Admitted", "QuotaReserved", "Evicted", "Finished", "PodsReady", "Unschedulable", "x", "a/b")


def status_of(rng: random.Random, plural: str) -> tuple[Path, Any]:
    """A value at a place of a status."""
    return _workload(rng) if plural == "workloads" else _pod_group(rng)


def _workload(rng: random.Random) -> tuple[Path, Any]:
    def some(most: int, pattern: str = "") -> Any:
        return extremes.text(rng, most=most, pattern=pattern)

    def condition(kind: str) -> Any:
        return {
            "type": kind,
            "status": rng.choice(("True", "False", "Unknown")),
            "reason": some(1024, _REASON),
            "message": some(32_768),
            "lastTransitionTime": rng.choice(extremes.TIMES),
        }

    def conditions(most: int) -> Any:
        return [condition(kind) for kind in rng.sample(_CONDITIONS, most)]

    def assignment() -> Any:
        return {
            "name": rng.choice(("worker", "chief", some(63, _LABEL))),
            "count": rng.choice((0, 1, 2, 2**31 - 1)),
            "flavors": rng.choice(({"cpu": "spot"}, {"cpu": some(253, _LABEL)}, {"x" * 3000: "spot"}, {})),
            "resourceUsage": {"cpu": rng.choice(_QUANTITIES)},
        }

    def update() -> Any:
        toleration = {"key": some(100_000) or "x", "operator": "Exists", "effect": "NoExecute"}
        return {
            "name": rng.choice(("worker", "chief", some(63, _LABEL))),
            "labels": {"a": some(100_000)},
            "annotations": {"a": some(100_000)},
            "nodeSelector": {"a": some(100_000)},
            "tolerations": [{**toleration, "tolerationSeconds": extremes.number(rng)}],
        }

    def check(name: str) -> Any:
        return {
            "name": name,
            "state": rng.choice(("Ready", "Pending", "Retry", "Rejected")),
            "message": some(32_768),
            "lastTransitionTime": rng.choice(extremes.TIMES),
            "podSetUpdates": rng.choice(([], [update()], [{"name": "worker"}])),
        }

    places: dict[Path, Callable[[], Any]] = {
        ("status",): lambda: rng.choice((None, {}, {"x": extremes.anything(rng)})),
        ("status", "conditions"): lambda: rng.choice((None, conditions(1), conditions(3), conditions(8))),
        ("status", "admission"): lambda: rng.choice(
            (
                None,
                {"clusterQueue": "x", "podSetAssignments": [assignment()]},
                {"clusterQueue": some(253, _LABEL), "podSetAssignments": [assignment(), {"name": "ps", "count": 1}]},
            )
        ),
        ("status", "admissionChecks"): lambda: rng.choice(
            (None, [check("a")], [check("a" * 316), check("\u0663")], [check(f"c{index}") for index in range(3)])
        ),
        ("status", "reclaimablePods"): lambda: rng.choice(
            (None, [{"name": rng.choice(("worker", some(63, _LABEL))), "count": rng.choice((0, 1, 2**31 - 1))}])
        ),
        ("status", "accumulatedPastExecutionTimeSeconds"): lambda: extremes.number(rng, bits=32),
    }
    path = rng.choice(sorted(places))
    return path, places[path]()


def _pod_group(rng: random.Random) -> tuple[Path, Any]:
    def some() -> Any:
        return extremes.text(rng, most=100_000)

    condition = {
        "type": rng.choice(("Unschedulable", "Scheduled", some())),
        "status": rng.choice(("True", "False", "Unknown", some())),
        "reason": some(),
        "message": some(),
        "lastTransitionTime": rng.choice(extremes.TIMES),
    }
    places: dict[Path, Callable[[], Any]] = {
        ("status",): lambda: rng.choice((None, {}, {"x": extremes.anything(rng)})),
        ("status", "conditions"): lambda: rng.choice(([condition], None, Row(condition, 4))),
        ("status", "phase"): lambda: rng.choice(("Pending", "Running", "Inqueue", some(), Many("x", 300_000))),
        ("status", "running"): lambda: extremes.number(rng, bits=32),
    }
    path = rng.choice(sorted(places))
    return path, places[path]()
