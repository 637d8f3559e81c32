"""How long after a pod's event is the job's status written, while pods change all the time?

    PYTHONPATH=operator:tests:trainer-image python bench/status_lag.py

40 running jobs of 25 workers by default. Each second 20 pods, each of another job, become unready, or ready again in
the next turn: the condition PodsReady of the job changes each time. (What changes nothing but numbers of pods is
written 10 s after the last status at the earliest, on purpose.) The lag is the time from the API server's answer to the
pod's write to its answer to the next write of the job's status, both from the audit log. Kubernetes' own objectives are
meant for a churn of 20 pods a second.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left
from collections import defaultdict
from datetime import datetime

import common
import crowd
import figures
from dtj.api.json import JsonObject
from support.job_world import JobWorld
from support.operator_process import USER, OperatorProcess
from support.played_pods import status

PREFIX = "digits"
SETTLE_SECONDS = 5.0


def main() -> None:
    options = figures.parser(
        __doc__,
        jobs=(40, "running jobs"),
        workers=(25, "replicas of each"),
        rate=(20, "pods that change in a second"),
        seconds=(120, "how long they change"),
    ).parse_args()
    with common.control_plane() as (plane, directory), common.new_world(plane) as world:
        with OperatorProcess.serving(plane, [world.namespace], log=directory / "operator.log") as operator:
            crowd.start_jobs(world, PREFIX, number=options.jobs, workers=options.workers)
            common.await_quiet(plane)
            mark, cpu = plane.audit.mark(), common.cpu_seconds(operator.pid)
            seconds = _churn(world, options)
            time.sleep(SETTLE_SECONDS)
            cpu = common.cpu_seconds(operator.pid) - cpu
        lags, unanswered = _lags(world, mark)
    figures.print_machine()
    changes = options.seconds * options.rate
    figures.print_figure("changes", f"{changes} in {seconds:.0f} s: {changes / seconds:.1f} a second")
    for name, share in (("median", 0.5), ("p99", 0.99), ("longest", 1.0)):
        figures.print_figure(name, f"{lags[min(len(lags) - 1, int(share * len(lags)))]:.3f} s")
    figures.print_figure("without a status", str(unanswered))
    figures.print_figure("CPU of the operator", f"{cpu:.2f} s")


def _churn(world: JobWorld, options: argparse.Namespace) -> float:
    """Make the changes at the rate. Returns how long it took."""
    client = world.plane.lasting_api()
    pods = {common.name_of(pod): pod for pod in common.list_all(world.plane, common.pods_path(world.namespace))}
    began = time.monotonic()
    for number in range(options.seconds * options.rate):
        turn, job = divmod(number, options.jobs)
        name = f"{PREFIX}-{job}-worker-{turn // 2 % options.workers}"
        time.sleep(max(0.0, began + number / options.rate - time.monotonic()))
        path = f"{common.pods_path(world.namespace)}/{name}/status"
        client.request("PATCH", path, {"status": _status(pods[name], ready=turn % 2 == 1)})
    return time.monotonic() - began


def _status(pod: JsonObject, *, ready: bool) -> JsonObject:
    condition: JsonObject = {"type": "Ready", "status": str(ready)}
    return {**status(pod, {}), **({} if ready else {"conditions": [condition]})}


def _lags(world: JobWorld, mark: int) -> tuple[list[float], int]:
    """The lags in seconds, in order, and how many changes no status followed."""
    written: dict[str, list[datetime]] = defaultdict(list)
    for call in world.plane.audit.writes(since=mark, user=USER, namespace=world.namespace):
        if call.subresource == "status" and call.code == 200:
            written[call.name].append(call.logged)
    lags = []
    unanswered = 0
    for call in world.plane.audit.writes(since=mark, namespace=world.namespace):
        if (call.resource, call.subresource, call.user == USER) != ("pods", "status", False):
            continue
        times = written[call.name.rpartition("-worker-")[0]]
        following = bisect_left(times, call.logged)
        if following < len(times):
            lags.append((times[following] - call.logged).total_seconds())
        else:
            unanswered += 1
    return sorted(lags), unanswered


if __name__ == "__main__":
    main()
