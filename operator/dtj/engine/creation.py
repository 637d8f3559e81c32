"""Creating the objects of a job: refusals, names that are taken, and what a dry run says.

That an object exists already is no error: either we made it and our store lags, or somebody else did, which the
planner must get to see; a ConfigMap of somebody else, which no planner sees, is reported like a refusal. Nothing that
exists is ever changed here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final, TypeAlias

from dtj.api.form import DTJ, Form
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, fields_of, text
from dtj.core.actions import CheckPods, Create, Creation, Delete, DeletePod, TellPod, Update
from dtj.core.messages import MAX_MESSAGE, cut
from dtj.core.observed import Child, CreationRefusal, GangObject, Pod, TemplateVerdict
from dtj.engine.expectations import Expectation, Operation
from dtj.engine.gang_informers import seen_gang
from dtj.engine.logs import about
from dtj.engine.state import ClusterState, UnlabelledObject
from dtj.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, NotFound
from dtj.kube.gateway import CONFIG_MAPS, PODS, SERVICES, Gateway, Resource, dry_run
from dtj.kube.observed import claim_from, pod_from, resource_of, service_from
from dtj.kube.records import Key, plain_from_object, pod_from_object, service_from_object
from dtj.kube.waiting import Backoff, loop_time

log = logging.getLogger(__name__)


REFUSAL_BACKOFF: Final = Backoff(base=1.0, cap=60.0)
"""How long nothing is created for a job after a refusal: a used-up quota is asked once a minute at most."""

UNLABELLED_TTL: Final = 20.0
"""Seconds after which an object that no informer shows is looked at again."""


class Replan(Exception):
    """The rest of the plan is void: it was made without knowing what is known now."""


class _Refused(Exception):
    """The API server will not have this object."""

    def __init__(self, name: str, error: ApiError) -> None:
        super().__init__(name)
        self.name = name
        self.error = error


class Creator:
    """Creates objects for jobs, and remembers what the API server answered."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        state: ClusterState,
        now: Callable[[], datetime],
        advanced: Callable[[Key], None] = lambda key: None,
    ) -> None:
        """``advanced`` is told of each call that was answered, by the key of its job."""
        self._gateway = gateway
        self._state = state
        self._now = now
        self._advanced = advanced

    async def create(self, job: Job, wanted: Sequence[Creation]) -> None:
        """Create all, which are of one kind, in parallel with a slow start; the first refusal stops the batch, and the
        next one begins with the others.

        Raises Replan after a refusal or if a name was taken, ApiError if a call failed.
        """
        created: list[str] = []
        taken: list[str] = []
        calls = [(each.name, partial(self._create, job, each, created=created, taken=taken)) for each in wanted]
        try:
            refused = self._state.caches.of(job.uid).refused_of(resource_in(wanted[0]))
            await carry_out(calls, refused=refused, answered=partial(self._advanced, job.key))
        except _Refused as refused:
            self.refuse(job, refused.name, refused.error)
            raise Replan from refused
        finally:
            if created:
                log.info("created %s", _count(created, resource_in(wanted[0])), extra=about(job, action="create"))
        if taken:
            raise Replan

    async def create_best_effort(self, job: Job, wanted: Creation) -> None:
        """Create one object that the job can do without. Raises ApiError, AlreadyExists too."""
        resource, body = resource_in(wanted), wanted.render()
        with self._state.expectations.expecting(job.identity, _creation_of(wanted)):
            await self._gateway.create(resource, namespace=job.namespace, body=body)
        log.info("created %s %s", resource.kind, wanted.name, extra=about(job, action="create"))

    async def check(self, check: CheckPods, job: Job) -> TemplateVerdict:
        """What the API server has against these pods, as ``<role>: <its words>``.

        A refusal for other reasons than the manifest (a quota, a missing right) is no error of the manifest:
        it will be met again, and reported, when the pod is created.
        """
        errors: list[str] = []
        wants_restricted, priority = False, None
        for manifest in check.manifests:
            verdict = await dry_run(self._gateway, PODS, namespace=job.namespace, body=manifest)
            found = (verdict.forbidden,) if verdict.wants_restricted else verdict.errors
            errors += (f"{text(dig(manifest, 'metadata', 'labels', job.form.role_label))}: {error}" for error in found)
            wants_restricted |= verdict.wants_restricted
            priority = verdict.priority if priority is None else priority
        return TemplateVerdict(
            check.generation,
            self._now(),
            errors=_as_shown(errors),
            restricted=check.restricted,
            wants_restricted=wants_restricted,
            priority=priority,
        )

    async def look_again(self, job: Job) -> None:
        """Refresh what was learned long ago: the object may be gone by now."""
        unlabelled = self._state.caches.of(job.uid).unlabelled
        for (resource, name), seen in list(unlabelled.items()):
            if loop_time() - seen.checked_at < UNLABELLED_TTL:
                continue
            try:
                body = await self._gateway.get(resource, namespace=job.namespace, name=name)
            except NotFound:
                del unlabelled[resource, name]
            else:
                unlabelled[resource, name] = _unlabelled(resource, body, instead_of=seen.value)
            self._advanced(job.key)

    async def _create(self, job: Job, wanted: Creation, *, created: list[str], taken: list[str]) -> None:
        resource, body = resource_in(wanted), wanted.render()
        is_shown = resource != CONFIG_MAPS  # no informer shows those, and each name stands for one content
        expected = self._state.expectations.expecting(job.identity, _creation_of(wanted)) if is_shown else nullcontext()
        try:
            with expected:
                await self._gateway.create(resource, namespace=job.namespace, body=body)
        except AlreadyExists:
            if not is_shown:
                await self._check_owner(job, wanted)
                return
            taken.append(wanted.name)
            await self._identify(job, wanted)
        except (Forbidden, Invalid) as error:
            raise _Refused(wanted.name, error) from error
        else:
            created.append(wanted.name)

    async def _check_owner(self, job: Job, wanted: Creation) -> None:
        """Raises _Refused if what has the name of our ConfigMap is not ours, or has other content."""
        resource, body = resource_in(wanted), wanted.render()
        found = await self._gateway.get(resource, namespace=job.namespace, name=wanted.name)
        if job.owns(plain_from_object(found).metadata) and found.get("data") == body.get("data"):
            return
        words = f'{resource.kind} "{wanted.name}" exists and is not the one of this job: delete it'
        raise _Refused(wanted.name, AlreadyExists(words, status=HTTPStatus.CONFLICT, reason="AlreadyExists"))

    async def _identify(self, job: Job, wanted: Creation) -> None:
        """Find out what has the name that we wanted. If it is ours, the informer shows it already, or is about to."""
        resource, name = resource_in(wanted), wanted.name
        body = await self._gateway.get(resource, namespace=job.namespace, name=name)
        metadata = plain_from_object(body).metadata
        labelled = job.form.selects(fields_of(dig(body, "metadata", "labels")))
        if job.owns(metadata) and labelled:
            shown = self._state.shown(resource, (job.namespace, name))
            if shown is None or shown.uid != metadata.uid:
                self._state.expectations.expect(job.identity, _creation_of(wanted))
            return
        if labelled:
            raise Conflict(f'{resource.kind} "{name}" exists and is not in the store yet')
        unlabelled = _unlabelled(resource, body, instead_of=_seen(resource, wanted.render(), job.form))
        self._state.caches.of(job.uid).unlabelled[resource, name] = unlabelled

    def refuse(self, job: Job, name: str, error: ApiError) -> None:
        """The API server refuses this: the status reports it, and it is tried again after a while."""
        cache = self._state.caches.of(job.uid)
        cache.refusal = CreationRefusal(
            name=name,
            reason=error.reason,
            message=cut(error.message),
            at=self._now(),
        )
        if isinstance(error, Forbidden) and error.wants_restricted:
            cache.verdict = None  # the namespace enforces it since the check: the next one will find out
        delay = cache.creating.failed(REFUSAL_BACKOFF, at_least=error.retry_after)
        log.warning(
            "%s was refused: %s; next attempt in %.0f s",
            name,
            error.message,
            delay,
            extra=about(job, action="create", reason=error.reason),
        )


def resource_in(action: Creation | Delete | DeletePod | TellPod | Update) -> Resource:
    """The resource of what an action makes, changes or deletes."""
    return resource_of(action.kind) if isinstance(action, Create | Delete | Update) else PODS


def _creation_of(wanted: Creation) -> Expectation:
    return Expectation(Operation.CREATED, resource_in(wanted).plural, wanted.name)


def _as_shown(errors: Iterable[str]) -> tuple[str, ...]:
    """Each error once, as far as a status shows them: the API server repeats what is wrong, however long it is."""
    kept, length = [], 0
    for error in dict.fromkeys(errors):
        if length > MAX_MESSAGE:
            break
        kept.append(cut(error))
        length += len(error)
    return tuple(kept)


def _count(names: Sequence[str], resource: Resource) -> str:
    return f"{resource.kind} {names[0]}" if len(names) == 1 else f"{len(names)} {resource.plural}"


def _unlabelled(resource: Resource, body: JsonObject, *, instead_of: Pod | Child | GangObject) -> UnlabelledObject:
    """What was found. A pod without our labels stands where ours should: role and index are those of ours."""
    found = _seen(resource, body)
    if isinstance(found, Pod) and isinstance(instead_of, Pod):
        found = replace(
            found,
            job_name=instead_of.job_name,
            role=instead_of.role,
            index=instead_of.index,
            attempt=instead_of.attempt,
        )
    return UnlabelledObject(value=found, checked_at=loop_time())


def _seen(resource: Resource, body: JsonObject, form: Form = DTJ) -> Pod | Child | GangObject:
    if resource == PODS:
        return pod_from(pod_from_object(body), form)
    if resource == SERVICES:
        return service_from(service_from_object(body), form)
    return seen_gang(resource, body) or claim_from(plain_from_object(body))


Call: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

MAX_IN_FLIGHT: Final = 50
"""Calls of one batch at the same time."""


async def carry_out(
    batch: Iterable[tuple[str, Call]],
    *,
    refused: set[str],
    refusals: int = 1,
    answered: Callable[[], None] = lambda: None,
) -> None:
    """Make the calls of the ``batch``, each with the name of its object, by :func:`slow_start`.

    Those of which ``refused`` has the names come last, so that what is refused each time holds nothing else; the set
    is brought up to date.
    """

    async def noted(name: str, call: Call) -> None:
        refused.add(name)
        await call()
        refused.discard(name)

    in_order = sorted(batch, key=lambda each: each[0] in refused)
    refused &= {name for name, _ in in_order}
    await slow_start((partial(noted, *each) for each in in_order), refusals=refusals, answered=answered)


async def slow_start(
    calls: Iterable[Call],
    *,
    limit: int = MAX_IN_FLIGHT,
    refusals: int = 1,
    answered: Callable[[], None] = lambda: None,
) -> None:
    """Await all ``calls``, started in order: one first, and with every success one more at a time, up to ``limit``.

    So the number in flight doubles with each round trip, 1-2-4-8…, as in Kubernetes' own Job controller, but no
    round waits for its slowest call. After so many ``refusals`` in a row, or a call without an answer, nothing is
    started any more; what is in flight is awaited. At the end the first error is raised, a conflict only if there is
    no other. ``answered`` is called whenever one of the calls has ended.
    """
    waiting = iter(calls)
    lanes: list[asyncio.Task[None]] = []
    failure: BaseException | None = None
    in_a_row, given_up = 0, False

    def open_lane() -> None:
        lanes.append(asyncio.create_task(lane()))

    async def lane() -> None:
        nonlocal failure, in_a_row, given_up
        for call in waiting:
            if given_up:
                return
            try:
                await call()
            except BaseException as error:
                if failure is None or isinstance(failure, Conflict):
                    failure = error
                in_a_row += 1
                if in_a_row >= refusals or not (isinstance(error, ApiError) and error.status):
                    given_up = True
                    raise
            else:
                in_a_row = 0
                if len(lanes) < limit:
                    open_lane()
            finally:
                answered()

    open_lane()
    try:
        while running := [task for task in lanes if not task.done()]:
            await asyncio.gather(*running, return_exceptions=True)
    finally:
        for task in lanes:
            task.cancel()
    if failure is not None:
        raise failure
