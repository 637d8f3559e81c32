"""What a person wants to see of a running job: plain values, made of the job's status, its pods and their progress."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dtj.api.job import Job
from dtj.api.spec import JobSpec, ReplicaSpec
from dtj.api.status import Progress
from dtj.core.observed import Phase, Pod
from dtj.core.pod_state import PodState, main_container_of, replica_of, state_text, stopped_on_request
from dtj.core.replicas import Replica, replicas

_WORDS: Final = {"Gate": "Starting", "Done": "Finishing"}
"""The trainer's phases whose own names say little to a person. At the gate it loads TensorFlow and finds its peers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica: what it is doing, and its progress if that is known."""

    replica: Replica
    state: str
    progress: Progress

    @property
    def name(self) -> str:
        """``worker-0``."""
        return self.replica.hostname


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A job at one moment; ``elapsed`` in seconds since its start."""

    job: str
    strategy: str
    state: str
    elapsed: float
    replicas: tuple[ReplicaView, ...]


def run_view(
    job: Job,
    spec: JobSpec,
    *,
    pods: Iterable[Pod],
    progress: Mapping[Replica, Progress],
    elapsed: float,
    started: Container[str],
) -> RunView:
    """The job as it is now. ``pods`` are its own; of those of a replica the newest counts. A replica without a pod has
    stopped if its host name is one of ``started``."""
    newest = newest_pods(pods)
    on_request = stopped_on_request(newest.values())
    return RunView(
        job=job.name,
        strategy=str(spec.strategy),
        state=job.status.state or "Pending",
        elapsed=elapsed,
        replicas=tuple(
            _replica(
                replica,
                newest.get(replica),
                progress.get(replica, _quiet(spec, replica)),
                stopped=replica.hostname in started,
                on_request=on_request,
            )
            for replica in replicas(spec)
        ),
    )


def newest_pods(pods: Iterable[Pod]) -> dict[Replica, Pod]:
    """Of each replica its newest pod; a later incarnation has a longer name, or a larger number in it."""
    ordered = sorted(pods, key=lambda pod: (pod.attempt, len(pod.name), pod.name))
    return {replica: pod for pod in ordered if (replica := replica_of(pod)) is not None}


def _quiet(spec: JobSpec, replica: Replica) -> Progress:
    """What is assumed of a replica that has not spoken: our trainer will do so soon, a user's program never may."""
    role = spec.replica_specs.get(replica.role) or ReplicaSpec()
    command = role.command or main_container_of(role.template or spec.template or {}).get("command")
    return Progress() if command else Progress(phase="Gate")


def _replica(
    replica: Replica, pod: Pod | None, progress: Progress, *, stopped: bool, on_request: frozenset[str]
) -> ReplicaView:
    if pod is not None and pod.succeeded:
        # Its port closed with it: the last answer may be some steps short of the end.
        final = Progress.from_message(pod.termination.message) if pod.termination is not None else None
        progress = final or progress.model_copy(
            update={"step": progress.total_steps or progress.step, "eta_seconds": None}
        )
    state = _state(pod, progress, stopped=stopped, on_request=on_request)
    return ReplicaView(replica=replica, state=state, progress=progress)


def _state(pod: Pod | None, progress: Progress, *, stopped: bool, on_request: frozenset[str]) -> str:
    """The state of the pod; of one that runs, what its trainer does."""
    if pod is None:
        return PodState.STOPPED if stopped else PodState.PENDING
    if pod.phase is Phase.RUNNING and not (pod.main_container_ended or pod.terminating):
        return _WORDS.get(progress.phase, progress.phase) or PodState.RUNNING
    return state_text(pod, on_request=on_request)
