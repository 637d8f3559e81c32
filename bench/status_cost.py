"""What does a write of a job's status cost the API server, next to the creation of a pod?

    PYTHONPATH=operator:tests:trainer-image python bench/status_cost.py

A status write validates the whole job again, its rules included. CPU time of the API server alone, which a busy machine
changes least, for as many calls of each kind, one after the other, on `examples/digits.yaml`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

import common
import figures
from dtj.api.json import JsonObject
from testbed import ControlPlane
from testbed.processes import Process

TARGET: Final = 2.0
EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "digits.yaml"
STATUS: Final[JsonObject] = {
    "state": "Pending",
    "attempt": 1,
    "startTime": "2026-01-01T00:00:00Z",
    "conditions": [
        {
            "type": "PodsReady",
            "status": "False",
            "reason": "Pending",
            "message": "0 of 2 pods are ready",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


def main() -> None:
    """Measure, and print the medians of the rounds."""
    options = figures.parser(
        __doc__, rounds=(5, "how often each is measured"), calls=(200, "calls of each kind in a round")
    ).parse_args()
    costs: dict[str, list[float]] = {"job": [], "pod": [], "status": []}
    with common.control_plane() as (plane, _):
        for _ in range(options.rounds):
            for kind, cost in _round(plane, options.calls).items():
                costs[kind].append(cost)
    figures.print_machine()
    for kind, name in (("job", "create a job"), ("pod", "create a pod"), ("status", "write a status")):
        figures.print_figure(name, f"{statistics.median(costs[kind]):.1f} ms of CPU")
    figures.print_ratio("status to pod", costs["status"], costs["pod"], target=TARGET)


def _round(plane: ControlPlane, calls: int) -> dict[str, float]:
    namespace = plane.new_namespace("bench")
    jobs, pods = common.jobs_path(namespace), common.pods_path(namespace)
    job = yaml.safe_load(EXAMPLE.read_text())
    template = job["spec"]["template"]["spec"]
    api = plane.lasting_api()

    def named(body: JsonObject, number: int) -> JsonObject:
        return {**body, "metadata": {"name": f"one-{number}"}}

    def patch(number: int) -> None:
        api.request("PATCH", f"{jobs}/one-{number}/status", {"status": STATUS})

    try:
        return {
            "job": _cost(plane, calls, lambda number: api.request("POST", jobs, named(job, number))),
            "pod": _cost(plane, calls, lambda number: api.request("POST", pods, named({"spec": template}, number))),
            "status": _cost(plane, calls, patch),
        }
    finally:
        api.close()
        common.remove(plane, namespace)


def _cost(plane: ControlPlane, calls: int, call: Callable[[int], object]) -> float:
    """Milliseconds of the API server's CPU time for one call."""
    common.await_quiet(plane)
    pids = Process("kube-apiserver", run=plane.run).pids
    before = sum(map(common.cpu_seconds, pids))
    for number in range(calls):
        call(number)
    return (sum(map(common.cpu_seconds, pids)) - before) / calls * 1000


if __name__ == "__main__":
    main()
