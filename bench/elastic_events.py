"""What a job on a real node loses when a worker is killed, deleted, added or taken away, elastic and not.

    PYTHONPATH=operator:tests:trainer-image python bench/elastic_events.py --rounds 3

Needs root: it starts a cluster with a node, builds both images, installs the operator by helm, and trains the digits
with two workers. *stands still* is the longest time between two steps, *as asked* the time from the event to the first
step of all workers that the job asks for then. Pods are those that ended and those that were made; the writes are the
operator's, with those of the progress. The jobs that are not elastic: a plain one, which loses a worker, and one with
restartScope Job, which is scaled: all of its replicas start again with new pods. There is one node, so none is lost.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

import figures
from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject, object_at
from support.chart import Helm
from support.cluster_jobs import ClusterJobs, training
from support.installation import NAMESPACE, Installation
from testbed import NodeCluster, binaries, images, packages
from testbed.processes import wait_until

NAME: Final = "digits"
SHAPE: Final = ("--epochs=100000", "--steps-per-call=1", "--progress-every=0.05")
SETTLE_SECONDS: Final = 3.0
"""For the operator's last writes."""

Event = tuple[str, Callable[[ClusterJobs], object], int]
"""Its name, what happens, and with how many workers the job trains afterwards."""


def pod_of(jobs: ClusterJobs, worker: str) -> str:
    """The name of a replica's pod that runs; empty if there is none."""
    return next((name for name in running(jobs) if name.startswith(f"{NAME}-{worker}")), "")


def kill(jobs: ClusterJobs) -> None:
    jobs.kubectl("exec", pod_of(jobs, "worker-1"), "--", "sh", "-c", "kill -9 $(cat /proc/1/task/1/children)")


def delete(jobs: ClusterJobs) -> None:
    jobs.kubectl("delete", "pod", pod_of(jobs, "worker-1"), "--wait=false")


def scale(workers: int) -> Callable[[ClusterJobs], object]:
    return lambda jobs: jobs.kubectl("scale", f"dtj/{NAME}", f"--replicas={workers}")


LOSSES: Final[tuple[Event, ...]] = (("kill -9 of a process", kill, 2), ("pod deleted", delete, 2))
SCALES: Final[tuple[Event, ...]] = (("2 to 3 workers", scale(3), 3), ("3 to 2 workers", scale(2), 2))
ELASTIC: Final[JsonObject] = {"maxReplicas": 3}
JOBS: Final[tuple[tuple[str, JsonObject, tuple[Event, ...]], ...]] = (
    ("elastic", {"elastic": ELASTIC}, (*LOSSES, *SCALES)),
    ("not elastic", {}, LOSSES),
    ("not elastic", {"elastic": ELASTIC, "runPolicy": {"restartScope": "Job"}}, SCALES),
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
    parser.add_argument("--elastic", action="store_true", help="leave the other jobs out")
    options = parser.parse_args()
    found: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder)) as (cluster, trainer_image):
        for kind, spec, events in JOBS[:1] if options.elastic else JOBS:
            jobs = ClusterJobs(cluster, cluster.new_namespace("bench"))
            checkpoint: JsonObject = {"claimTemplate": CLAIM_TEMPLATE, "everySteps": 20}
            body = training(NAME, *SHAPE, image=trainer_image, roles={"worker": 2}, checkpoint=checkpoint)
            jobs.submit({**body, "spec": {**object_at(body, "spec"), **spec}})
            for _ in range(options.rounds):
                for name, happens, workers in events:
                    measured = measure(cluster, jobs, Path(folder), happens, workers)
                    found.setdefault(f"{name}, {kind}", []).append(measured)
                    print(f"# {name}, {kind}: {measured}", flush=True)
            jobs.delete(NAME)
            wait_until(partial(is_gone, jobs), what="the end of the pods")
    figures.print_machine()
    for name, rounds in found.items():
        figures.print_figure(f"{name:<34}", _in_words(rounds))


@contextmanager
def installed(folder: Path) -> Iterator[tuple[NodeCluster, str]]:
    """A cluster with the operator, and the name of the trainer's image on its node."""
    packages.ensure(packages.NODE)
    programs = binaries.ensure((*binaries.CONTROL_PLANE, *binaries.NODE, "helm"))
    cluster = NodeCluster.launch(f"bench-nodes-{os.getpid()}", owner=os.getpid(), binaries=programs)
    try:
        cluster.install_crds()
        values: JsonObject = {"crds": {"enabled": False}}
        for value, recipe in (("image", images.OPERATOR), ("trainerImage", images.TRAINER)):
            image = images.build(recipe, docker=False)
            cluster.load_image(image)
            values[value] = dict(zip(("repository", "tag"), image.name.rsplit(":", 1), strict=True))
        helm = Helm(program=programs["helm"], home=folder, kubeconfig=cluster.kubeconfig)
        Installation(cluster, helm, values).install()
        yield cluster, images.TRAINER.image
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
        wait_until(lambda: len(running(jobs)) == workers and is_settled(jobs), what="all pods")
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


def is_gone(jobs: ClusterJobs) -> bool:
    return not jobs.pods()


def is_settled(jobs: ClusterJobs) -> bool:
    """Whether all replicas train, a checkpoint after their start has been written, and the status says so."""
    job = jobs.job(NAME)
    status = job.get("status", {})
    progress, wanted = status.get("progress", {}), job["spec"]["replicaSpecs"]["worker"]["replicas"]
    leader = pod_of(jobs, "worker-0")
    lines = jobs.log(leader).splitlines() if leader else []
    starts = [place for place, line in enumerate(lines) if " replicas " in line]
    own = lines[starts[-1] :] if starts else []
    done = [int(match[1]) for line in own if (match := re.match(r"step (\d+)/", line)) is not None]
    trains = bool(done) and done[-1] - done[0] > 40
    known = "elastic" not in job["spec"] or "world" in progress or "restartScope" in job["spec"].get("runPolicy", {})
    return bool(status.get("ready") == f"{wanted}/{wanted}" and status.get("state") == "Running" and trains and known)


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
