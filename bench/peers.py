"""How fast do TFJob 1.9.4, JobSet 0.12 and this operator create the pods of the same jobs, next to each other?

    PYTHONPATH=operator:tests:trainer-image python bench/peers.py --jobs 100x4
    PYTHONPATH=operator:tests:trainer-image python bench/peers.py --jobs 160x5 20x20 1x400

All of them, and a bare parallel loop that makes the pods of this operator, run one after the other in each round, on
one control plane without nodes. TFJob runs at its defaults (--only tfjob) or with its limits removed (tuned); JobSet
with its limits removed. The first use builds both from their modules. Webhooks are off: theirs cost more time.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import common
import figures
from builders import manifest
from dtj.api.json import JsonObject
from support.operator_process import USER, OperatorProcess, grant
from testbed import ControlPlane
from testbed.peers import JOBSETS, TFJOBS, JobSetManager, TrainingOperator
from testbed.processes import Process

SYSTEMS: Final = ("loop", "dtj", "tfjob-tuned", "jobset", "tfjob")
TUNED: Final = ("--kube-api-qps=5000", "--kube-api-burst=5000", "--controller-threads=20")
CONTAINER: Final[JsonObject] = {"name": "tensorflow", "image": "example/trainer:1", "command": ["python", "train.py"]}


@dataclass(frozen=True)
class Measured:
    """From the first job's creation to the last pod's; the operator's own writes, its CPU time until then, and that of
    the API server. Other load of the machine disturbs CPU time least."""

    seconds: float
    writes: int = 0
    cpu_seconds: float = 0.0
    server_seconds: float = 0.0
    peak_mib: float = 0.0


@dataclass(frozen=True)
class Running:
    """An operator that runs: its processes, who it is to the API server, and its jobs: path, bodies of a number."""

    pids: list[int]
    user: str
    path: str
    kind: str

    def body(self, name: str, workers: int) -> JsonObject:
        """A job."""
        if self.kind == "dtj":
            return manifest(name, roles={"worker": workers})
        return (_tfjob if self.kind == "TFJob" else _jobset)(name, workers)


@dataclass(frozen=True)
class Shape:
    """So many jobs of so many workers."""

    jobs: int
    workers: int

    @classmethod
    def parse(cls, words: str) -> Shape:
        """``100x4``."""
        jobs, workers = map(int, words.split("x"))
        return cls(jobs, workers)

    def __str__(self) -> str:
        return f"{self.jobs}x{self.workers}"

    @property
    def names(self) -> list[str]:
        return [f"of-{self.workers}-{number}" for number in range(self.jobs)]


Rounds: TypeAlias = dict[str, list[Measured]]


def main() -> None:
    """Measure, and print one table."""
    options = _options()
    rounds: Rounds = {system: [] for system in options.only}
    with common.control_plane() as (plane, directory):
        TrainingOperator(plane).install()
        JobSetManager(plane).install()
        for number in range(options.rounds):
            for system in options.only:
                log = directory / f"{system}-{number}.log"
                print(f"round {number + 1}: {system} begins", flush=True)
                rounds[system].append(_measure(plane, system, log, options.jobs))
    figures.print_machine()
    figures.print_figure("made", f"jobs x workers: {' '.join(map(str, options.jobs))}, {options.rounds} rounds")
    for system, measured in rounds.items():
        _print(system, measured, pods=_pods(options.jobs))
    ours = rounds.get("dtj", [])
    for system in rounds:
        if ours and system != "dtj":
            others = [one.seconds for one in rounds[system]]
            figures.print_ratio(f"dtj to {system}", [one.seconds for one in ours], others, target=None)


def _print(system: str, measured: list[Measured], *, pods: int) -> None:
    common.print_times(system, [one.seconds for one in measured], pods=pods)
    if system != "loop":
        cpu, server, writes = (
            statistics.median(values)
            for values in zip(*((m.cpu_seconds, m.server_seconds, m.writes) for m in measured), strict=True)
        )
        peak = max(one.peak_mib for one in measured)
        words = f"{writes:.0f} writes, {cpu:.2f} s CPU, {server:.2f} s of the API server (medians), peak {peak:.0f} MiB"
        figures.print_figure("", words)


def _pods(shapes: Sequence[Shape]) -> int:
    return sum(shape.jobs * shape.workers for shape in shapes)


def _measure(plane: ControlPlane, system: str, log: Path, shapes: Sequence[Shape]) -> Measured:
    namespace = plane.new_namespace("bench")
    grant(plane, namespace)
    if system == "loop":
        measured = _measure_loop(plane, shapes, log)
        _print(system, [measured], pods=_pods(shapes))
    else:
        with _running(plane, system, namespace, log) as running:
            measured = _measure_operator(plane, running, namespace, shapes)
            _print(system, [measured], pods=_pods(shapes))
            plane.api.request("DELETE", f"{running.path}?propagationPolicy=Background")
            common.await_quiet(plane)
    common.remove(plane, namespace)
    return measured


def _measure_operator(plane: ControlPlane, running: Running, namespace: str, shapes: Sequence[Shape]) -> Measured:
    pods = common.pods_path(namespace)
    # A first small job: what is measured is not the start of the process.
    common.create(plane, running.path, [running.body("warm-up", 1)])
    common.await_true(lambda: common.count(plane, pods) == 1, seconds=60.0, what="the first pod")
    common.await_quiet(plane)
    server = Process("kube-apiserver", run=plane.run).pids
    before, of_server = _cpu_seconds(running.pids), _cpu_seconds(server)
    mark = plane.audit.mark()
    bodies = [running.body(name, shape.workers) for shape in shapes for name in shape.names]
    began = common.create(plane, running.path, bodies)
    total = _pods(shapes)
    common.await_true(lambda: common.count(plane, pods) > total, seconds=900.0, what="the pods", every=0.5)
    cpu, of_server = _cpu_seconds(running.pids) - before, _cpu_seconds(server) - of_server
    common.await_quiet(plane)
    created = common.written(plane, since=mark, verb="create", resource="pods", namespace=namespace)
    return Measured(
        seconds=(created[-1] - began).total_seconds(),
        writes=len(plane.audit.writes(since=mark, user=running.user, namespace=namespace)),
        cpu_seconds=cpu,
        server_seconds=of_server,
        peak_mib=sum(common.memory(pid, peak=True) for pid in running.pids),
    )


def _cpu_seconds(pids: list[int]) -> float:
    return sum(map(common.cpu_seconds, pids))


def _measure_loop(plane: ControlPlane, shapes: Sequence[Shape], log: Path) -> Measured:
    """The pods that the operator makes of a job, once for each job, made by nobody but the loop."""
    with common.new_world(plane) as world, OperatorProcess.serving(plane, [world.namespace], log=log):
        owner = common.new_owner(plane)
        bodies = []
        for shape in shapes:
            first = f"job-of-{shape.workers}"
            world.submit(first, roles={"worker": shape.workers})
            world.await_pods([f"worker-{number}" for number in range(shape.workers)], first)
            for name in shape.names:
                for pod in common.pods_of(world, first, owner=owner):
                    metadata = pod["metadata"]
                    assert isinstance(metadata, dict)
                    metadata["name"] = f"{name}-{metadata['name']}"
                    bodies.append(pod)
    return Measured(seconds=common.measure_loop(plane, owner, bodies))


@contextmanager
def _running(plane: ControlPlane, system: str, namespace: str, log: Path) -> Iterator[Running]:
    """One operator at a time: the others' processes would watch."""
    with ExitStack() as stack:
        if system == "dtj":
            operator = stack.enter_context(OperatorProcess.serving(plane, [namespace], log=log))
            operator.await_serving()
            yield Running([operator.pid], USER, common.jobs_path(namespace), "dtj")
        elif system == "jobset":
            manager = JobSetManager(plane)
            stack.callback(manager.stop)
            manager.start({"qps": 5000, "burst": 5000}, user="jobset-manager")
            yield Running(manager.pids, "jobset-manager", f"{JOBSETS}/namespaces/{namespace}/jobsets", "JobSet")
        else:
            training = TrainingOperator(plane)
            stack.callback(training.stop)
            training.start(*(TUNED if system == "tfjob-tuned" else ()), user="tfjob-manager")
            yield Running(training.pids, "tfjob-manager", f"{TFJOBS}/namespaces/{namespace}/tfjobs", "TFJob")


def _tfjob(name: str, workers: int) -> JsonObject:
    worker: JsonObject = {
        "replicas": workers,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [CONTAINER]}},
    }
    spec: JsonObject = {"tfReplicaSpecs": {"Worker": worker}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}, "spec": spec}


def _jobset(name: str, workers: int) -> JsonObject:
    pod: JsonObject = {"spec": {"restartPolicy": "Never", "subdomain": name, "containers": [CONTAINER]}}
    job: JsonObject = {
        "completionMode": "Indexed",
        "parallelism": workers,
        "completions": workers,
        "backoffLimit": 0,
        "template": pod,
    }
    spec: JsonObject = {
        "network": {"enableDNSHostnames": True, "subdomain": name, "publishNotReadyAddresses": True},
        "replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}],
    }
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": name}, "spec": spec}


def _options() -> argparse.Namespace:
    parser = figures.parser(__doc__, rounds=(5, "how often all are measured"))
    parser.add_argument(
        "--jobs", nargs="+", type=Shape.parse, default=[Shape(100, 4)], help="number of jobs x workers (default 100x4)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=SYSTEMS, default=SYSTEMS[:-1], help="these alone; TFJob's defaults need minutes"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
