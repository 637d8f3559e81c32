"""What does an operator cost that looks after many jobs in which nothing happens?

    PYTHONPATH=operator:tests:trainer-image python bench/idle.py

1,000 finished and 200 running jobs, for two minutes: the operator's writes in the API server's audit log (there
should be none), its other calls, its CPU time and its memory.
"""

from __future__ import annotations

import time
from collections import Counter

import common
import crowd
import figures
from loopback import free_ports
from support.operator_process import USER, OperatorProcess


def main() -> None:
    options = figures.parser(
        __doc__,
        finished=(1000, "jobs that have succeeded"),
        running=(200, "jobs that run, of two workers each"),
        seconds=(120.0, "how long is measured"),
        settle=(15.0, "seconds that a start gets before"),
    ).parse_args()
    with common.control_plane() as (plane, directory), common.new_world(plane) as world:
        with OperatorProcess.serving(plane, [world.namespace], "--workers=32", log=directory / "first.log"):
            crowd.start_jobs(world, "finished", number=options.finished, workers=1)
            crowd.finish_jobs(world, "finished", number=options.finished)
            crowd.start_jobs(world, "running", number=options.running, workers=2)
        # A fresh one: the events of the first, which are held to a rate, would go on for minutes.
        common.await_quiet(plane)
        [port] = free_ports(1)
        log = directory / "second.log"
        with crowd.settled_operator(world, f"--metrics-port={port}", log=log, settle=options.settle) as operator:
            mark, before = plane.audit.mark(), common.cpu_seconds(operator.pid)
            time.sleep(options.seconds)
            cpu, resident = common.cpu_seconds(operator.pid) - before, common.memory(operator.pid)
            known = common.total(common.metrics(port) or "", "dtj_jobs")
            calls = plane.audit.calls(since=mark, user=USER)
            writes = plane.audit.writes(since=mark, user=USER)
    figures.print_machine()
    figures.print_figure(
        "jobs", f"{options.finished} finished, {options.running} running; the operator knows {known:.0f}"
    )
    figures.print_figure("API writes", f"{len(writes)} in {options.seconds:.0f} s")
    others = Counter(f"{call.verb} {call.resource}" for call in calls if call not in writes)
    figures.print_figure("other calls", ", ".join(f"{n} x {what}" for what, n in others.items()) or "none")
    figures.print_figure(
        "CPU of the operator", f"{cpu:.2f} s (in steps of 0.01), {100 * cpu / options.seconds:.2f} % of a core"
    )
    figures.print_figure("RSS", f"{resident:.0f} MiB")


if __name__ == "__main__":
    main()
