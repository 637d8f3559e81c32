"""Does the start gate hold? Jobs of three tasks that start at random times, and meet in TensorFlow's first collective.

    .venv-trainer/bin/python bench/start_gate.py [--jobs 100] [--max-delay 10] [--parallel 3] [--no-gate]

Each job is three processes with ports of their own on loopback, started up to --max-delay seconds apart. Counted are
jobs in which a task failed, by the kind of failure; measured is what the gate costs: the time from the moment when the
last task of a job reaches its gate until the last is through. Names that resolve late are tried by the end-to-end
tests, in pods behind a headless Service.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

from loopback import free_ports  # noqa: E402 - of the tests

TASKS = 3
LIMIT_SECONDS = 180.0
KINDS = {"name resolution": ("Name or service not known", "does not resolve"), "refused": ("refused", "UNAVAILABLE")}


@dataclass(frozen=True)
class Outcome:
    """How one job went: the failure of its first task that failed, or what the gate cost and how long it took."""

    failure: str | None
    cost: float
    together: float


def run_job(seed: int, *, max_delay: float, gate: bool) -> Outcome:
    """Run the tasks of one job to their ends; whatever happens, no process is left."""
    delays = random.Random(seed)
    ports = free_ports(TASKS)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    tasks = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("start_gate_task.py"), f"{delays.uniform(0, max_delay):.2f}",
             str(port), "gate" if gate else "no-gate", *(a for a in addresses if not a.endswith(f":{port}"))],
            env=os.environ | environment(addresses, index),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index, port in enumerate(ports)
    ]  # fmt: skip
    try:
        said = [task.communicate(timeout=LIMIT_SECONDS) for task in tasks]
    except subprocess.TimeoutExpired:
        return Outcome("time is over", 0, 0)
    finally:
        for task in tasks:
            task.kill()
    failed = [errors for task, (_, errors) in zip(tasks, said, strict=True) if task.returncode]
    if failed:
        return Outcome(kind_of(failed[0]), 0, 0)
    times = [json.loads(output.splitlines()[-1]) for output, _ in said]
    last = max(time["arrived"] for time in times)
    return Outcome(None, max(t["passed"] for t in times) - last, max(t["together"] for t in times) - last)


def environment(addresses: list[str], index: int) -> dict[str, str]:
    """What a task of the job finds in its environment."""
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}),
        "PYTHONPATH": str(ROOT / "trainer-image"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }


def kind_of(errors: str) -> str:
    """A name for why a task failed."""
    for kind, words in KINDS.items():
        if any(word in errors for word in words):
            return kind
    return errors.strip().rpartition("\n")[2][:100] or "no words"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--max-delay", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--parallel", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-gate", action="store_true", help="what happens without it")
    options = parser.parse_args()
    with ThreadPoolExecutor(options.parallel) as pool:
        outcomes = list(
            pool.map(
                lambda number: run_job(options.seed + number, max_delay=options.max_delay, gate=not options.no_gate),
                range(options.jobs),
            )
        )
    failures = Counter(outcome.failure for outcome in outcomes if outcome.failure)
    print(f"machine: {os.cpu_count()} cores; {options.jobs} jobs of {TASKS}, delays up to {options.max_delay:g} s")
    print(f"failures: {sum(failures.values())}", *(f"{count} x {kind}" for kind, count in failures.items()), sep="; ")
    fine = [outcome for outcome in outcomes if not outcome.failure]
    for name, values in (
        ("gate, after the last arrival", sorted(outcome.cost for outcome in fine)),
        ("first collective, after the last arrival", sorted(outcome.together for outcome in fine)),
    ):
        if values:
            p95 = values[min(len(values) - 1, round(0.95 * len(values)))]
            print(f"{name}: median {statistics.median(values):.2f} s, p95 {p95:.2f} s, max {values[-1]:.2f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
