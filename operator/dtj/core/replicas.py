"""The replicas of a job: which there are, what they are called, who decides about success."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dtj.api.form import Form
from dtj.api.job import Job
from dtj.api.json import whole_number
from dtj.api.spec import MAX_REPLICAS, JobSpec, RestartPolicy, Role, Strategy, SuccessPolicy
from dtj.api.status import JobStatus

TRAINING_ROLES = (Role.CHIEF, Role.WORKER)
"""The roles that compute gradients: they get the job's accelerator, and their order ranks TPU hosts."""


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """One task: a role and its index."""

    role: Role
    index: int

    @property
    def hostname(self) -> str:
        """Host name of its pod, within the job's subdomain."""
        return f"{self.role}-{self.index}"


def replicas(spec: JobSpec, roles: Iterable[Role] = Role) -> tuple[Replica, ...]:
    """All replicas of a job that have pods, in TF_CONFIG's order; spares are the last workers. A role with no replicas
    takes no part."""
    return tuple(Replica(role, index) for role in roles for index in range(spec.pods(role)))


def training_replicas(spec: JobSpec) -> tuple[Replica, ...]:
    """The replicas that compute gradients when an attempt begins; a replica's place is its rank."""
    return tuple(Replica(role, index) for role in TRAINING_ROLES for index in range(spec.replicas(role)))


def possible_members(spec: JobSpec) -> tuple[Replica, ...]:
    """The same with the spares, which take the place of lost ones."""
    return replicas(spec, TRAINING_ROLES)


def drives_slice(spec: JobSpec, role: Role) -> bool:
    """Whether a role is the chief of a TPU slice, which drives its hosts, the workers, from a pod without TPUs."""
    both = spec.replicas(Role.CHIEF) > 0 and spec.replicas(Role.WORKER) > 0
    return both and spec.strategy is Strategy.TPU and role is Role.CHIEF


def roles_that_may_fail(spec: JobSpec, form: Form) -> tuple[Role, ...]:
    """The roles whose replicas may fail without an end of the job: as in Kubeflow, dynamic workers that never start
    again. An exit code or a limit that forbids their restart ends it."""
    workers = spec.replica_specs.get(Role.WORKER)
    never = workers is not None and workers.restart_policy is RestartPolicy.NEVER
    return (Role.WORKER,) if never and form.dynamic_workers else ()


def deciding_replicas(spec: JobSpec, members: frozenset[Replica] | None = None) -> frozenset[Replica]:
    """The replicas whose success together is the job's, by its success policy. If an elastic job trains with some of
    its replicas alone, these are its ``members``. Replicas that only serve the first one never complete."""
    training = training_replicas(spec)
    if members is not None:
        training = tuple(each for each in possible_members(spec) if each in members)
    if spec.run_policy.success_policy is SuccessPolicy.ALL_WORKERS and not _serve_the_first(spec):
        return frozenset(training)
    return frozenset(training[:1])


def _serve_the_first(spec: JobSpec) -> bool:
    """Whether all but the first training replica are servers: stages of a pipeline, or hosts that a chief drives."""
    return drives_slice(spec, Role.CHIEF) or spec.strategy is Strategy.PIPELINE


def deciding_replica(spec: JobSpec, members: frozenset[Replica] | None = None) -> Replica | None:
    """The chief, or the first worker where there is none: it knows how far the training is."""
    if members is not None:
        return next((each for each in possible_members(spec) if each in members), None)
    return next((Replica(role, 0) for role in TRAINING_ROLES if spec.replicas(role)), None)


def base_name(job: Job, replica: Replica) -> str:
    """The name of a replica's first pod."""
    return f"{job.name}-{job.form.word(replica.role)}-{replica.index}"


def pod_name(job: Job, replica: Replica, incarnation: int = 0) -> str:
    """A pod's name is a function of job, replica and incarnation, so that creating it twice makes one pod.

    Later incarnations have names of their own: they need not wait for the pod of the one before to be gone.
    """
    return base_name(job, replica) + (f"-r{incarnation}" if incarnation else "")


def number_of(name: str, job: Job, replica: Replica) -> int | None:
    """The incarnation of a replica's pod that has this name; None where it is no name of ours."""
    suffix = name.removeprefix(pod_name(job, replica))
    if suffix in ("", name):
        return 0 if suffix == "" else None
    number = suffix.removeprefix("-r")
    return int(number) if suffix.startswith("-r") and number.isdecimal() and len(number) < 10 else None


def incarnation(status: JobStatus, replica: Replica) -> int:
    """How often a replica was started before, since its names were free: by new attempts of all, and alone."""
    counts = status.replica_statuses.get(replica.role)
    alone = counts.restarts.get(str(replica.index), 0) if counts is not None else 0
    return max(status.attempt, 1) - max(status.first_attempt, 1) + alone


def worker_selector(job: Job) -> str:
    """Label selector of the workers, as the scale subresource publishes it."""
    return f"{job.form.job_label}={job.name},{job.form.role_label}={Role.WORKER}"


def format_indexes(indexes: Iterable[int]) -> str:
    """Indexes as ranges, ``0-2,5``, as an indexed batch Job writes ``completedIndexes``."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in _ranges(sorted(set(indexes))))


def parse_indexes(text: str) -> frozenset[int]:
    """The inverse of :func:`format_indexes`; parts that cannot be read are left out, and what no replica can have.

    Others may have written it. So no index is visited twice, however often ranges name it.
    """
    found: set[int] = set()
    following = 0
    for first, last in sorted(_read_ranges(text)):
        found.update(range(max(first, following), last + 1))
        following = max(following, last + 1)
    return frozenset(found)


def _read_ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split(","):
        begin, _, end = part.partition("-")
        first, last = (whole_number(each, most=MAX_REPLICAS - 1) for each in (begin, end or begin))
        if first is not None and last is not None:
            yield first, last


def _ranges(indexes: list[int]) -> Iterator[tuple[int, int]]:
    start = previous = None
    for index in indexes:
        if previous is None or start is None:
            start = index
        elif index != previous + 1:
            yield start, previous
            start = index
        previous = index
    if start is not None and previous is not None:
        yield start, previous
