"""What the planner looks at: one job and the objects around it, as plain values.

The engine builds these from its in-memory stores; nothing here reads a cluster or a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dtj.api.goodput import Sums
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Reason
from dtj.api.spec import Gang
from dtj.api.status import Progress
from dtj.core.platform import Platform


class Phase(StrEnum):
    """``status.phase`` of a pod."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Termination:
    """How the main container ended, or the init container that kept it from starting.

    ``init_container`` is the name of that init container, empty for the main one. ``final`` is whether the trainer or
    the launcher says that no restart can help; ``message`` is without the line that says so.
    """

    exit_code: int
    signal: int | None = None
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    init_container: str = ""
    final: bool = False


@dataclass(frozen=True, slots=True)
class Blocker:
    """What keeps a pod from starting, or ails its other containers: our word for it, and the words of the scheduler or
    the kubelet.

    ``container`` is the container if it is not the main one; ``at`` is when it failed last if it seems well again.
    """

    reason: Reason
    message: str
    container: str = field(default="", compare=False)
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that carries a job's labels, whoever owns it. ``role``, ``index`` and ``attempt`` come from the labels.

    ``disrupted`` is its condition DisruptionTarget; ``deletion_requested_at`` is when it was asked to stop,
    ``deletion_due`` when its grace period is over. ``sidecars`` shows whether an ordinary container besides the main
    one has not ended, ``probed`` whether the main one has a probe for which the kubelet kills it. ``silent`` is whether
    it is not ready because nothing has been heard of its node.
    """

    namespace: str
    name: str
    uid: str
    owner_uid: str
    job_name: str
    role: str
    index: int
    attempt: int = 1
    phase: Phase = Phase.PENDING
    ready: bool = False
    silent: bool = False
    terminating: bool = False
    deletion_requested_at: datetime | None = None
    deletion_due: datetime | None = None
    disrupted: bool = False
    node: str = ""
    ip: str = ""
    reason: str = ""
    message: str = ""
    termination: Termination | None = None
    last_end: Termination | None = None
    """How its main container ended before its kubelet started it again, as it does in pods of Kubeflow's operator."""

    sidecars: bool = False
    probed: bool = False
    blocker: Blocker | None = None
    created_at: datetime | None = None
    world: str = ""
    """Which replicas it knows to train together, as :class:`dtj.core.membership.World` writes it."""

    @property
    def main_container_ended(self) -> bool:
        """Whether its main container has ended, for good: a replica's pod restarts none of its containers.

        What other containers do, now or later, decides nothing. What holds resources is another matter: see
        :attr:`all_containers_ended`.
        """
        return self.all_containers_ended or self.termination is not None

    @property
    def all_containers_ended(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.phase in (Phase.SUCCEEDED, Phase.FAILED)

    @property
    def succeeded(self) -> bool:
        """Whether its main container has ended with exit code 0."""
        if self.termination is not None:
            return self.termination.exit_code == 0
        return self.phase is Phase.SUCCEEDED

    @property
    def failed(self) -> bool:
        """Whether its main container has ended otherwise, or never starts."""
        return self.main_container_ended and not self.succeeded


@dataclass(frozen=True, slots=True)
class SeenProgress:
    """What a pod reported of the training, and when it reported something else than before.

    ``still_for`` is the time between the first and the latest answer to this process that show the same place, with all
    pods ready in between: 0 after one answer, and it does not grow while the pod is silent. ``sums`` are what its
    container's time went to, as of the latest answer.
    """

    pod_uid: str
    progress: Progress
    at: datetime
    still_for: timedelta = timedelta()
    sums: Sums | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """A pod does not answer: ``lasted`` is the time between the first and the latest of its unanswered questions."""

    pod: Pod
    lasted: timedelta


@dataclass(frozen=True, slots=True)
class Child:
    """A Service, NetworkPolicy or PersistentVolumeClaim that has a name of ours.

    ``selector`` is a Service's (one that is equal to none of ours, if it cannot be ours), and so is ``config_map``, the
    name of the one with the addresses of the replicas.
    ``digest`` is what we noted on a NetworkPolicy when we wrote it. ``job_name`` is the job that its labels name.
    """

    namespace: str
    name: str
    uid: str
    owner_uid: str
    selector: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    config_map: str = ""
    job_name: str = ""


@dataclass(frozen=True, slots=True)
class GangApi:
    """An API through which a scheduler learns which pods belong together."""

    gang: Gang
    api_version: str
    kind: str
    plural: str


@dataclass(frozen=True, slots=True)
class GangsFound:
    """Which of the known APIs the cluster serves, and when that was asked; ``denied`` are those that the operator has
    no right to, ``unknown`` the versions of their groups that it does not know. ``failing`` are those whose objects
    cannot be listed, with the words of the API server: their webhook is away, for example. ``hidden`` are, by
    namespace, those whose objects cannot be listed there alone."""

    apis: tuple[GangApi, ...]
    at: datetime
    denied: tuple[GangApi, ...] = ()
    unknown: tuple[str, ...] = ()
    failing: dict[Gang, str] = field(default_factory=dict)
    hidden: dict[str | None, dict[Gang, str]] = field(default_factory=dict)

    def within(self, namespace: str) -> GangsFound:
        """What a job of this namespace is to know. An API that is allowed elsewhere is to be used here, too, as soon as
        it can be: the job must not start without."""
        if not (hidden := self.hidden.get(namespace)):
            return self
        apis = tuple(api for api in self.apis if api.gang not in hidden)
        return replace(self, apis=apis, failing={**self.failing, **hidden}, hidden={})


@dataclass(frozen=True, slots=True)
class GangObject:
    """The PodGroup or Workload that has a job's name. ``size`` and ``pods`` are what we noted of the job
    and of its pods when we made it.

    ``status`` is what the scheduler or the queue says, as far as it is read; ``active`` is Kueue's word for a Workload
    that may be admitted. ``queue`` is the LocalQueue, ``priority_class`` the WorkloadPriorityClass, ``gated_by`` the
    admission gate, ``max_seconds`` the limit of time in all and ``last_checkpoint`` our note of that of a Workload.
    """

    namespace: str
    name: str
    uid: str
    owner_uid: str
    api: GangApi
    version: str = ""
    size: str = ""
    pods: str = ""
    queue: str = ""
    priority_class: str = ""
    gated_by: str = ""
    last_checkpoint: str = ""
    max_seconds: int | None = None
    active: bool = True
    terminating: bool = False
    status: JsonObject = field(default_factory=dict)
    job_name: str = ""
    """The job that its labels name."""

    owners: tuple[JsonObject, ...] | None = ()
    """The references to owners that do not control it; None if they are more than are kept."""


@dataclass(frozen=True, slots=True)
class Flavor:
    """A ResourceFlavor of Kueue: where the pods that are admitted to it go, as it was ``read_at`` some time."""

    node_labels: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[JsonObject, ...] = ()
    read_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class DefaultQueue:
    """Whether a namespace has a default LocalQueue of Kueue, and when that was asked.

    ``denied`` are the words of an API server that does not let the operator ask; empty if it does.
    """

    found: bool
    at: datetime
    denied: str = ""


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """Why a ClusterQueue admits no job, in Kueue's words, when that was asked; empty if nobody says."""

    words: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Straggler:
    """A slow replica, by host name, and how many times as long as the median its steps take."""

    hostname: str
    times: float


@dataclass(frozen=True, slots=True)
class TemplateVerdict:
    """What the API server's strict dry run reported of the first pod of each role, at one generation, and when.

    ``errors`` are the server's own words, empty when it accepted all. ``restricted`` says whether the pods were
    made to fit the Pod Security Standard "restricted", as those that follow are then; ``wants_restricted``, whether
    the namespace enforces it and refused one of them. ``priority`` is what the cluster makes of their priority class.
    """

    generation: int
    at: datetime
    errors: tuple[str, ...] = ()
    restricted: bool = False
    wants_restricted: bool = False
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class CreationRefusal:
    """The API server's latest refusal to create an object of this job (quota, webhook, forbidden)."""

    name: str
    reason: str
    message: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a plan may depend on.

    ``pods`` holds every pod with this job's labels or one of its pod names, also those of other owners:
    telling them apart by the owner's UID is the planner's business.
    """

    job: Job
    platform: Platform
    pods: tuple[Pod, ...] = ()
    service: Child | None = None
    services: tuple[Child, ...] = ()
    """Of a TFJob: every Service with this job's labels, or with a name that one of its replicas needs."""

    network_policy: Child | None = None
    claim: Child | None = None
    tensorboard: Child | None = None
    """The Service that has the name of TensorBoard's."""

    verdict: TemplateVerdict | None = None
    refusal: CreationRefusal | None = None
    obstacle: str = ""
    """What the API server says to calls about this job that it does not carry out, creations of objects aside."""

    status_written_at: datetime | None = None
    told: frozenset[Reason] = frozenset()
    """The reasons of all events of the job that this process has recorded."""

    gangs: GangsFound | None = None
    """None where nobody has asked yet."""

    gang: GangObject | None = None
    flavors: dict[str, Flavor] = field(default_factory=dict)
    workload_priorities: dict[str, int] = field(default_factory=dict)
    """The values of WorkloadPriorityClasses of Kueue, by name."""

    default_queue: DefaultQueue | None = None
    """None where nobody has asked yet."""

    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    progress: SeenProgress | None = None
    silence: Silence | None = None
    """None where the pod that is asked for its progress answers, or was not asked yet."""

    stragglers: tuple[Straggler, ...] = ()
    waiting: frozenset[str] = frozenset()
    """The UIDs of the pods of an elastic job that say that they are ready to join the others."""

    start_troubles: dict[str, Blocker] = field(default_factory=dict)
    """What events say keeps pods from starting of which their status is silent, by the pod's UID."""
