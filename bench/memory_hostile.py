"""How much memory does the operator take where users ask for much?

    PYTHONPATH=operator:tests:trainer-image python bench/memory_hostile.py

Three scenes, each with an operator of its own: one job of 10,000 replicas, fifty of 1,000, and a hundred suspended ones
of 1.3 MB each, whose templates hold what no schema knows. The operator's peak is read while it works, and again from an
operator that is started when the jobs are there. It is stopped where it goes beyond ``--stop-mib``.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import common
import figures
from builders import manifest
from dtj.api.json import JsonObject
from support.job_world import JobWorld
from support.operator_process import OperatorProcess
from testbed import ApiError, ControlPlane

VALUES = Path(__file__).parents[1] / "charts" / "dtj" / "values.yaml"


def main() -> None:
    options = _options()
    scenes: dict[str, Callable[[], Iterable[JsonObject]]] = {
        "1 job of 10,000": lambda: [manifest("huge", roles={"worker": 10_000})],
        "1 job of 3,400": lambda: [manifest("digits", roles={"worker": 3_400})],
        "50 jobs of 1,000": lambda: [manifest(f"many-{n}", roles={"worker": 1_000}) for n in range(50)],
        f"{options.junk} of 1.3 MB": lambda: (_hostile(f"junk-{n}") for n in range(options.junk)),
    }
    wanted = {name: make for name, make in scenes.items() if options.scene in name}
    peaks = {name: _peaks(name, make(), options) for name, make in wanted.items()}
    figures.print_machine()
    figures.print_figure("the chart's limit", _limit())
    for name, told in peaks.items():
        figures.print_figure(name, told)


def _hostile(name: str) -> JsonObject:
    """A suspended job of 1.3 MB that decodes to 30 times as much."""
    body = manifest(name, roles={"worker": 1}, runPolicy={"suspend": True})
    spec = body["spec"]
    assert isinstance(spec, dict)
    junk: list[JsonObject] = [{} for _ in range(430_000)]
    spec["template"] = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "junk": [*junk]}}
    return body


def _peaks(name: str, jobs: Iterable[JsonObject], options: argparse.Namespace) -> str:
    with common.control_plane() as (plane, directory), common.new_world(plane) as world:
        log = directory / "first.log"
        with OperatorProcess.serving(plane, [world.namespace], log=log) as operator:
            operator.await_line("runs jobs")
            time.sleep(5.0)
            empty = common.memory(operator.pid)
            refusal = _submit(plane, world, jobs)
            if refusal:
                return f"refused at apply: {refusal}; RSS {common.memory(operator.pid):.0f} MiB"
            first = _watched(operator, options)
        with OperatorProcess.serving(plane, [world.namespace], log=directory / "second.log") as operator:
            second = _watched(operator, options)
        pods = common.count(plane, common.pods_path(world.namespace))
    return f"empty {empty:.0f} MiB; peak {first}; after a restart {second}; {pods} pods were made in that time"


def _submit(plane: ControlPlane, world: JobWorld, jobs: Iterable[JsonObject]) -> str:
    """Create the jobs, one after the other, compactly; the API server's words where it refuses one."""
    for job in jobs:
        try:
            plane.api.request("POST", f"{common.jobs_path(world.namespace)}?fieldValidation=Ignore", job)
        except ApiError as error:
            return re.sub(r"^.*Invalid value: \"object\": ", "", str(error))[:160]
    return ""


def _watched(operator: OperatorProcess, options: argparse.Namespace) -> str:
    """The peak within some time, or that it was stopped for its memory, or ended."""
    ends = time.monotonic() + options.seconds
    peak = 0.0
    while time.monotonic() < ends and operator.running:
        try:
            peak = common.memory(operator.pid, peak=True)
        except (OSError, StopIteration):
            break
        if peak > options.stop_mib:
            operator.kill()
            return f"more than {peak:.0f} MiB, stopped"
        time.sleep(0.2)
    return f"{peak:.0f} MiB"


def _limit() -> str:
    """The memory limit of the operator's container in the chart's values."""
    found = re.search(r"limits:\n(?:.*\n)??\s+memory: (\S+)", VALUES.read_text())
    return found[1] if found is not None else "none"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scene", default="", help="only scenes whose name holds this text")
    parser.add_argument("--junk", type=int, default=100, help="number of jobs of 1.3 MB (default 100)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long each operator is watched (default 60)")
    parser.add_argument("--stop-mib", type=float, default=2048.0, help="stop an operator with more (default 2048)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
