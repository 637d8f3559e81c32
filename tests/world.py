"""A model of a cluster, just large enough to carry out plans: what the planner asks for, happens.

Pods that are deleted stay, terminating, until :meth:`World.finish_deletions`; time moves only when told to.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from builders import NOW, ended, job
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import Annotation, Condition, Label, Reason
from dtj.api.status import Progress
from dtj.core.observed import (
    Blocker,
    Child,
    CreationRefusal,
    Flavor,
    GangApi,
    GangObject,
    GangsFound,
    Observed,
    Phase,
    Pod,
    SeenProgress,
    TemplateVerdict,
)
from dtj.core.plan import (
    Action,
    ApplyService,
    AskForStacks,
    Beside,
    CheckPods,
    CreateClaim,
    CreateGang,
    CreatePod,
    DeleteGang,
    DeleteJob,
    DeletePod,
    DeleteService,
    Emit,
    LookForGangs,
    PatchStatus,
    Plan,
    PointService,
    ReadFlavors,
    ReleaseQuota,
    RequeueAfter,
)
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.core.stragglers import Straggler

GRACE = timedelta(seconds=30)
"""The grace period of every pod."""


@dataclass
class World:
    """One job and what surrounds it."""

    job: Job
    platform: Platform = field(default_factory=Platform)
    pods: dict[str, Pod] = field(default_factory=dict)
    manifests: dict[str, JsonObject] = field(default_factory=dict)
    service: Child | None = None
    claim: Child | None = None
    tensorboard: Child | None = None
    verdict: TemplateVerdict | None = None
    template_errors: tuple[str, ...] = ()
    enforces_restricted: bool = False
    priority: int | None = None
    refusal: CreationRefusal | None = None
    obstacle: str = ""
    status_written_at: datetime | None = None
    installed: tuple[GangApi, ...] = ()
    gangs: GangsFound | None = None
    gang: GangObject | None = None
    gang_manifests: list[JsonObject] = field(default_factory=list)
    known_flavors: dict[str, Flavor] = field(default_factory=dict)
    flavors: dict[str, Flavor] = field(default_factory=dict)
    progress: SeenProgress | None = None
    stragglers: tuple[Straggler, ...] = ()
    now: datetime = NOW
    events: list[Emit] = field(default_factory=list)
    history: list[Action] = field(default_factory=list)
    created: int = 0

    def observed(self) -> Observed:
        return Observed(
            job=self.job,
            platform=self.platform,
            pods=tuple(self.pods.values()),
            service=self.service,
            claim=self.claim,
            tensorboard=self.tensorboard,
            verdict=self.verdict,
            refusal=self.refusal,
            obstacle=self.obstacle,
            status_written_at=self.status_written_at,
            gangs=self.gangs,
            gang=self.gang,
            flavors=self.flavors,
            progress=self.progress,
            stragglers=self.stragglers,
        )

    def step(self) -> Plan:
        """Plan once and carry it out; the plan."""
        actions = self.planned()
        for action in actions:
            self._carry_out(action)
        self.history.extend(actions)
        return actions

    def planned(self) -> Plan:
        """What the planner wants now."""
        return plan(self.observed(), self.now)

    def settle(self, *, passes: int = 20) -> None:
        """Plan until there is nothing left to do; fails where that does not come."""
        for _ in range(passes):
            if all(isinstance(action, RequeueAfter) for action in self.step()):
                return
        raise AssertionError(f"no steady state after {passes} passes; last plan: {self.step()}")

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def set_pod(
        self,
        replica: str,
        phase: Phase,
        *,
        exit_code: int | None = None,
        message: str = "",
        reason: str = "",
        disrupted: bool = False,
    ) -> None:
        """What a kubelet would report of a replica's pod."""
        name = f"{self.job.name}-{replica}"
        code = exit_code if exit_code is not None else {Phase.SUCCEEDED: 0, Phase.FAILED: 1}.get(phase)
        since_start = (self.now - NOW).total_seconds()
        self.pods[name] = replace(
            self.pods[name],
            phase=phase,
            ready=phase is Phase.RUNNING,
            blocker=None,
            disrupted=disrupted,
            termination=None
            if code is None
            else ended(code, after_seconds=since_start, message=message, reason=reason),
        )

    def refuse(self, replica: str, reason: str) -> None:
        """What a kubelet reports of a pod that it does not take: it has failed, and no container ever started."""
        self.set_pod(replica, Phase.FAILED, reason=reason)
        name = f"{self.job.name}-{replica}"
        self.pods[name] = replace(self.pods[name], termination=None, reason=reason)

    def block(self, replica: str, reason: Reason, message: str) -> None:
        """What scheduler or kubelet say of a pod that cannot start."""
        name = f"{self.job.name}-{replica}"
        self.pods[name] = replace(self.pods[name], blocker=Blocker(reason, message))

    def run_all(self) -> None:
        for name, pod in self.pods.items():
            if not pod.ended:
                self.pods[name] = replace(pod, phase=Phase.RUNNING, ready=True)

    def take_away(self, replica: str) -> None:
        """What a drain does, or a person: the pod is told to go."""
        self._terminate(f"{self.job.name}-{replica}")

    def _terminate(self, name: str) -> None:
        if not self.pods[name].terminating:
            told = replace(self.pods[name], deletion_requested_at=self.now, deletion_due=self.now + GRACE)
            self.pods[name] = replace(told, terminating=True, ready=False)

    def remove(self, replica: str) -> None:
        del self.pods[f"{self.job.name}-{replica}"]

    def finish_deletions(self) -> None:
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.terminating}

    def is_true(self, condition: Condition) -> bool:
        return self.job.status.is_true(condition)

    def taken(self, kind: type[Action]) -> list[Action]:
        """The actions of a kind that were carried out so far."""
        return [action for action in self.history if isinstance(action, kind)]

    def _carry_out(self, action: Action) -> None:
        match action:
            case CheckPods(generation=generation, restricted=restricted):
                wanted = self.enforces_restricted and not restricted
                errors = ("worker: violates PodSecurity",) if wanted else self.template_errors
                self.verdict = TemplateVerdict(
                    generation, self.now, errors, restricted=restricted, wants_restricted=wanted, priority=self.priority
                )
            case LookForGangs():
                self.gangs = GangsFound(self.installed, self.now)
            case ReadFlavors(names=flavors):
                self.flavors.update({name: self.known_flavors[name] for name in flavors})
            case CreateGang(api=api, manifest=body):
                self._create_gang(api, body)
            case DeleteGang(uid=uid):
                assert self.gang is not None
                assert self.gang.uid == uid
                self.gang = None
            case ReleaseQuota(version=version, status=given):
                assert self.gang is not None
                assert self.gang.version == version
                self.kueue_says(
                    {key: value for key, value in {**self.gang.status, **given}.items() if value is not None}
                )
            case Beside(action=inner):
                self._carry_out_beside(inner)
            case ApplyService(manifest=body):
                self.service = self._child(body)
            case CreateClaim(manifest=body):
                self.claim = self._child(body)
            case CreatePod(manifest=body):
                self._create(body)
            case DeletePod(name=name, uid=uid):
                if name in self.pods and self.pods[name].uid == uid:
                    self._terminate(name)
            case DeleteService(uid=uid):
                assert self.service is not None
                assert self.service.uid == uid
                self.service = None
            case DeleteJob():
                self.job = replace(self.job, deleting=True)
            case PointService(name=name, selector=selector):
                assert self.service is not None
                assert self.service.name == name
                self.service = replace(self.service, selector=selector)
            case PatchStatus(status=status):
                self.job = replace(self.job, status=status)
                self.status_written_at = self.now
            case Emit():
                self.events.append(action)
            case RequeueAfter() | AskForStacks():
                pass

    def _carry_out_beside(self, action: Action) -> None:
        match action:
            case ApplyService(manifest=body):
                self.tensorboard = self._child(body)
            case DeleteService(uid=uid):
                assert self.tensorboard is not None
                assert self.tensorboard.uid == uid
                self.tensorboard = None
            case _:
                self._carry_out(action)

    def report(self, replica: str, **progress: object) -> None:
        """What a replica's pod says of the training now."""
        said = Progress.from_object(progress)
        assert said is not None
        self.progress = SeenProgress(self.pods[f"{self.job.name}-{replica}"].uid, said, self.now)

    def kueue_says(self, status: JsonObject) -> None:
        """Kueue, or we, write the status of the Workload."""
        assert self.gang is not None
        self.gang = replace(self.gang, status=status, version=f"{int(self.gang.version) + 1}")

    def _create_gang(self, api: GangApi, body: JsonObject) -> None:
        assert self.gang is None
        self.gang_manifests.append(body)
        self.gang = GangObject(
            namespace=self.job.namespace,
            name=text(dig(body, "metadata", "name")),
            uid=f"uid-of-gang-{len(self.gang_manifests)}",
            owner_uid=text(dig(body, "metadata", "ownerReferences", 0, "uid")),
            api=api,
            version="1",
            size=text(dig(body, "metadata", "annotations", Annotation.GANG_SIZE)),
        )

    def _child(self, body: JsonObject) -> Child:
        selector = dig(body, "spec", "selector")
        return Child(
            namespace=self.job.namespace,
            name=text(dig(body, "metadata", "name")),
            uid=f"uid-{self.created}",
            owner_uid=text(dig(body, "metadata", "ownerReferences", 0, "uid")),
            selector={key: text(value) for key, value in selector.items()} if isinstance(selector, dict) else {},
        )

    def _create(self, body: JsonObject) -> None:
        name = text(dig(body, "metadata", "name"))
        assert name not in self.pods, f"{name} exists already"
        self.created += 1
        self.manifests[name] = body
        self.pods[name] = Pod(
            namespace=self.job.namespace,
            name=name,
            uid=f"uid-{self.created}",
            owner_uid=text(dig(body, "metadata", "ownerReferences", 0, "uid")),
            job_name=text(dig(body, "metadata", "labels", Label.JOB_NAME)),
            role=text(dig(body, "metadata", "labels", Label.ROLE)),
            index=int(text(dig(body, "metadata", "labels", Label.INDEX)) or -1),
            attempt=int(text(dig(body, "metadata", "labels", Label.ATTEMPT)) or 1),
            created_at=self.now,
        )


def running(*, strategy: str = "MultiWorkerMirrored", roles: dict[str, int] | None = None, **policy: object) -> World:
    """A job whose pods have all been running for some seconds."""
    world = World(job(strategy=strategy, roles=roles or {"worker": 2}, runPolicy=policy))
    world.settle()
    world.run_all()
    world.settle()
    world.advance(20)
    return world


def live(world: World) -> set[str]:
    """Pods that are not on their way out."""
    return {name for name, pod in world.pods.items() if not pod.terminating}
