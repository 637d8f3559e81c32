"""Where specs are changed: a namespace of a real API server, an operator in this process, a kubelet that is played.

A change is refused with words that name the field, or the job comes to what a job would that was created with the spec
as it is then. A job that has ended stays as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, text
from dtj.api.names import Label, Reason
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine.engine import Engine
from dtj.kube.client import KubeGateway
from dtj.kube.errors import ApiError, Conflict, Invalid, NotFound
from dtj.kube.gateway import CLAIMS, EVENTS, JOBS, PODS, SERVICES, Discovery, Listing, Resource, WatchEvent
from patience import PATIENCE_SECONDS
from support.campaigns.mutations import SPEC, Phase, Transition
from support.job_world import ended, running

LANES = 16
"""Jobs that are changed at the same time."""

STEADY_SECONDS = 1.0
"""A job that has not changed for so long has come to rest."""

REST_SECONDS, REST_ROUNDS = 12.0, 5
"""Counts of pods are written up to 10 s late."""

MAX_CALLS = 60
"""Calls of the operator's about one job, from its creation to its rest, changes included; some 25 are usual."""

Fingerprint = tuple[object, ...] | None
"""What is compared of a job; None for one that is gone."""


class CountingGateway:
    """The operator's way to the API server; counts the calls about each job."""

    def __init__(self, gateway: KubeGateway) -> None:
        self._gateway = gateway
        self.calls: Counter[str] = Counter()

    def _count(self, name: str) -> None:
        self.calls[job_of(name)] += 1

    async def list(self, resource: Resource, *, namespace: str | None, selector: str = "") -> Listing:
        return await self._gateway.list(resource, namespace=namespace, selector=selector)

    def pages(
        self, resource: Resource, *, namespace: str | None, selector: str = "", field_selector: str = ""
    ) -> AsyncIterator[Listing]:
        return self._gateway.pages(resource, namespace=namespace, selector=selector, field_selector=field_selector)

    def watch(
        self, resource: Resource, *, namespace: str | None, selector: str = "", resource_version: str
    ) -> AsyncIterator[WatchEvent]:
        return self._gateway.watch(resource, namespace=namespace, selector=selector, resource_version=resource_version)

    async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
        self._count(name)
        return await self._gateway.get(resource, namespace=namespace, name=name)

    async def discover(self, resources: Sequence[Resource]) -> Discovery:
        return await self._gateway.discover(resources)

    async def create(
        self, resource: Resource, *, namespace: str, body: JsonObject, dry_run: bool = False
    ) -> JsonObject:
        if resource != EVENTS:
            self._count(text(dig(body, "metadata", "name")))
        return await self._gateway.create(resource, namespace=namespace, body=body, dry_run=dry_run)

    async def patch(
        self, resource: Resource, *, namespace: str, name: str, patch: JsonObject, **more: Any
    ) -> JsonObject:
        if resource != EVENTS:
            self._count(name)
        return await self._gateway.patch(resource, namespace=namespace, name=name, patch=patch, **more)

    async def delete(self, resource: Resource, *, namespace: str, name: str, uid: str = "", **more: Any) -> None:
        self._count(name)
        await self._gateway.delete(resource, namespace=namespace, name=name, uid=uid, **more)


class Mirror:
    """All objects of a kind in the namespace, by name."""

    def __init__(self, gateway: KubeGateway, resource: Resource, namespace: str, on_change: Callable[[], None]) -> None:
        self.objects: dict[str, JsonObject] = {}
        self.listed = False
        self._gateway = gateway
        self._resource = resource
        self._namespace = namespace
        self._on_change = on_change

    async def run(self) -> NoReturn:
        while True:
            with contextlib.suppress(ApiError):
                listing = await self._gateway.list(self._resource, namespace=self._namespace)
                self.objects = {_name(body): body for body in map(msgspec.json.decode, listing.items)}
                self.listed = True
                self._on_change()
                async for event in self._gateway.watch(
                    self._resource, namespace=self._namespace, resource_version=listing.resource_version
                ):
                    self._take(event)
                    self._on_change()

    def _take(self, event: WatchEvent) -> None:
        body = msgspec.json.decode(event.object)
        if event.type == "DELETED":
            self.objects.pop(_name(body), None)
        elif event.type != "BOOKMARK":
            self.objects[_name(body)] = body


@dataclass
class Tally:
    """What was tried, and what was wrong."""

    refused: int = 0
    taken: int = 0
    wrong: list[str] = field(default_factory=list)


class Lab:
    """See the module. Use :meth:`run` once."""

    def __init__(self, user: KubeGateway, operator: KubeGateway, namespace: str) -> None:
        self._user = user
        self._operator = CountingGateway(operator)
        self._namespace = namespace
        self._changed = asyncio.Event()
        self._waiters: set[asyncio.Event] = set()
        self._mirrors = {kind: Mirror(user, kind, namespace, self._notify) for kind in (JOBS, PODS, SERVICES, CLAIMS)}
        self._numbers = iter(range(1_000_000))
        self._held: set[str] = set()
        """Jobs whose pods do not start."""

        self._pools: dict[Phase, list[str]] = {phase: [] for phase in Phase}
        self._references: dict[str, asyncio.Task[str]] = {}
        self.tally = Tally()

    async def run(self, transitions: Sequence[Transition]) -> Tally:
        """Try all of these."""
        mirrors = [asyncio.create_task(mirror.run()) for mirror in self._mirrors.values()]
        kubelet = asyncio.create_task(self._play_kubelet())
        await self._until("all is listed", lambda: all(mirror.listed for mirror in self._mirrors.values()))
        engine, feeding = self._start_operator()
        lanes = asyncio.Semaphore(LANES)
        await asyncio.gather(*(self._try(transition, lanes) for transition in transitions))
        await self._rest()
        for task in (engine, feeding):
            if task.done():
                self.tally.wrong.append(f"the operator ended: {task.exception()!r}")
        for task in (engine, feeding, kubelet, *mirrors):
            task.cancel()
        await asyncio.wait([engine, feeding, kubelet, *mirrors])
        return self.tally

    # -- one change --------------------------------------------------------------------------------------------

    async def _try(self, transition: Transition, lanes: asyncio.Semaphore) -> None:
        async with lanes:
            try:
                name = self._pools[transition.phase].pop() if self._pools[transition.phase] else None
                name = name or await self._bring_to(transition.phase)
                before = self.fingerprint(name, tensorboard=False)
                spec = await self._change(name, transition)
                if spec is None:
                    self._pools[transition.phase].append(name)
                elif transition.phase is Phase.FINISHED:
                    gone = dig(spec, "runPolicy", "ttlSecondsAfterFinished") == 0
                    await self._reaches(name, transition, lambda: None if gone else before)
                else:
                    await self._compare(name, transition, spec)
            except AssertionError as error:
                self.tally.wrong.append(f"{transition}: {error}")

    async def _change(self, name: str, transition: Transition) -> JsonObject | None:
        """Write it. Returns the whole spec that is stored then, None where it was refused."""
        mutation, stored = transition.mutation, self._body(name)
        spec = stored["spec"]
        assert isinstance(spec, dict)
        patch: JsonObject = {"spec": _difference(spec, mutation.applied(spec))}
        try:
            changed = await self._user.patch(JOBS, namespace=self._namespace, name=name, patch=patch)
        except (Invalid, Conflict) as error:
            self.tally.refused += 1
            self._check_words(transition, error)
            return None
        self.tally.taken += 1
        found = changed["spec"]
        assert isinstance(found, dict)
        return found

    def _check_words(self, transition: Transition, error: ApiError) -> None:
        """A refusal names the field, or one above it; of a job that has ended, it says that."""
        if transition.phase is Phase.FINISHED and "the job has ended" in error.message:
            return
        steps = [str(step) for step in transition.mutation.path if isinstance(step, str)]
        if isinstance(error, Conflict) or not any(step in error.message for step in steps):
            self.tally.wrong.append(f"{transition}: refused with words that do not name the field: {error.message}")

    async def _compare(self, name: str, transition: Transition, spec: JsonObject) -> None:
        """The job comes to what one would that was created as it is now; one that was suspended is resumed."""
        if transition.phase is Phase.SUSPENDED and "suspend" not in transition.mutation.path:
            body = await self._user.patch(
                JOBS, namespace=self._namespace, name=name, patch={"spec": {"runPolicy": {"suspend": False}}}
            )
            found = body["spec"]
            assert isinstance(found, dict)
            spec = found
        self._held.discard(name)
        self._notify()
        try:
            reference = await self._reference(spec)
            await self._reaches(name, transition, lambda: self.fingerprint(reference))
        except AssertionError as error:
            self.tally.wrong.append(f"{transition}: {error}")

    async def _reaches(self, name: str, transition: Transition, wanted: Callable[[], Fingerprint]) -> None:
        """TensorBoard alone may change after a job's end."""
        tensorboard = transition.phase is not Phase.FINISHED
        try:
            await self._until("", lambda: self.fingerprint(name, tensorboard=tensorboard) == wanted())
            await asyncio.sleep(STEADY_SECONDS)
            # On a slow machine, one of the two may get its TensorBoard before the other.
            await self._until("did not stay so: ", lambda: self.fingerprint(name, tensorboard=tensorboard) == wanted())
        except AssertionError as error:
            found = self.fingerprint(name, tensorboard=tensorboard)
            self.tally.wrong.append(f"{transition}: {error}{_contrast(found, wanted())}")
        if self._operator.calls[name] > MAX_CALLS:
            self.tally.wrong.append(f"{transition}: {self._operator.calls[name]} calls about one job")
        with contextlib.suppress(NotFound):
            uid = text(dig(self._mirrors[JOBS].objects.get(name, {}), "metadata", "uid"))
            if uid:
                await self._user.delete(JOBS, namespace=self._namespace, name=name, uid=uid)

    # -- jobs in their phases ----------------------------------------------------------------------------------

    async def _create(self, spec: JsonObject) -> str:
        name = f"m{next(self._numbers)}"
        body: JsonObject = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name},
            "spec": spec,
        }
        stored = await self._user.create(JOBS, namespace=self._namespace, body=body, strict=True)
        self._mirrors[JOBS].objects.setdefault(name, stored)
        return name

    async def _bring_to(self, phase: Phase) -> str:
        name = await self._create(SPEC)
        await self._is(name, "Running", pods=2)
        if phase is Phase.SUSPENDED:
            suspend: JsonObject = {"spec": {"runPolicy": {"suspend": True}}}
            await self._user.patch(JOBS, namespace=self._namespace, name=name, patch=suspend)
            await self._is(name, "Suspended", pods=0)
        elif phase is Phase.RESTARTING:
            self._held.add(name)
            await self._end_pod(f"{name}-worker-1", 3)
            await self._is(name, "Restarting", pods=2)
        elif phase is Phase.FINISHED:
            await self._end_pod(f"{name}-worker-0", 0)
            await self._is(name, "Succeeded", pods=0)
            await self._until(f"the Service of {name} is gone", lambda: name not in self._mirrors[SERVICES].objects)
        return name

    async def _is(self, name: str, state: str, *, pods: int) -> None:
        def holds() -> bool:
            live = [pod for pod in self._pods(name) if dig(pod, "status", "phase") not in ("Succeeded", "Failed")]
            return dig(self._body(name), "status", "state") == state and len(live) == pods

        await self._until(f"{name} is {state}", holds)

    def _reference(self, spec: JsonObject) -> asyncio.Future[str]:
        """The name of a job that was created with this spec, and has come to rest; one for all that ask."""
        key = json.dumps(spec, sort_keys=True)
        if key not in self._references:
            self._references[key] = asyncio.create_task(self._find_out(spec))
        return asyncio.shield(self._references[key])

    async def _find_out(self, spec: JsonObject) -> str:
        try:
            name = await self._create(spec)
        except Invalid as error:
            raise AssertionError(f"a job with this spec cannot be created: {error.message}") from error
        await self._until(f"reference {name} settles", lambda: self._is_settled(name))
        return name

    def _is_settled(self, name: str) -> bool:
        """Whether a job has come to its end, or to where it waits: for us, or for who takes its pods."""
        state, reason = (dig(self._body(name), "status", field) for field in ("state", "reason"))
        return state not in (None, "", "Starting", "Restarting") or reason == Reason.POD_CREATION_FAILED

    def fingerprint(self, name: str, *, tensorboard: bool = True) -> Fingerprint:
        """All of a job that does not tell of its past; what TensorBoard has is optional."""
        body = self._mirrors[JOBS].objects.get(name)
        if body is None:
            return None
        status = Job.from_object(body).status
        counts = {
            role: (counts.desired, counts.active, counts.ready, counts.succeeded)
            for role, counts in status.replica_statuses.items()
        }
        live = [pod for pod in self._pods(name, tensorboard=tensorboard) if _runs(pod)]
        others = {other.removeprefix(name) for other in self._mirrors[SERVICES].objects if job_of(other) == name}
        return (
            status.state,
            status.reason,
            {condition.type: condition.status for condition in status.conditions},
            counts if status.state != "Pending" else {},
            sorted(_shape(pod, name) for pod in live),
            sorted(others if tensorboard else others - {"-tensorboard"}),
            sorted(_shape(claim, name) for claim in self._claims(name)) if status.start_time else [],
        )

    def _claims(self, name: str) -> list[JsonObject]:
        return [claim for claim in self._mirrors[CLAIMS].objects.values() if job_of(_name(claim)) == name]

    def _body(self, name: str) -> JsonObject:
        return self._mirrors[JOBS].objects[name]

    def _pods(self, name: str, *, tensorboard: bool = False) -> list[JsonObject]:
        """The pods of a job that are not being deleted."""
        return [
            pod
            for pod in self._mirrors[PODS].objects.values()
            if job_of(_name(pod)) == name
            and dig(pod, "metadata", "deletionTimestamp") is None
            and (tensorboard or not _name(pod).endswith("-tensorboard"))
        ]

    # -- the operator and the kubelet --------------------------------------------------------------------------

    def _start_operator(self) -> tuple[asyncio.Task[None], asyncio.Task[None]]:
        engine = Engine(self._operator, plan=plan, platform=Platform(), instance="lab", namespaces=(self._namespace,))
        return asyncio.create_task(engine.run()), asyncio.create_task(self._feed(engine))

    async def _feed(self, engine: Engine) -> None:
        """What kopf does in an operator."""
        while True:
            with contextlib.suppress(ApiError):
                listing = await self._operator.list(JOBS, namespace=self._namespace)
                for item in listing.items:
                    engine.feed.put(msgspec.json.decode(item))
                async for event in self._operator.watch(
                    JOBS, namespace=self._namespace, resource_version=listing.resource_version
                ):
                    if event.type in ("ADDED", "MODIFIED"):
                        engine.feed.put(msgspec.json.decode(event.object))
                    elif event.type == "DELETED":
                        engine.feed.remove(msgspec.json.decode(event.object))

    async def _play_kubelet(self) -> None:
        """Pods run, and are ready at once, but for those of jobs that are held."""
        started: set[str] = set()
        while True:
            self._changed.clear()
            for pod in list(self._mirrors[PODS].objects.values()):
                uid = text(dig(pod, "metadata", "uid"))
                if (
                    uid not in started
                    and job_of(_name(pod)) not in self._held
                    and dig(pod, "status", "phase") == "Pending"
                ):
                    started.add(uid)
                    with contextlib.suppress(ApiError):
                        await self._set_status(_name(pod), running(pod))
            await self._changed.wait()

    async def _end_pod(self, pod: str, code: int) -> None:
        await self._set_status(pod, ended(self._mirrors[PODS].objects[pod], exit_code=code))

    async def _set_status(self, pod: str, status: JsonObject) -> None:
        await self._user.patch(
            PODS, namespace=self._namespace, name=pod, patch={"status": status}, subresource="status"
        )

    # -- waiting -----------------------------------------------------------------------------------------------

    def _notify(self) -> None:
        self._changed.set()
        for waiter in self._waiters:
            waiter.set()

    async def _until(self, what: str, holds: Callable[[], bool]) -> None:
        waiter = asyncio.Event()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not holds():
                    waiter.clear()
                    await waiter.wait()
        except TimeoutError as error:
            raise AssertionError(what) from error
        finally:
            self._waiters.discard(waiter)

    async def _rest(self) -> None:
        """When nothing happens, the operator does nothing, sooner or later."""
        for _ in range(REST_ROUNDS):
            before = self._calls_without_reason()
            await asyncio.sleep(REST_SECONDS)
            if self._calls_without_reason() == before:
                return
        self.tally.wrong.append("the operator goes on making calls, though nothing happens")

    def _calls_without_reason(self) -> int:
        """All but those about jobs whose pods are refused, which is asked again now and then."""
        refused = {
            name
            for name, body in self._mirrors[JOBS].objects.items()
            if dig(body, "status", "reason") == Reason.POD_CREATION_FAILED
        }
        return sum(count for name, count in self._operator.calls.items() if name not in refused)


def job_of(name: str) -> str:
    """The job to whose name an object's name belongs: jobs here have no dash in theirs."""
    return name.partition("-")[0]


def _name(body: JsonObject) -> str:
    return text(dig(body, "metadata", "name"))


def _runs(pod: JsonObject) -> bool:
    return dig(pod, "status", "phase") not in ("Succeeded", "Failed")


def _shape(pod: JsonObject, job: str) -> str:
    """Labels, annotations and spec of a pod or a claim, without the traces of which job and attempt it is of."""
    labels = dig(pod, "metadata", "labels")
    every = labels if isinstance(labels, dict) else {}
    kept = {key: value for key, value in every.items() if key not in (Label.ATTEMPT, Label.JOB_UID)}
    shape = json.dumps([kept, dig(pod, "metadata", "annotations"), dig(pod, "spec")], sort_keys=True)
    shape = re.sub(rf"\b{job}\b", "JOB", shape)
    shape = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID", shape)
    shape = re.sub(r"-r\d+\b", "", shape)
    shape = re.sub(r'("name": "DTJ_ATTEMPT", "value": )"\d+"', r"\1", shape)
    return re.sub(r"kube-api-access-\w+", "kube-api-access", shape)


def _difference(before: JsonObject, after: JsonObject) -> JsonObject:
    """The merge patch (RFC 7386) from one to the other."""
    patch: JsonObject = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            if below := _difference(known, value):
                patch[key] = below
        elif value != known:
            patch[key] = value
    return patch


def _contrast(found: Fingerprint, wanted: Fingerprint) -> str:
    if found is None or wanted is None:
        return f"found {found}, wanted {wanted}"
    return "; ".join(f"{a} is not {b}" for a, b in zip(found, wanted, strict=True) if a != b)
