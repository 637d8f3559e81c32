"""How much memory does the operator need for 5,000 pods?

    PYTHONPATH=operator:tests:trainer-image python bench/memory.py

50 jobs of 100 workers by default, all running. Two figures: the operator that created them, and one that is started
when they are there and holds nothing else.
"""

from __future__ import annotations

import argparse
import time

import common
import crowd
import figures


def main() -> None:
    options = _options()
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50, help="number of jobs (default 50)")
    parser.add_argument("--workers", type=int, default=100, help="replicas of each (default 100)")
    parser.add_argument("--settle", type=float, default=10.0, help="seconds before memory is read (default 10)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
