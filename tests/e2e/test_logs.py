"""Logs of real pods on a real node, as `dtj logs` follows them."""

from __future__ import annotations

from pathlib import Path

from dtj.cli.common.terminal import Exit
from patience import PATIENCE_SECONDS
from support.cluster_jobs import ClusterJobs, tiny
from support.command_line import CommandLine, typed

FAILS_ONCE = """
for line in 1 2 3; do echo "attempt $DTJ_ATTEMPT line $line"; done
if [ "$DTJ_ATTEMPT" = 2 ]; then echo done; exit 0; fi
if [ "$DTJ_INDEX" = 0 ]; then sleep 300; fi
until [ -e /tmp/fail ]; do sleep 0.1; done
echo "Traceback (most recent call last):"
exit 3
"""


def test_logs_are_followed_from_the_first_pod_across_a_restart_to_the_end(jobs: ClusterJobs, tmp_path: Path) -> None:
    policy = {"successPolicy": "AllWorkers"}
    jobs.submit(tiny("told", FAILS_ONCE, roles={"worker": 2}, runPolicy=policy))
    with CommandLine(tmp_path, jobs.cluster.kubeconfig, jobs.namespace) as dtj:
        following = dtj.start("logs", "told", "--follow")
        assert following.stdout is not None
        shown = [following.stdout.readline() for _ in range(6)]  # three lines of each pod of the first attempt
        jobs.kubectl("exec", "told-worker-1", "--", "touch", "/tmp/fail")
        jobs.await_condition("told", "Complete")
        shown += following.stdout.readlines()
        assert following.wait(PATIENCE_SECONDS) == Exit.OK, shown
    lines = [f"attempt {attempt} line {line}" for attempt in (1, 2) for line in (1, 2, 3)]
    first, second = lines[:3], [*lines[3:], "done"]
    expected = {
        "worker-0   ": first,
        "worker-1   ": [*first, "Traceback (most recent call last):"],
        "worker-0-r1": second,
        "worker-1-r1": second,
    }
    by_title: dict[str, list[str]] = {}
    for line in shown:
        title, _, text = line.rstrip("\n").partition(" | ")
        by_title.setdefault(title.ljust(11), []).append(text)
    assert by_title == expected
    previous = typed(jobs.cluster, jobs.namespace, "logs", "told", "--previous")
    assert previous.stdout.splitlines()[-1] == "worker-1 | Traceback (most recent call last):"
    found = typed(jobs.cluster, jobs.namespace, "status", "told")
    assert found.return_value == Exit.OK
    assert found.stdout.startswith("told  Succeeded")
