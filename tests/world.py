"""A model of a cluster, just large enough to carry out plans: what the planner asks for, happens.

Pods that are deleted stay, terminating, until :meth:`World.finish_deletions`; time moves only on request.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Self

from builders import NOW, ended, job, stored
from dtj.api.goodput import Sums
from dtj.api.job import Job
from dtj.api.json import JsonObject, apply_merge_patch, dig, object_at, text
from dtj.api.names import Annotation, Condition, Reason
from dtj.api.spec import Gang, RunPolicy
from dtj.api.status import ConditionStatus, JobStatus, Progress, RootCause
from dtj.core.actions import (
    Action,
    AskForStacks,
    BestEffort,
    CheckPods,
    Create,
    CreatePod,
    Delete,
    DeleteJob,
    DeletePod,
    Emit,
    Kind,
    LookForGangs,
    PatchStatus,
    Plan,
    ReadClusterQueue,
    ReadDefaultQueue,
    ReadFlavors,
    ReadPriorityClass,
    RequeueAfter,
    Update,
    UpdateWorkloadStatus,
)
from dtj.core.observed import (
    Blocker,
    Child,
    ClusterQueue,
    CreationRefusal,
    DefaultQueue,
    Flavor,
    GangApi,
    GangObject,
    GangsFound,
    Observed,
    Phase,
    Pod,
    SeenProgress,
    Silence,
    Straggler,
    TemplateVerdict,
)
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.kube.observed import claim_from, gang_from, network_policy_from, pod_from, service_from
from dtj.kube.records import gang_from_object, plain_from_object, pod_from_object, service_from_object
from support.gang_manifests import gang_of, members_needed
from support.planned import does
from support.pod_environment import config_maps_of

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
    services: dict[str, Child] = field(default_factory=dict)  # of a TFJob
    network_policy: Child | None = None
    config_maps: dict[str, JsonObject] = field(default_factory=dict)
    claim: Child | None = None
    tensorboard: Child | None = None
    verdict: TemplateVerdict | None = None
    template_errors: tuple[str, ...] = ()
    enforces_restricted: bool = False
    priority: int | None = None
    refusal: CreationRefusal | None = None
    obstacle: str = ""
    status_written_at: datetime | None = None
    told: set[Reason] = field(default_factory=set)
    installed: tuple[GangApi, ...] = ()
    failing: dict[Gang, str] = field(default_factory=dict)
    gangs: GangsFound | None = None
    gang: GangObject | None = None
    gang_manifests: list[JsonObject] = field(default_factory=list)
    known_priorities: dict[str, int] = field(default_factory=dict)
    workload_priorities: dict[str, int] = field(default_factory=dict)
    known_flavors: dict[str, Flavor] = field(default_factory=dict)
    flavors: dict[str, Flavor] = field(default_factory=dict)
    has_default_queue: bool = False
    queue_denied: str = ""
    default_queue: DefaultQueue | None = None
    queue_words: str = ""
    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    progress: SeenProgress | None = None
    silence: Silence | None = None
    stragglers: tuple[Straggler, ...] = ()
    now: datetime = NOW
    events: list[Emit] = field(default_factory=list)
    history: list[Action] = field(default_factory=list)
    created: int = 0
    _place: object = None
    _still_since: datetime = NOW

    def __post_init__(self) -> None:
        if not self.installed and self.gangs is None:
            self.gangs = GangsFound((), self.now)  # an operator that runs for a while knows it

    def observed(self) -> Observed:
        return Observed(
            job=self.job,
            platform=self.platform,
            pods=tuple(self.pods.values()),
            service=self.service,
            services=tuple(self.services.values()),
            network_policy=self.network_policy,
            claim=self.claim,
            tensorboard=self.tensorboard,
            verdict=self.verdict,
            refusal=self.refusal,
            obstacle=self.obstacle,
            status_written_at=self.status_written_at,
            told=frozenset(self.told),
            gangs=self.gangs,
            gang=self.gang if self.gangs and self.gang and self.gang.api.gang not in self.gangs.failing else None,
            flavors=self.flavors,
            workload_priorities=self.workload_priorities,
            default_queue=self.default_queue,
            cluster_queues=self.cluster_queues,
            progress=self.progress,
            silence=self.silence,
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

    def settle(self) -> Self:
        """Plan until there is nothing left to do; fails where that does not come."""
        for _ in range(20):
            if all(isinstance(action, RequeueAfter) for action in self.step()):
                return self
        raise AssertionError(f"no steady state after 20 passes; last plan: {self.step()}")

    def settle_deletions(self) -> None:
        """Settle, have the pods vanish that were deleted, and settle again."""
        self.settle()
        self.finish_deletions()
        self.settle()

    def start(self) -> Self:
        """Settle, have all pods run, and settle again."""
        return self.settle().all_run()

    def all_run(self) -> Self:
        """All pods that can be scheduled run, and the operator does what that asks for."""
        self.run_all()
        return self.settle()

    def becomes(self, wanted: Job) -> None:
        """Its user replaces the manifest by that of ``wanted``, and the operator does what that asks for."""
        changed = {"spec": wanted.spec, "raw_spec": wanted.raw_spec, "problems": wanted.problems}
        self.job = replace(self.job, **changed, labels=wanted.labels, generation=self.job.generation + 1)  # type: ignore[arg-type]
        self.settle()

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def wait(self, seconds: float) -> None:
        """So much time passes, and what it brings is done."""
        self.advance(seconds)
        self.settle()

    def set_pod(
        self, replica: str, phase: Phase, *, exit_code: int | None = None, message: str = "", reason: str = ""
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
            disrupted=False,
            termination=None
            if code is None
            else ended(code, after_seconds=since_start, message=message, reason=reason),
        )

    def sees(
        self, replica: str, phase: Phase, *, exit_code: int | None = None, message: str = "", reason: str = ""
    ) -> None:
        """The operator sees a replica's pod as its kubelet reports it, and does what that asks for."""
        self.set_pod(replica, phase, exit_code=exit_code, message=message, reason=reason)
        self.settle()

    def block(self, replica: str, reason: Reason, message: str) -> None:
        """What scheduler or kubelet say of a pod that cannot start."""
        name = f"{self.job.name}-{replica}"
        self.pods[name] = replace(self.pods[name], blocker=Blocker(reason, message))

    def schedule(self) -> None:
        """What schedulers do: a member of a gang waits for as many others as its PodGroup or Workload says.

        Members that have ended count no more, as for the scheduler plugins and Kubernetes' own gangs.
        """
        alive = {name: pod for name, pod in self.pods.items() if not pod.main_container_ended and not pod.terminating}
        gangs = Counter(gang_of(self.manifests[name]) for name in alive)
        for name, pod in alive.items():
            gang = gang_of(self.manifests[name])
            if gang is None or (self.gang is not None and gangs[gang] >= members_needed(self.gang_manifests[-1])):
                self.pods[name] = pod if pod.node else replace(pod, node="node-1")

    def run_all(self) -> None:
        """All pods that can be scheduled run, and are ready."""
        self.schedule()
        for name, pod in self.pods.items():
            if pod.node and not pod.main_container_ended:
                self.pods[name] = replace(pod, phase=Phase.RUNNING, ready=True)

    def take_away(self, replica: str) -> None:
        """What a drain does, or a person: the pod is asked to stop."""
        self._terminate(f"{self.job.name}-{replica}")

    def loses(self, replica: str) -> None:
        """The pod is asked to stop, and the operator does what that asks for."""
        self.take_away(replica)
        self.settle()

    def _terminate(self, name: str) -> None:
        if not self.pods[name].terminating:
            asked_to_stop = replace(self.pods[name], deletion_requested_at=self.now, deletion_due=self.now + GRACE)
            self.pods[name] = replace(asked_to_stop, terminating=True, ready=False)

    def remove(self, replica: str) -> None:
        del self.pods[f"{self.job.name}-{replica}"]

    def finish_deletions(self) -> None:
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.terminating}

    def fail_worker(self, code: int) -> None:
        """The latest pod of worker 0 fails; time passes until no backoff holds anything back, and all pods run."""
        number = self.job.status.attempt - 1
        name = "worker-0" + (f"-r{number}" if number else "")
        self.sees(name, Phase.FAILED, exit_code=code)
        self.advance(61)
        self.start()

    def condition(self, kind: Condition) -> ConditionStatus:
        """The job's condition of that kind, which must be there."""
        found = self.job.status.condition(kind)
        assert found is not None
        return found

    def root_cause(self) -> RootCause:
        """The job's, which must be there."""
        assert self.job.status.root_cause is not None
        return self.job.status.root_cause

    @property
    def the_gang(self) -> GangObject:
        """The job's PodGroup or Workload, which must be there."""
        assert self.gang is not None
        return self.gang

    def is_true(self, condition: Condition) -> bool:
        return self.job.status.is_true(condition)

    def taken(self, kind: type[Action], of: Kind | type[GangApi] | None = None) -> list[Action]:
        """The actions of a kind that were carried out so far; ``of`` is what is created, changed or deleted."""
        return [action for action in self.history if does(action, kind, of)]

    def _carry_out(self, action: Action) -> None:
        match action:
            case CheckPods(generation=generation, restricted=restricted):
                wanted = self.enforces_restricted and not restricted
                errors = ("worker: violates PodSecurity",) if wanted else self.template_errors
                self.verdict = TemplateVerdict(
                    generation, self.now, errors, restricted=restricted, wants_restricted=wanted, priority=self.priority
                )
            case LookForGangs():
                apis = tuple(api for api in self.installed if api.gang not in self.failing)
                self.gangs = GangsFound(apis, self.now, failing=dict(self.failing))
            case ReadFlavors(names=flavors):
                self.flavors.update({name: replace(self.known_flavors[name], read_at=self.now) for name in flavors})
            case ReadPriorityClass(name=name):
                if name in self.known_priorities:
                    self.workload_priorities[name] = self.known_priorities[name]
                else:
                    self.refusal = CreationRefusal(f"WorkloadPriorityClass {name}", "NotFound", "not found", self.now)
            case ReadDefaultQueue():
                self.default_queue = DefaultQueue(self.has_default_queue, self.now, self.queue_denied)
            case ReadClusterQueue(name=name):
                self.cluster_queues[name] = ClusterQueue(self.queue_words, self.now)
            case Create(GangApi() as api, body):
                self._create_gang(api, body)
            case Update(GangApi(), patch=patch):
                self._update_gang(patch)
            case Delete(GangApi(), uid=uid):
                # A stale view deletes once more what is gone; the API server answers 404, which counts as done.
                assert self.gang is None or self.gang.uid == uid
                self.gang = None
            case UpdateWorkloadStatus(version=version, status=given):
                assert self.gang is not None
                assert self.gang.version == version
                self.kueue_says(
                    {key: value for key, value in {**self.gang.status, **given}.items() if value is not None}
                )
            case BestEffort(action=inner):
                self._carry_out_best_effort(inner)
            case Create(Kind.SERVICE, body) if self.job.form.replica_services:
                made = service_from(service_from_object(self._stored(body)), self.job.form)
                assert self.services.setdefault(made.name, made) is made
            case Create(Kind.SERVICE, body):
                self.service = service_from(service_from_object(self._stored(body)))
            case Create(Kind.NETWORK_POLICY, body):
                self.network_policy = network_policy_from(plain_from_object(self._stored(body)))
            case Update(Kind.NETWORK_POLICY, patch=body):
                assert self.network_policy is not None
                assert dig(body, "metadata", "uid") == self.network_policy.uid
                self.network_policy = replace(
                    self.network_policy, digest=text(dig(body, "metadata", "annotations", Annotation.POLICY_DIGEST))
                )
            case Delete(Kind.NETWORK_POLICY, uid=uid):
                assert self.network_policy is not None
                assert self.network_policy.uid == uid
                self.network_policy = None
            case Create(Kind.CONFIG_MAP, body):
                self.config_maps[action.name] = body
            case Delete(Kind.CONFIG_MAP, name):
                self.config_maps.pop(name, None)
            case Create(Kind.CLAIM, body):
                self.claim = claim_from(plain_from_object(self._stored(body)))
            case CreatePod(render=render):
                self._create(render())
            case DeletePod(name=name, uid=uid):
                if name in self.pods and self.pods[name].uid == uid:
                    self._terminate(name)
            case Delete(Kind.SERVICE, name, uid) if self.job.form.replica_services:
                assert self.services.pop(name).uid == uid
            case Delete(Kind.SERVICE, uid=uid):
                assert self.service is not None
                assert self.service.uid == uid
                self.service = None
            case DeleteJob():
                self.job = replace(self.job, deleting=True)
            case Update(Kind.SERVICE, name, patch):
                found = self.services[name] if self.job.form.replica_services else self.service
                assert found is not None
                assert (found.name, found.uid) == (name, dig(patch, "metadata", "uid"))
                selector = {key: text(value) for key, value in object_at(object_at(patch, "spec"), "selector").items()}
                config_map = text(dig(patch, "metadata", "annotations", Annotation.CLUSTER))
                changed = replace(found, selector=selector, config_map=config_map)
                if self.job.form.replica_services:
                    self.services[name] = changed
                else:
                    self.service = changed
            case PatchStatus(status=status):
                self._store(status)
                self.status_written_at = self.now
            case Emit():
                self.events.append(action)
                self.told.add(action.reason)
            case RequeueAfter() | AskForStacks():
                pass

    def _store(self, status: JobStatus) -> None:
        job, raw = self.job, self.job.raw_status
        raw = job.form.stored(job.namespace, job.name, raw, status) if job.form.recorded_in else raw
        self.job = replace(job, status=status, raw_status=raw)

    def _carry_out_best_effort(self, action: Action) -> None:
        match action:
            case Create(Kind.SERVICE, body):
                self.tensorboard = service_from(service_from_object(self._stored(body)))
            case Delete(Kind.SERVICE, uid=uid):
                assert [uid] == [each.uid for each in (self.tensorboard,) if each is not None]
                self.tensorboard = None
            case ReadPriorityClass(name=name) if name not in self.known_priorities:
                pass
            case _:
                self._carry_out(action)

    def stands_still(self, replica: str, **progress: object) -> None:
        """Two answers that show the same place, 61 s apart."""
        for seconds in (0, 61):
            self.advance(seconds)
            self.hears(replica, **progress)

    def report(self, replica: str, **progress: object) -> None:
        """What a replica's pod answers now, when the operator asks how far the training is."""
        reported, sums = Progress.from_object(progress), Sums.from_object(progress)
        assert reported is not None
        uid, before = self.pods[f"{self.job.name}-{replica}"].uid, self.progress
        ready = self.job.status.condition(Condition.PODS_READY)
        place = (uid, ready.last_transition_time if ready is not None else "", reported.place)
        if before is None or place != self._place:
            self._place, self._still_since = place, self.now
        known = before is not None and (before.pod_uid, before.progress) == (uid, reported)
        at = before.at if before is not None and known else self.now
        self.progress, self.silence = SeenProgress(uid, reported, at, self.now - self._still_since, sums), None

    def hears(self, replica: str, **progress: object) -> None:
        """The operator receives such an answer of a replica's pod, and does what that asks for."""
        self.report(replica, **progress)
        self.settle()

    def is_silent(self, replica: str, *, seconds: float) -> None:
        """A replica's pod has not answered for so long."""
        self.silence = Silence(self.pods[f"{self.job.name}-{replica}"], timedelta(seconds=seconds))

    def operator_restarts(self) -> None:
        """Another process takes over: it knows what is stored, and has asked nobody yet."""
        self.verdict = self.refusal = self.status_written_at = None
        self.gangs = self.progress = self.silence = self.default_queue = None
        self.told, self.flavors = set(), {}

    def kueue_says(self, status: JsonObject) -> None:
        """Kueue, or we, write the status of the Workload."""
        self.gang = replace(self.the_gang, status=status, version=f"{int(self.the_gang.version) + 1}")

    def _create_gang(self, api: GangApi, body: JsonObject) -> None:
        assert self.gang is None
        self.gang_manifests.append(body)
        uid, owner = f"uid-of-gang-{len(self.gang_manifests)}", text(dig(body, "metadata", "ownerReferences", 0, "uid"))
        name = text(dig(body, "metadata", "name"))
        self.gang = self._as_shown(GangObject(self.job.namespace, name, uid, owner, api, version="1"), body)

    def _update_gang(self, patch: JsonObject) -> None:
        assert self.gang is not None
        assert dig(patch, "metadata", "uid") == self.gang.uid
        if owner := text(dig(patch, "metadata", "ownerReferences", 0, "uid")):
            self.gang = replace(self.gang, owner_uid=owner)
        else:
            self.gang_manifests[-1] = apply_merge_patch(self.gang_manifests[-1], patch)
            self.gang = self._as_shown(self.gang, self.gang_manifests[-1])

    def _as_shown(self, gang: GangObject, body: JsonObject) -> GangObject:
        """``gang`` with what an informer reads of its manifest; what was read to write it is read again next time."""
        self.workload_priorities.clear()
        read = gang_from(gang.api, gang_from_object(body))
        told = ("size", "pods", "queue", "priority_class", "gated_by", "max_seconds", "last_checkpoint")
        return replace(gang, **{name: getattr(read, name) for name in told})

    def _stored(self, body: JsonObject) -> JsonObject:
        return stored(body, namespace=self.job.namespace, uid=f"uid-{self.created}")

    def _create(self, body: JsonObject) -> None:
        name = text(dig(body, "metadata", "name"))
        assert name not in self.pods, f"{name} exists already"
        assert config_maps_of(body) <= self.config_maps.keys(), f"{name} refers to a ConfigMap that does not exist"
        self.created += 1
        self.manifests[name] = body
        self.pods[name] = replace(pod_from(pod_from_object(self._stored(body)), self.job.form), created_at=self.now)


_POLICY: Final = frozenset(str(field.alias) for field in RunPolicy.model_fields.values())


def running(made: Job | World | None = None, *, seconds: float = 20.0, **arguments: object) -> World:
    """A job, ``made`` if that is given, whose pods have all been running for ``seconds``.

    Arguments are fields of ``runPolicy``, such as ``backoffLimit``, and else those of :func:`builders.job`.
    """
    policy = {name: arguments.pop(name) for name in sorted(_POLICY & arguments.keys())}
    more = {"runPolicy": policy} if policy else {}
    world = made if isinstance(made, World) else World(made or job(**arguments, **more))  # type: ignore[arg-type]
    world.start()
    world.advance(seconds)
    return world


def live(world: World) -> set[str]:
    """Pods that are not on their way out."""
    return {name for name, pod in world.pods.items() if not pod.terminating}
