"""What a plan may ask for: an ordered tuple of actions, each a plain value that the engine carries out.

A policy returns a :class:`Decision`: the actions that it wants, and the status that they write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias

from dtj.api.json import JsonObject, name_of
from dtj.api.names import Reason
from dtj.api.status import JobStatus
from dtj.core.observed import GangApi, Pod


@dataclass(frozen=True, slots=True)
class CheckPods:
    """Ask the API server, by a strict dry run, whether it would take these pods; nothing is created.

    The answer comes back as :attr:`~dtj.core.observed.Observed.verdict` of ``generation`` in a later pass.
    ``restricted`` says whether the pods were made to fit the Pod Security Standard of that name. ``manifests`` are made
    while one goes through them, and no two are needed at the same time.
    """

    generation: int
    manifests: Iterable[JsonObject]
    restricted: bool = False


@dataclass(frozen=True, slots=True)
class LookForGangs:
    """Ask the API server which gang schedulers there are; the answer is :attr:`~dtj.core.observed.Observed.gangs`."""


@dataclass(frozen=True, slots=True)
class ReadFlavors:
    """Read these ResourceFlavors of Kueue, of which a job was given some."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReadPriorityClass:
    """Read this WorkloadPriorityClass of Kueue, which a job names."""

    name: str


@dataclass(frozen=True, slots=True)
class ReadDefaultQueue:
    """Ask whether the job's namespace has a default LocalQueue of Kueue; the answer is
    :attr:`~dtj.core.observed.Observed.default_queue`."""


@dataclass(frozen=True, slots=True)
class ReadClusterQueue:
    """Ask why a ClusterQueue of Kueue admits no job; the answer is in
    :attr:`~dtj.core.observed.Observed.cluster_queues`."""

    name: str


class Kind(StrEnum):
    """What a job may own besides its pods and the object of its gang, by the kind in the manifest."""

    SERVICE = "Service"
    CONFIG_MAP = "ConfigMap"
    """With the addresses. No informer shows it: each name stands for one content."""

    NETWORK_POLICY = "NetworkPolicy"
    CLAIM = "PersistentVolumeClaim"


@dataclass(frozen=True, slots=True)
class Create:
    """Create an object of the job, the PodGroup or Workload included. If it is refused, the rest of the plan is void.

    That the job has its ConfigMap already is no error: it has the same content.
    """

    kind: Kind | GangApi
    manifest: JsonObject

    @property
    def name(self) -> str:
        """The name of the object."""
        return name_of(self.manifest)

    def render(self) -> JsonObject:
        """The manifest, as of a pod."""
        return self.manifest


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object of the job; that it is gone is no error, and another of its name is left alone. ``uid`` is empty
    of an object that no informer shows: it is deleted if it turns out to be the job's."""

    kind: Kind | GangApi
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """Apply this merge patch, which holds the UID as a precondition: another object of that name is left alone.

    A Service is not changed while nothing may be created, and the rest of the plan is void without a NetworkPolicy.
    """

    kind: Kind | GangApi
    name: str
    patch: JsonObject


@dataclass(frozen=True, slots=True)
class UpdateWorkloadStatus:
    """Merge ``status`` into that of the job's Workload, if it is still this version; else the next pass decides."""

    api: GangApi
    name: str
    version: str
    status: JsonObject


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create one pod; that it exists already is no error.

    ``render`` makes the manifest. It is called when the pod is about to be created, and the manifest is dropped
    afterwards: each one holds the addresses of all peers, so that the manifests of a large job, all at once, need
    memory that grows with the square of its replicas.
    """

    name: str
    render: Callable[[], JsonObject]

    @classmethod
    def of(cls, manifest: JsonObject) -> CreatePod:
        """Create the pod of a manifest that is there already."""
        return cls(name_of(manifest), lambda: manifest)


@dataclass(frozen=True, slots=True)
class TellPod:
    """Tell the pod with this UID which replicas train together: ``world`` becomes an annotation. That it is gone is no
    error. If it is told ``again``, nobody waits until that is seen."""

    name: str
    uid: str
    world: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete the pod with this UID; that it is gone is no error, and another of its name is left alone."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself, and with it all that it owns."""


@dataclass(frozen=True, slots=True)
class PatchStatus:
    """Make the stored status this one, where the job is still the version that was observed."""

    status: JobStatus


@dataclass(frozen=True, slots=True)
class BestEffort:
    """Do this where it can be done: the job goes on without. An event reports that it cannot be, and it is tried
    again later; nothing else waits for it."""

    action: Create | CreatePod | Delete | DeletePod | ReadPriorityClass


@dataclass(frozen=True, slots=True)
class AskForStacks:
    """Have these pods print to their logs where their threads are; whether they do is not known."""

    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Emit:
    """Record an event about the job."""

    type: Literal["Normal", "Warning"]
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class RequeueAfter:
    """Plan this job again after this many seconds, whether or not anything happens until then."""

    seconds: float


Query: TypeAlias = CheckPods | LookForGangs | ReadFlavors | ReadPriorityClass | ReadDefaultQueue | ReadClusterQueue
"""Asks the API server something and changes nothing. The rest of the plan is void: the answer is planned with."""

Creation: TypeAlias = Create | CreatePod

Effect: TypeAlias = (
    Creation
    | Update
    | Delete
    | DeletePod
    | DeleteJob
    | UpdateWorkloadStatus
    | TellPod
    | BestEffort
    | AskForStacks
    | PatchStatus
    | Emit
    | RequeueAfter
)
"""Changes something in the cluster, or when the job is planned again."""

Action: TypeAlias = Query | Effect
Plan: TypeAlias = tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions in their order. ``status`` is the status that they write; None if they write none, now at least.

    Without actions it is a decision as well: there is nothing to do but to wait.
    """

    actions: Plan = ()
    status: JobStatus | None = None
    final: bool = False
    """Whether no other action follows: the job is deleted, and with it all that it owns."""

    @classmethod
    def of(cls, *actions: Action) -> Decision:
        """These actions, none of which writes the status."""
        return cls(actions)

    @classmethod
    def write(cls, status: JobStatus) -> Decision:
        """Write this status."""
        return cls((PatchStatus(status),), status)

    @property
    def replaces_gang(self) -> bool:
        """Whether the job's PodGroup or Workload is made or deleted."""
        return any(isinstance(each, Create | Delete) and isinstance(each.kind, GangApi) for each in self.actions)

    def then(self, *actions: Action) -> Decision:
        """The same, followed by these actions."""
        return replace(self, actions=(*self.actions, *actions))

    def after(self, *actions: Action) -> Decision:
        """The same, preceded by these actions."""
        return replace(self, actions=(*actions, *self.actions))

    def if_written(self, *actions: Action) -> Decision:
        """The same; followed by these actions if the status is written, as an event that reports a change is."""
        return self.then(*actions) if self.status is not None else self
