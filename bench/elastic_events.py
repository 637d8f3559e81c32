"""What a job on a real node loses when workers are killed, deleted, added, taken away or lost with their node.

    PYTHONPATH=operator:tests:trainer-image python bench/elastic_events.py --rounds 3

Needs root: it starts a cluster with a node, builds both images, installs the operator by helm, and trains the digits.
*stands still* is the longest time between two steps, *as asked* the time from the event to the first step of all
workers that the job asks for then. Pods are those that ended and those that were made; the writes are the operator's,
with those of the progress. The jobs that are not elastic: a plain one, which loses a worker, and one with restartScope
Job, which is scaled: all of its replicas start again with new pods. The jobs without a volume keep copies in memory.

A node is lost as if its power failed, with the default grace period of the node controller. It is a second one, on
which worker 2 of three runs. Nothing schedules another pod for it, as there is no room elsewhere: without a spare, the
event is over when the two others train.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import figures
from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, dig, object_at
from support.chart import Helm
from support.cluster_jobs import ClusterJobs, training
from support.installation import NAMESPACE, Installation
from testbed import Image, NodeCluster, binaries, images, node, packages
from testbed.processes import wait_until
from testbed.second_node import SecondNode

NAME: Final = "digits"
SHAPE: Final = ("--epochs=100000", "--steps-per-call=1", "--progress-every=0.05")
IMAGES: Final = {"image": images.OPERATOR, "trainerImage": images.TRAINER}
SETTLE_SECONDS: Final = 3.0
"""For the operator's last writes."""

Event = tuple[str, Callable[[ClusterJobs], object], int]
"""Its name, what happens, and with how many workers the job trains afterwards."""


@dataclass(frozen=True)
class Trained:
    """A job, and what happens to it. One without events loses a node, and trains with ``left`` workers then."""

    kind: str
    workers: int
    spec: JsonObject
    events: tuple[Event, ...] = ()
    left: int = 0


def pod_of(jobs: ClusterJobs, worker: str) -> str:
    """The name of a replica's pod that runs; empty if there is none."""
    return next((name for name in running(jobs) if name.startswith(f"{NAME}-{worker}")), "")


def kill(*workers: str) -> Callable[[ClusterJobs], object]:
    def happens(jobs: ClusterJobs) -> None:
        command = ("--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")
        pods = [pod_of(jobs, worker) for worker in workers]
        with ThreadPoolExecutor() as at_once:
            list(at_once.map(lambda pod: jobs.kubectl("exec", pod, *command), pods))

    return happens


def delete(jobs: ClusterJobs) -> None:
    """The pod of the last member: which one that is changes when a spare takes a place."""
    spec, world = jobs.job(NAME)["spec"], dig(jobs.job(NAME), "status", "world", "members", "worker")
    last = re.findall(r"\d+", str(world))[-1] if world else spec["replicaSpecs"]["worker"]["replicas"] - 1
    jobs.kubectl("delete", "pod", pod_of(jobs, f"worker-{last}"), "--wait=false")


def scale(workers: int) -> Callable[[ClusterJobs], object]:
    return lambda jobs: jobs.kubectl("scale", f"dtj/{NAME}", f"--replicas={workers}")


LOSSES: Final[tuple[Event, ...]] = (("kill -9 of a process", kill("worker-1"), 2), ("pod deleted", delete, 2))
SCALES: Final[tuple[Event, ...]] = (("2 to 3 workers", scale(3), 3), ("3 to 2 workers", scale(2), 2))
IN_MEMORY: Final[tuple[Event, ...]] = (
    ("kill -9 of all but one", kill("worker-1", "worker-2"), 3),
    ("pod deleted", delete, 3),
)
ELASTIC: Final[JsonObject] = {"maxReplicas": 3}
SPARE: Final[JsonObject] = {"maxReplicas": 3, "spares": 1}
VOLUME: Final[JsonObject] = {"claimTemplate": CLAIM_TEMPLATE, "everySteps": 20}
NO_VOLUME: Final[JsonObject] = {"checkpoint": {"inMemory": {}}, "runPolicy": {"restartScope": "Pod"}}
JOBS: Final = (
    Trained("elastic", 2, {"checkpoint": VOLUME, "elastic": ELASTIC}, (*LOSSES, *SCALES)),
    Trained("not elastic", 2, {"checkpoint": VOLUME}, LOSSES),
    Trained("not elastic", 2, {"checkpoint": VOLUME, "elastic": ELASTIC, "runPolicy": {"restartScope": "Job"}}, SCALES),
    Trained("with a spare", 2, {"checkpoint": VOLUME, "elastic": SPARE}, LOSSES[1:]),
    Trained("without a volume", 3, {**NO_VOLUME, "elastic": ELASTIC}, IN_MEMORY),
    Trained("node lost", 3, {**NO_VOLUME, "elastic": ELASTIC}, left=2),
    Trained("node lost with a spare", 3, {**NO_VOLUME, "elastic": SPARE}, left=3),
)


@dataclass(frozen=True)
class Measured:
    """One event. See the top of the file."""

    stands_still: float
    as_asked: float
    steps_again: int
    pods_ended: int
    pods_made: int
    writes: int


class Log:
    """What the leader prints, over all of its pods: a pod that is deleted takes its log with it."""

    def __init__(self, jobs: ClusterJobs, folder: Path) -> None:
        self._jobs = jobs
        self._pod = pod_of(jobs, "worker-0")
        self._file = folder / f"{self._pod}-{time.monotonic_ns()}.log"
        command = [str(jobs.cluster.kubectl_path), f"--kubeconfig={jobs.cluster.kubeconfig}", "-n", jobs.namespace]
        with self._file.open("wb") as file:
            self._follower = subprocess.Popen(
                [*command, "logs", "-f", "--timestamps", "--since=5s", self._pod], stdout=file, stderr=subprocess.STDOUT
            )

    def lines(self) -> list[tuple[datetime, str]]:
        """With their times."""
        text, pod, jobs = self._file.read_text(), pod_of(self._jobs, "worker-0"), self._jobs
        if pod not in ("", self._pod):
            text += jobs.cluster.kubectl("logs", "-n", jobs.namespace, "--timestamps", pod, check=False).stdout
        split = (line.partition(" ") for line in text.splitlines())
        found = ((stamp, words) for stamp, _, words in split if re.match(r"\d{4}-\d\d-\d\dT", stamp))
        return [(datetime.fromisoformat(f"{stamp[:26]}+00:00"), words) for stamp, words in found]

    def close(self) -> None:
        self._follower.kill()
        self._follower.wait()


def main() -> None:
    """Measure, and print a line for each event."""
    parser = figures.parser(__doc__, rounds=(3, "how often each event happens"))
    parser.add_argument("--only", choices={job.kind for job in JOBS}, action="append", help="only jobs of these kinds")
    options = parser.parse_args()
    found: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder)) as (cluster, image):
        for job in JOBS:
            if options.only and job.kind not in options.only:
                continue
            rounds = all_events if job.events else lost_nodes
            for name, measured in rounds(cluster, Path(folder), job, image, options.rounds):
                found.setdefault(name, []).append(measured)
                print(f"# {name}: {measured}", flush=True)
    figures.print_machine()
    for name, each in found.items():
        figures.print_figure(f"{name:<42}", _in_words(each))


def all_events(
    cluster: NodeCluster, folder: Path, job: Trained, image: Image, rounds: int
) -> Iterator[tuple[str, Measured]]:
    """Have each event happen to one job, round by round."""
    with submitted(cluster, job, image) as jobs:
        for _ in range(rounds):
            for name, happens, workers in job.events:
                yield f"{name}, {job.kind}", measure(cluster, jobs, folder, happens, workers)


def lost_nodes(
    cluster: NodeCluster, folder: Path, job: Trained, image: Image, rounds: int
) -> Iterator[tuple[str, Measured]]:
    """Lose a node with worker 2, round by round another one with another job."""
    for index in range(rounds):
        name = f"lost-{os.getpid() % 10_000}-{index}"
        with SecondNode.beside(cluster, name) as second, submitted(cluster, job, image, scheduler=NAME) as jobs:
            second.load_image(image)
            wait_until(lambda: len(jobs.pods()) == job.workers + spares(job.spec), what="the pods")
            for pod in jobs.pods():
                target = {"kind": "Node", "name": name if pod.startswith(f"{NAME}-worker-2") else node.NAME}
                path = f"/api/v1/namespaces/{jobs.namespace}/pods/{pod}/binding"
                cluster.api.request("POST", path, {"metadata": {"name": pod}, "target": target})
            with ExitStack() as loss:
                yield job.kind, measure(cluster, jobs, folder, lambda _: loss.enter_context(second.lost()), job.left)


@contextmanager
def submitted(cluster: NodeCluster, job: Trained, image: Image, *, scheduler: str = "") -> Iterator[ClusterJobs]:
    """A job in a namespace of its own. Another scheduler than the default one leaves the pods to the caller."""
    jobs = ClusterJobs(cluster, cluster.new_namespace("bench"))
    body = training(NAME, *SHAPE, image=image.name, roles={"worker": job.workers})
    spec = object_at(body, "spec")
    spec.update(job.spec)
    if scheduler:
        object_at(object_at(spec, "template"), "spec")["schedulerName"] = scheduler
    jobs.submit(body)
    yield jobs
    jobs.kubectl("delete", f"dtj/{NAME}", "--wait=false")
    # The pods of a lost node end by nothing else.
    jobs.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
    wait_until(lambda: not jobs.pods(), what="the end of the pods")


@contextmanager
def installed(folder: Path) -> Iterator[tuple[NodeCluster, Image]]:
    """A cluster with the operator, and the trainer's image, which is on its node."""
    packages.ensure(packages.NODE)
    programs = binaries.ensure((*binaries.CONTROL_PLANE, *binaries.NODE, "helm"))
    cluster = NodeCluster.launch(f"bench-nodes-{os.getpid()}", owner=os.getpid(), binaries=programs)
    try:
        cluster.install_crds()
        built = {value: images.build(recipe, docker=False) for value, recipe in IMAGES.items()}
        values: JsonObject = {"crds": {"enabled": False}}
        for value, image in built.items():
            cluster.load_image(image)
            values[value] = dict(zip(("repository", "tag"), image.name.rsplit(":", 1), strict=True))
        helm = Helm(program=programs["helm"], home=folder, kubeconfig=cluster.kubeconfig)
        Installation(cluster, helm, values).install()
        yield cluster, built["trainerImage"]
    finally:
        cluster.stop()


def measure(
    cluster: NodeCluster, jobs: ClusterJobs, folder: Path, happens: Callable[[ClusterJobs], object], workers: int
) -> Measured:
    """Have an event happen to a job that trains and has a checkpoint, and wait until it trains as asked."""
    wait_until(lambda: is_settled(jobs), what="the job to train, and to have a checkpoint")
    before, mark, log = running(jobs), cluster.audit.mark(), Log(jobs, folder)
    try:
        wait_until(lambda: bool(steps(log.lines())), what="the leader's log")
        began = datetime.now(UTC)
        happens(jobs)
        wait_until(lambda: has_resumed(log.lines(), began, workers), what=f"the training with {workers} workers")
        wait_until(lambda: is_settled(jobs, workers), what="all pods")
        time.sleep(SETTLE_SECONDS)
        lines, after = log.lines(), running(jobs)
    finally:
        log.close()
    calls = cluster.audit.writes(since=mark, namespace=jobs.namespace)
    writes = [call for call in calls if call.user.startswith(f"system:serviceaccount:{NAMESPACE}:")]
    resumed = [place for place, (at, words) in enumerate(lines) if at > began and words.startswith("resumed: step ")]
    first = steps(lines[resumed[-1] :])[0][0]
    times = [at for at, _ in steps(lines) if at <= first]
    since = max(at for at in times if at <= began)
    gaps = [(b - a).total_seconds() for a, b in pairwise(times) if a >= since]
    redone = 0
    for place in resumed:
        furthest = max((step for _, step in steps(lines[:place])), default=0)
        redone += max(0, furthest - int(lines[place][1].split()[2]))
    ended, made = (len(a.keys() - b.keys()) for a, b in ((before, after), (after, before)))
    return Measured(max(gaps), (first - began).total_seconds(), redone, ended, made, len(writes))


def has_resumed(lines: list[tuple[datetime, str]], since: datetime, workers: int) -> bool:
    """Whether so many workers have done a step after a moment."""
    words = [line for at, line in lines if at > since]
    starts = [place for place, line in enumerate(words) if f" replicas {workers} " in line]
    return bool(starts) and any(line.startswith("step ") for line in words[starts[-1] :])


def steps(lines: list[tuple[datetime, str]]) -> list[tuple[datetime, int]]:
    """The lines of progress: when, and which step."""
    found = ((at, re.match(r"step (\d+)/", words)) for at, words in lines)
    return [(at, int(match[1])) for at, match in found if match is not None]


def running(jobs: ClusterJobs) -> dict[str, str]:
    """The UIDs of the pods that run, by name."""
    return {
        name: pod["metadata"]["uid"]
        for name, pod in jobs.pods().items()
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def is_settled(jobs: ClusterJobs, workers: int | None = None) -> bool:
    """Whether so many workers train, or all that the job asks for, with a checkpoint after their start, the status says
    so, and all pods run, spares too. (The pod of a lost node runs as long as nobody deletes it.)"""
    job = jobs.job(NAME)
    spec, status = job["spec"], job.get("status", {})
    progress, wanted = status.get("progress", {}), spec["replicaSpecs"]["worker"]["replicas"]
    leader = pod_of(jobs, "worker-0")
    lines = jobs.log(leader).splitlines() if leader else []
    starts = [place for place, line in enumerate(lines) if " replicas " in line]
    own = lines[starts[-1] :] if starts else []
    done = [int(match[1]) for line in own if (match := re.match(r"step (\d+)/", line)) is not None]
    trains = bool(done) and done[-1] - done[0] > 40
    known = "elastic" not in spec or "world" in progress or dig(spec, "runPolicy", "restartScope") == "Job"
    counted = status.get("ready") == f"{wanted if workers is None else workers}/{wanted}"
    complete = len(running(jobs)) == wanted + spares(spec)
    return bool(counted and complete and status.get("state") == "Running" and trains and known)


def spares(spec: JsonObject) -> int:
    """How many more pods than workers a job has."""
    count = dig(spec, "elastic", "spares")
    return count if isinstance(count, int) else 0


def _in_words(rounds: list[Measured]) -> str:
    def seconds(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} s ({min(values):.1f} to {max(values):.1f})"

    def whole(values: list[int]) -> str:
        return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"

    return (
        f"stands still {seconds([one.stands_still for one in rounds])}, "
        f"as asked after {seconds([one.as_asked for one in rounds])}, "
        f"steps again {whole([one.steps_again for one in rounds])}, "
        f"pods ended {whole([one.pods_ended for one in rounds])}, made {whole([one.pods_made for one in rounds])}, "
        f"writes {whole([one.writes for one in rounds])}"
    )


if __name__ == "__main__":
    main()
