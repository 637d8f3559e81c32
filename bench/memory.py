"""How much memory does the operator need for 5,000 pods?

    PYTHONPATH=operator:tests:trainer-image python bench/memory.py

50 jobs of 100 workers by default, all running. Two figures: the operator that created them, and one that is started
when they are there and holds nothing else.
"""

from __future__ import annotations

import time

import common
import crowd
import figures


def main() -> None:
    options = figures.parser(
        __doc__,
        jobs=(50, "number of jobs"),
        workers=(100, "replicas of each"),
        settle=(10.0, "seconds before memory is read"),
    ).parse_args()
    with common.control_plane() as (plane, directory), common.new_world(plane) as world:
        with crowd.settled_operator(world, log=directory / "first.log", settle=options.settle) as operator:
            empty = common.memory(operator.pid)
            crowd.start_jobs(world, "large", number=options.jobs, workers=options.workers)
            time.sleep(options.settle)
            made, peak = common.memory(operator.pid), common.memory(operator.pid, peak=True)
        with crowd.settled_operator(world, log=directory / "second.log", settle=options.settle) as operator:
            found, found_peak = common.memory(operator.pid), common.memory(operator.pid, peak=True)
        pods = common.count(plane, common.pods_path(world.namespace))
    figures.print_machine()
    figures.print_figure("pods", f"{pods} in {options.jobs} jobs")
    figures.print_figure("RSS without jobs", f"{empty:.0f} MiB")
    figures.print_figure("RSS after creation", f"{made:.0f} MiB, peak {peak:.0f} MiB")
    figures.print_figure("RSS after a restart", f"{found:.0f} MiB, peak {found_peak:.0f} MiB")


if __name__ == "__main__":
    main()
