"""What `status.goodput` says of a job on a real node, beside a stopwatch: a queue, a kill and a suspension.

    PYTHONPATH=operator:tests:trainer-image python bench/goodput.py

Needs root: it starts a cluster with a node and the real Kueue, builds both images, installs the operator by helm, and
trains the digits with two workers. The job waits in a queue that has no quota at first; then a worker's process is
killed, and later the job is suspended for a while.

The stopwatch reads what others write: the API server's times of the job and of its pods, and the kubelet's times of
the lines that the leader prints, one for each step. So it knows no states, but moments: from the job's creation to its
first pods (`queued`), to the first step (`starting`, which the new pods after a suspension are, too), from the last
step before the kill to the first one after it (`recovering`), from the suspension to the new pods, and so on. `steps`
are all states in which steps are taken, or wait for each other. Times of the API server are whole seconds.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import figures
from dtj.api.json import JsonObject, dig, object_at
from elastic_events import VOLUME, installed, kill, pod_of
from support.cluster_jobs import ClusterJobs, training
from support.job_world import JobWorld
from support.kueue_queues import Queues
from testbed.kueue import Kueue, Limits
from testbed.processes import wait_until

NAME: Final = "digits"
QUEUE: Final = "gpus"
SHAPE: Final = ("--steps-per-call=1", "--progress-every=0.05")
REQUESTS: Final[JsonObject] = {"requests": {"cpu": "100m"}}
TRAINED_AS: Final = ("training", "checkpointing", "validating", "repeated")
"""States of a job that takes steps, or whose steps wait."""


class Leader:
    """What the pods that lead the training print, with the kubelet's times; a pod that is gone takes its log along."""

    def __init__(self, jobs: ClusterJobs, folder: Path) -> None:
        self._jobs, self._folder = jobs, folder
        self._followed: dict[str, subprocess.Popen[bytes]] = {}

    def follow(self) -> None:
        """Follow the log of the pod that leads now."""
        wait_until(lambda: bool(pod_of(self._jobs, "worker-0")), what="the leader's pod")
        pod, cluster = pod_of(self._jobs, "worker-0"), self._jobs.cluster
        command = [str(cluster.kubectl_path), f"--kubeconfig={cluster.kubeconfig}", "-n", self._jobs.namespace]
        with (self._folder / f"{len(self._followed)}.log").open("wb") as file:
            self._followed[pod] = subprocess.Popen([*command, "logs", "-f", "--timestamps", pod], stdout=file)

    def lines(self) -> list[tuple[float, str]]:
        """All lines so far."""
        found = []
        for index in range(len(self._followed)):
            for line in (self._folder / f"{index}.log").read_text().splitlines():
                stamp, _, words = line.partition(" ")
                found.append((_seconds(stamp), words))
        return found

    def steps(self) -> list[tuple[float, int]]:
        """Each step: when it was printed, and which one it is."""
        found = ((at, re.match(r"step (\d+)/", words)) for at, words in self.lines())
        return [(at, int(match[1])) for at, match in found if match is not None]

    def close(self) -> None:
        for follower in self._followed.values():
            follower.kill()
            follower.wait()


def main() -> None:
    """Run the job, and print a line for each state."""
    parser = figures.parser(
        __doc__, queued=(20, "seconds in the queue"), suspended=(15, "seconds suspended"), epochs=(30, "of the job")
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, installed(Path(folder)) as (cluster, image):
        kueue = Kueue(cluster)
        kueue.install()
        kueue.start(Limits())
        world = JobWorld(cluster, cluster.new_namespace("bench"))
        queues, jobs = Queues(world, "bench"), ClusterJobs(cluster, world.namespace)
        queues.make(QUEUE)
        body = training(NAME, *SHAPE, f"--epochs={options.epochs}", image=image.name, roles={"worker": 2})
        spec = object_at(body, "spec")
        spec.update({"checkpoint": VOLUME, "runPolicy": {"scheduling": {"gang": "Kueue", "queue": QUEUE}}})
        container = dig(spec, "template", "spec", "containers", 0)
        assert isinstance(container, dict)
        container["resources"] = REQUESTS
        with following(jobs, Path(folder)) as leader:
            watched, said = run(jobs, queues, leader, body, options.queued, options.suspended)
    figures.print_machine()
    for state in sorted(watched.keys() | said.keys()):
        figures.print_figure(state, f"{said.get(state, 0):4} s, by the stopwatch {watched.get(state, 0.0):6.1f} s")


@contextmanager
def following(jobs: ClusterJobs, folder: Path) -> Iterator[Leader]:
    leader = Leader(jobs, folder)
    yield leader
    leader.close()


def run(
    jobs: ClusterJobs, queues: Queues, leader: Leader, body: JsonObject, queued: float, suspended: float
) -> tuple[dict[str, float], dict[str, int]]:
    """The seconds of each state, by the stopwatch and by the status."""
    jobs.submit(body)
    time.sleep(queued)
    queues.make(QUEUE, cpus=1)
    pods_made = _first_pods(jobs)
    leader.follow()
    wait_until(lambda: len(leader.steps()) > 100, what="a hundred steps")
    kill("worker-1")(jobs)
    wait_until(lambda: any(words.startswith("resumed") for _, words in leader.lines()), what="the restart in place")
    resumed_at = [at for at, words in leader.lines() if words.startswith("resumed")][-1]
    wait_until(lambda: len([at for at, _ in leader.steps() if at > resumed_at]) > 100, what="a hundred more steps")

    jobs.suspend(NAME, suspend=True)
    jobs.await_condition(NAME, "Suspended")
    stopped = _condition(jobs, "Suspended")
    time.sleep(suspended)
    before = jobs.uids()
    jobs.suspend(NAME, suspend=False)
    wait_until(lambda: bool(jobs.uids().keys() - before.keys()), what="the pods after the suspension")
    pods_again = _first_pods(jobs)
    leader.follow()
    jobs.await_condition(NAME, "Complete")
    job = jobs.job(NAME)
    status = job["status"]
    created, ended = _seconds(job["metadata"]["creationTimestamp"]), _seconds(status["completionTime"])

    steps = leader.steps()
    first, last = steps[0], steps[-1]
    begun = [at for at, words in leader.lines() if words.startswith("resumed")]
    lost = max(at for at, _ in steps if at < begun[0])
    back = min(at for at, _ in steps if at > begun[0])
    again = min(at for at, _ in steps if at > begun[-1])
    watched = {
        "queued": pods_made - created,
        "starting": (first[0] - pods_made) + (again - pods_again),
        "steps": (lost - first[0]) + (stopped - back) + (last[0] - again),
        "recovering": back - lost,
        "suspended": pods_again - stopped,
        "other": ended - last[0],
        "lifetime": ended - created,
    }
    said = dict(status["goodput"]["seconds"])
    said["steps"] = sum(said.pop(state, 0) for state in TRAINED_AS)
    said["lifetime"] = sum(said.values())
    return watched, said


def _first_pods(jobs: ClusterJobs) -> float:
    wait_until(lambda: bool(jobs.pods()), what="pods")
    return max(_seconds(pod["metadata"]["creationTimestamp"]) for pod in jobs.pods().values())


def _condition(jobs: ClusterJobs, kind: str) -> float:
    """When a condition became what it is."""
    (found,) = [each for each in jobs.job(NAME)["status"]["conditions"] if each["type"] == kind]
    return _seconds(found["lastTransitionTime"])


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp()


if __name__ == "__main__":
    main()
