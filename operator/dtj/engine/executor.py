"""Carries out a plan, in its order, and stops where the world turns out to be another than was observed.

The order is the plan's because it matters: what the status says before pods are touched is what a restarted
operator will know. Events come last, and only where everything before them succeeded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

from pydantic import JsonValue

from dtj.api.job import Job
from dtj.api.json import JsonObject, fields_of, lacking, merge_patch_between, objects, paths
from dtj.api.names import Annotation, Reason
from dtj.api.status import JobStatus
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
    Query,
    ReadClusterQueue,
    ReadDefaultQueue,
    ReadFlavors,
    ReadPriorityClass,
    RequeueAfter,
    TellPod,
    Update,
    UpdateWorkloadStatus,
)
from dtj.core.messages import first_few
from dtj.core.observed import ClusterQueue, DefaultQueue, GangApi
from dtj.core.policies import kueue_priorities, tensorboard
from dtj.engine.creation import REFUSAL_BACKOFF, Creator, Replan, carry_out, resource_in
from dtj.engine.expectations import TIME_LIMIT, Expectation, Operation, told
from dtj.engine.gang_informers import Gangs
from dtj.engine.job_store import JobRecord
from dtj.engine.logs import about
from dtj.engine.metrics import Metrics
from dtj.engine.progress import StackRequests
from dtj.engine.record_guard import RecordGuard
from dtj.engine.state import ClusterState, worth_reporting
from dtj.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from dtj.kube.events import EventRecorder, Subject
from dtj.kube.gateway import PODS, Gateway, Resource, jobs_of
from dtj.kube.observed import resource_of
from dtj.kube.records import Key, plain_from_object
from dtj.kube.waiting import Retry

log = logging.getLogger(__name__)


Change: TypeAlias = Delete | DeletePod | TellPod | Update

MAX_REFUSALS: Final = 20
"""Calls of a batch that fail in a row before the others wait for the next pass: they have a common cause, it seems."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """How to continue: plan ``again`` at once (something new is known), or ``after`` these seconds, or neither."""

    again: bool = False
    after: float | None = None


@dataclass(slots=True)
class _Pass:
    """One plan being carried out."""

    job: Job
    after: float | None = None
    emits: list[Emit] = field(default_factory=list)
    refused: dict[ApiError, str] = field(default_factory=dict)
    """The objects of a batch with which a call failed, by the error."""

    failure: ApiError | None = None
    """The first error that the rest of the plan need not wait for."""

    def come_back(self, seconds: float) -> None:
        """Plan again after so long; the earliest time wins."""
        self.after = seconds if self.after is None else min(self.after, seconds)


class Executor:
    """Runs plans against a Gateway. One executor serves all jobs; no job is run twice at the same time."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        state: ClusterState,
        creator: Creator,
        gangs: Gangs,
        recorder: EventRecorder,
        metrics: Metrics,
        stacks: StackRequests,
        guard: RecordGuard | None = None,
        now: Callable[[], datetime],
        advanced: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """``advanced`` is told of each call that was answered, by the key of its job."""
        self._gateway = gateway
        self._state = state
        self._creator = creator
        self._gangs = gangs
        self._recorder = recorder
        self._metrics = metrics
        self._stacks = stacks
        self._guard = guard
        self._now = now
        self._advanced = advanced

    async def execute(self, job: Job, plan: Plan) -> PassResult:
        """Carry out ``plan`` for the job as it was observed. An empty plan makes no call.

        Raises ApiError if a call failed that may succeed later; what was done until then stays done.
        """
        running = _Pass(job)
        cache = self._state.caches.of(job.uid)
        held = cache.creating.wait
        try:
            for _, actions in groupby(plan, key=_kind):
                await self._step(running, tuple(actions), held=held)
            # What was refused is there, or no longer wanted, also where another call has failed.
            cleared = cache.refusal is not None and held <= 0.0
            if cleared:
                cache.clear_refusal()
            if running.failure is not None:
                raise running.failure
        except Replan:
            return PassResult(again=True)
        except ApiError as error:
            if cache.failed(error):
                objects = running.refused.get(error)
                words = f"{objects}: {error.message}" if objects else error.message
                running.emits.append(Emit("Warning", Reason.API_CALL_FAILED, words))
            raise
        finally:
            # What was done is reported, also where a later call has failed.
            for emit in running.emits:
                self._emit(running.job, emit)
        # The status may say now that nothing is in the way.
        if cache.succeeded() or cleared:
            return PassResult(again=True)
        return PassResult(after=running.after)

    async def _step(self, running: _Pass, actions: Sequence[Action], *, held: float) -> None:
        """Carry out neighbours of one kind: creations, changes and deletions at the same time."""
        job = running.job
        if creations := [action for action in actions if isinstance(action, Create | CreatePod)]:
            if held > 0.0:
                running.come_back(held)
            else:
                await self._creator.create(job, creations)
            if isinstance(actions[0], Create) and isinstance(actions[0].kind, GangApi):
                self._state.caches.of(job.uid).workload_priorities.clear()
        elif isinstance(actions[0], Update) and actions[0].kind is Kind.SERVICE and held > 0.0:
            running.come_back(held)
        elif batch := [action for action in actions if isinstance(action, Delete | DeletePod | TellPod | Update)]:
            try:
                await self._change(job, batch)
            except ApiError as error:
                resource = resource_in(batch[0])
                names = sorted(self._state.caches.of(job.uid).refused_of(resource))
                running.refused[error] = f"{resource.kind} {first_few(names)}"
                if not all(self._can_wait(job, each) for each in batch):
                    raise
                running.failure = running.failure or error
        else:
            for action in actions:
                await self._do(running, action, held=held)
                self._advanced(job.key)

    async def _change(self, job: Job, batch: Sequence[Change]) -> None:
        """Change or delete objects of one kind. What the API server refuses to do with one of them stops no other: all
        are tried, unless too many fail in a row. Raises the first error then."""
        refused, deleted = self._state.caches.of(job.uid).refused_of(resource_in(batch[0])), list[str]()
        try:
            await carry_out(
                [(each.name, partial(self._change_one, job, deleted, each)) for each in batch],
                refused=refused,
                refusals=MAX_REFUSALS,
                answered=partial(self._advanced, job.key),
            )
        finally:
            if deleted:
                what = f"Pod {deleted[0]}" if len(deleted) == 1 else f"{len(deleted)} pods"
                log.info("deleted %s", what, extra=about(job, action="delete"))
        if isinstance(batch[0], TellPod):
            log.info("told %d pods which replicas train together", len(batch), extra=about(job, action="update"))

    def _can_wait(self, job: Job, change: Change) -> bool:
        """Whether this deletes what holds nothing: a pod that has ended, or a Service, NetworkPolicy or ConfigMap.
        Nothing depends on when that is gone: the quota of a job that has ended is given back all the same."""
        if isinstance(change, Delete):
            return isinstance(change.kind, Kind)
        pod = self._state.pods.get((job.namespace, change.name)) if isinstance(change, DeletePod) else None
        return pod is not None and pod.all_containers_ended

    async def _change_one(self, job: Job, deleted: list[str], change: Change) -> None:
        match change:
            case DeletePod():
                await self._delete_pod(job, change, deleted)
            case TellPod():
                await self._tell_pod(job, change)
            case Update():
                await self._update(job, change)
            case Delete():
                await self._delete(job, resource_of(change.kind), change.name, uid=change.uid)

    async def _do(self, running: _Pass, action: Action, *, held: float) -> None:
        """Carry out one action.

        While ``held``, which is some seconds after a refusal, nothing is read or changed for what would be created.
        """
        job = running.job
        match action:
            case ReadFlavors() | ReadPriorityClass() if held > 0.0:
                running.come_back(held)
            case _ if isinstance(action, Query):
                await self._ask(job, action)
                raise Replan
            case UpdateWorkloadStatus():
                await self._update_workload(running, action)
            case DeleteJob():
                # In the version that was observed: what we know of it may be old, and the user may have given it more
                # time since. With it goes what it owns, also its checkpoints. Kubernetes' own TTL controller reads a
                # job afresh for the same reason (pkg/controller/ttlafterfinished).
                await self._delete(job, jobs_of(job.form), job.name, uid=job.uid, version=job.resource_version)
            case AskForStacks():
                self._stacks.ask(action.pods)
            case BestEffort():
                await self._best_effort(running, action.action)
            case PatchStatus():
                running.job = await self._write_status(running.job, action.status)
            case Emit():
                running.emits.append(action)
            case RequeueAfter():
                running.come_back(action.seconds)

    async def _best_effort(
        self, running: _Pass, action: Create | CreatePod | Delete | DeletePod | ReadPriorityClass
    ) -> None:
        """A failure here is reported and tried again later: the job does not wait for it."""
        job, cache = running.job, self._state.caches.of(running.job.uid)
        what = (type(action), action.name)
        retry = cache.best_effort.get(what, Retry())
        if retry.wait > 0.0:
            running.come_back(retry.wait)
            return
        try:
            match action:
                case DeletePod() | Delete():
                    await self._change(job, [action])
                case Create() | CreatePod():
                    await self._creator.create_best_effort(job, action)
                case ReadPriorityClass(name):
                    cache.workload_priorities[name] = await self._gangs.workload_priority(name)
        except ApiError as error:
            cache.best_effort[what] = retry
            running.come_back(retry.failed(REFUSAL_BACKOFF, at_least=error.retry_after))
            permanent = isinstance(error, Forbidden | Invalid | NotFound)
            if worth_reporting(retry.failures, permanent=permanent):
                self._emit(job, _failed(action, error))
        else:
            cache.best_effort.pop(what, None)
            if isinstance(action, ReadPriorityClass):
                running.come_back(0.0)

    async def _delete_pod(self, job: Job, deletion: DeletePod, deleted: list[str]) -> None:
        expectation = Expectation(Operation.DELETED, PODS.plural, deletion.uid)
        try:
            with self._state.expectations.expecting(job.identity, expectation):
                await self._gateway.delete(PODS, namespace=job.namespace, name=deletion.name, uid=deletion.uid)
        except NotFound:
            return  # the informer shows it, or has shown it during an earlier call of this plan
        deleted.append(deletion.name)
        shown = self._state.pods.get((job.namespace, deletion.name))
        if shown is None or shown.uid != deletion.uid or shown.terminating:
            # It was shown before: a pod that is already being deleted does not change by another delete.
            self._state.expectations.settle(job.identity, expectation)

    async def _tell_pod(self, job: Job, tell: TellPod) -> None:
        expectation = told(tell.uid, tell.world)
        patch: JsonObject = {"metadata": {"uid": tell.uid, "annotations": {Annotation.WORLD: tell.world}}}
        if tell.again:
            await self._patched(PODS, job, tell.name, patch)
            return
        with self._state.expectations.expecting(job.identity, expectation):
            if not await self._patched(PODS, job, tell.name, patch):
                self._state.expectations.settle(job.identity, expectation)

    async def _delete(self, job: Job, resource: Resource, name: str, *, uid: str, version: str = "") -> None:
        try:
            if not uid:
                found = plain_from_object(
                    await self._gateway.get(resource, namespace=job.namespace, name=name)
                ).metadata
                if not job.owns(found):
                    log.warning("%s %s is not owned by this job: it stays", resource.kind, name, extra=about(job))
                    return
                uid = found.uid
            await self._gateway.delete(resource, namespace=job.namespace, name=name, uid=uid, resource_version=version)
        except NotFound:
            return  # the informer is about to show it
        log.info("deleted %s %s", resource.kind, name, extra=about(job, action="delete"))

    async def _ask(self, job: Job, query: Query) -> None:
        """Ask, and remember the answer. What keeps pods from being made is reported like a creation that is refused."""
        cache = self._state.caches.of(job.uid)
        match query:
            case CheckPods():
                cache.verdict = await self._creator.check(query, job)
            case LookForGangs():
                await self._gangs.look()
            case ReadFlavors(names):
                for name in names:
                    try:
                        cache.flavors[name] = await self._gangs.flavor(name)
                    except (Forbidden, NotFound) as error:
                        self._creator.refuse(job, f"resourceflavor {name}", error)
                        break
            case ReadPriorityClass(name):
                try:
                    cache.workload_priorities[name] = await self._gangs.workload_priority(name)
                except (Forbidden, NotFound) as error:
                    self._creator.refuse(job, kueue_priorities.priority_class_object(name), error)
            case ReadDefaultQueue():
                try:
                    found, denied = await self._gangs.has_default_queue(job.namespace), ""
                except Forbidden as error:
                    found, denied = False, error.message
                cache.default_queue = DefaultQueue(found, self._now(), denied)
            case ReadClusterQueue(name):
                try:
                    words = await self._gangs.why_inactive(name)
                except ApiError as error:
                    log.debug("ClusterQueue %s: %s", name, error.message)
                    words = ""  # the job waits in any case
                self._state.learn_cluster_queue(name, ClusterQueue(words, self._now()))

    async def _patched(self, resource: Resource, job: Job, name: str, patch: JsonObject) -> bool:
        """Change an object. Returns False if it is gone, which the informer is about to show."""
        try:
            await self._gateway.patch(resource, namespace=job.namespace, name=name, patch=patch)
        except NotFound:
            return False
        return True

    async def _update(self, job: Job, action: Update) -> None:
        resource = resource_of(action.kind)
        if not await self._patched(resource, job, action.name, action.patch):
            if action.kind is Kind.NETWORK_POLICY:
                raise Replan  # no pod is created before there is one again
            return
        if isinstance(action.kind, GangApi):
            self._state.caches.of(job.uid).workload_priorities.clear()
        log.info("changed %s %s", resource.kind, action.name, extra=about(job, action="update"))

    async def _update_workload(self, running: _Pass, action: UpdateWorkloadStatus) -> None:
        """Write it; where the API server does not keep a field, write it again after a while."""
        job, cache = running.job, self._state.caches.of(running.job.uid)
        what = (UpdateWorkloadStatus, action.name)
        retry = cache.best_effort.get(what, Retry())
        if retry.wait > 0.0:
            running.come_back(retry.wait)
            return
        patch: JsonObject = {"metadata": {"resourceVersion": action.version}, "status": action.status}
        try:
            written = await self._gateway.patch(
                resource_of(action.api), namespace=job.namespace, name=action.name, patch=patch, subresource="status"
            )
        except NotFound:
            return  # the informer is about to show it
        except Conflict:
            # Kueue writes as well, and the informer is about to show it. No quota is kept for news that does not come.
            running.come_back(TIME_LIMIT)
            return
        kept = fields_of(written.get("status"))
        if dropped := [name for name, value in action.status.items() if not _told(value) <= _told(kept.get(name))]:
            cache.best_effort[what] = retry
            running.come_back(retry.failed(REFUSAL_BACKOFF))
            if retry.failures == 1:
                fields = first_few(f"status.{name}" for name in dropped)
                words = "Workload %s does not keep %s: is the CRD of Kueue of its version?"
                log.warning(words, action.name, fields, extra=about(job, action="update"))
            return
        cache.best_effort.pop(what, None)
        log.info("wrote the status of Workload %s", action.name, extra=about(job, action="update"))

    async def _write_status(self, job: Job, wanted: JobStatus) -> Job:
        """Write what differs, if the job still is the version that was observed. Raises Conflict where not."""
        cache = self._state.caches.of(job.uid)
        ours = {key: value for key, value in job.raw_status.items() if key in job.form.status_fields}
        stored_as = job.form.stored(job.namespace, job.name, ours, wanted)
        difference = merge_patch_between(ours, stored_as)
        if not difference:
            return job
        # What was dropped is written again with the next change: the CRD may have been upgraded.
        status: JsonObject = {**cache.dropped, **difference}
        patch: JsonObject = {"metadata": {"resourceVersion": job.resource_version}, "status": status}
        written = await self._gateway.patch_job_status(
            jobs_of(job.form), namespace=job.namespace, name=job.name, patch=patch
        )
        record = JobRecord.of(written)
        if not self._state.jobs.answer(record):
            raise Replan  # the job was deleted while the answer was on its way: what else was planned is void
        kept = record.job()
        if self._guard is not None and job.form.recorded_in not in kept.raw_status:
            self._guard.doubt()
            raise Replan
        self._note_dropped(job, lacking(kept.raw_status, stored_as))
        cache.status_written_at = now = self._now()
        self._metrics.note_status(job, wanted, cache=cache, now=now, platform=self._state.platform)
        if job.status.state != wanted.state or job.status.reason != wanted.reason:
            log.info(
                "is %s, was %s",
                wanted.state,
                job.status.state or "new",
                extra=about(job, action="status", reason=wanted.reason),
            )
        return self._state.with_dropped(kept)

    def _note_dropped(self, job: Job, dropped: JsonObject) -> None:
        """What the API server did not keep of a status is remembered, and said once for each job."""
        cache = self._state.caches.of(job.uid)
        before, cache.dropped = cache.dropped, dropped
        if not dropped or before:
            return
        fields = first_few(f"status.{path}" for path in paths(dropped))
        section = job.form.chart_section
        remedy = f"run helm upgrade with {section}.crd.enabled=true" if section else "apply crds/ of this version"
        words = (
            f"the CRD {jobs_of(job.form).crd} is older than the operator and drops {fields}: {remedy}. The job goes "
            "on, but an operator that restarts does not know what was dropped"
        )
        log.error(words, extra=about(job, action="status", reason=Reason.STATUS_DROPPED))
        self._emit(job, Emit("Warning", Reason.STATUS_DROPPED, words))

    def _emit(self, job: Job, emit: Emit) -> None:
        form = job.form
        subject = Subject(job.namespace, job.name, job.uid, form.api_version, form.kind)
        self._state.caches.of(job.uid).told.add(emit.reason)
        self._recorder.record(subject, emit.type, emit.reason, emit.message)


def _kind(action: Action) -> object:
    """What neighbours in a plan have in common that are carried out together: the others have an order."""
    return type(action), action.kind if isinstance(action, Create | Update | Delete) else None


def _told(field: JsonValue) -> set[tuple[str, ...]]:
    """What a field of a Workload's status says: of each condition its type and status, of each set of pods its number.
    How times and messages are written is left to the API server."""
    keys = ("type", "status", "name", "count")
    return {tuple(str(each.get(key)) for key in keys) for each in objects(field)}


def _failed(action: Create | CreatePod | Delete | DeletePod | ReadPriorityClass, error: ApiError) -> Emit:
    """The event that reports an action that was a BestEffort and failed."""
    if isinstance(action, ReadPriorityClass):
        return kueue_priorities.not_followed(action.name, error.message)
    if isinstance(action, Delete) and isinstance(action.kind, GangApi):
        message = f"the {action.kind.kind} {action.name} is not deleted: {error.message}"
        return Emit("Warning", Reason.API_CALL_FAILED, message)
    return tensorboard.failed(error.message)
