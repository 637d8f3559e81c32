"""The cluster of a life: one job, the queue that admits it, its launchers, and what is in its way.

It knows what must not be: a job that waits and does not say for what, quota that nobody uses, and what is left after an
end.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

from bad_tfjobs import role, tfjob
from builders import CLAIM_TEMPLATE, at, manifest
from dtj.api.crd import job_schema
from dtj.api.form import DTJ
from dtj.api.job import parse_time
from dtj.api.json import JsonObject, apply_merge_patch, dig, fields_of, object_at, objects, text
from dtj.api.kueue import QUEUE
from dtj.api.names import Condition, Reason
from dtj.api.schema import check
from dtj.api.spec import Gang
from dtj.api.tfjob.form import TFJOB
from dtj.core.platform import PLATFORM_OF_TFJOBS, JobAccess, Platform
from dtj.kube.errors import ApiError, Invalid
from dtj.kube.gateway import CONFIG_MAPS, LOCAL_QUEUES, NETWORK_POLICIES, PODS, SERVICES, WORKLOADS, Resource
from dtj.kube.observed import resource_of
from support.campaigns.model_cluster import ModelCluster
from support.campaigns.stories import API_OF, launchers
from support.fake_gateway import Call
from support.gang_worlds import kueue_condition
from support.virtual_time import loop_time

NAME: Final = "digits"
EXPLAINS_WITHIN, LONGEST = 150.0, 600.0
"""Seconds after which the status of a job says what it waits for, and for which a trouble lasts at most."""

MOST_IN_ALL: Final = 5_000
"""Writes of a life: who writes more often gets no answer any more."""

_ANY_NUMBER: Final = 1000
"""Restarts that a job is allowed."""


@dataclass(frozen=True)
class Shape:
    """A job: what its manifest has beside what every one has, and what schedules its pods."""

    fields: dict[str, Any]
    gang: Gang = Gang.NONE
    is_tfjob: bool = False
    in_place: bool = False
    default_queue: bool = False


_CHECKPOINT: Final = {"claimTemplate": CLAIM_TEMPLATE}
_SERVERS: Final = {"strategy": "ParameterServer", "roles": {"chief": 1, "worker": 1, "ps": 1}}
SHAPES: Final = {
    "fixed": Shape({}),
    "alone": Shape({"runPolicy": {"restartScope": "Pod"}}),
    "servers": Shape(_SERVERS),
    "elastic": Shape({"elastic": {"minReplicas": 1, "maxReplicas": 4}}),
    "elastic in place": Shape(
        {"elastic": {"minReplicas": 1, "maxReplicas": 4, "shrinkAfterSeconds": 5}}, in_place=True
    ),
    "tensorboard": Shape({"tensorBoard": {"ttlSeconds": 60}, "checkpoint": _CHECKPOINT}),
    "queued": Shape({"runPolicy": {"scheduling": {"gang": "Kueue", "queue": "team-a"}}}, Gang.KUEUE),
    "default queue": Shape({}, Gang.KUEUE, default_queue=True),
    "beside kueue": Shape({}, Gang.KUEUE),
    "gang": Shape({"runPolicy": {"scheduling": {"gang": "Volcano"}}}, Gang.VOLCANO),
    "tfjob": Shape({"Worker": 2}, is_tfjob=True),
    "tfjob with servers": Shape({"Chief": 1, "Worker": 1, "PS": 1}, is_tfjob=True),
    "queued tfjob": Shape({"Worker": 2}, Gang.KUEUE, is_tfjob=True),
    "tfjob in a gang": Shape({"Worker": 2}, Gang.VOLCANO, is_tfjob=True),
}


class LifeCluster(ModelCluster):
    """A cluster with the one job, and what is in its way."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        gang = self.shape.gang
        queues = {"gang_of_tfjobs": gang} if gang is Gang.VOLCANO else {"queues_tfjobs": gang is Gang.KUEUE}
        of_tfjobs = self.shape.is_tfjob
        access = JobAccess(status=({"podSelector": {}},))
        super().__init__(
            TFJOB if of_tfjobs else DTJ,
            replace(PLATFORM_OF_TFJOBS, **queues) if of_tfjobs else Platform(job_access=access, inline_addresses=0),
        )
        self.knows(NETWORK_POLICIES)
        self.gang = resource_of(API_OF[gang]) if gang is not Gang.NONE else None
        if self.gang is not None:
            self.knows(self.gang)
        if self.shape.default_queue:
            self.api.put(LOCAL_QUEUES, {"metadata": {"name": "default"}})
        self.refusals: list[Callable[[Call], ApiError | None]] = [self._against_the_schema]
        self.api.refused = self._refused
        self.api.on_write = lambda number, done: number > MOST_IN_ALL
        self.full = False
        """Whether Kueue has no quota left."""

        self.harmed: list[str] = []
        self.active: list[str] = []
        """What is in the way of the job now."""

        self.refused_at = self.mute_at = -EXPLAINS_WITHIN
        """When a write was last refused, and when one of the status or of a Workload, or a read."""

        self.owed_since: float | None = None
        """Since when the job runs no pod and holds quota that is wanted back."""

        self.removed = False
        """Whether its gang scheduler is gone for good."""

        self.foreign: list[str] = []
        """Types of conditions that others wrote."""

        self.tampered = False
        """Whether somebody changed the status or the time, so that the seconds need not add up."""

        self.begin()

    def begin(self, status: JsonObject | None = None) -> None:
        """The user creates the job, perhaps with a ``status`` from a backup."""
        fields = dict(self.shape.fields)
        policy: JsonObject = {"backoffLimit": _ANY_NUMBER, **fields.pop("runPolicy", {})}
        if self.shape.is_tfjob:
            roles = {kind: role(count, restartPolicy="OnFailure") for kind, count in fields.items()}
            body = tfjob(NAME, run_policy={**policy, "cleanPodPolicy": "Running"}, **roles)
            labels: JsonObject = {QUEUE: "team-a"} if self.shape.gang is Gang.KUEUE else {}
            object_at(body, "metadata")["labels"] = labels
        else:
            body = manifest(NAME, roles=fields.pop("roles", None), runPolicy=policy, **fields)
        self.create({**body, "status": status or {}})

    @property
    def all_kinds(self) -> list[Resource]:
        """Of the job, and of what it owns."""
        return list(self._kinds.values())

    @property
    def alive(self) -> bool:
        """Whether the job is there, and nobody deletes it."""
        return self.there(self.jobs) and dig(self.body, "metadata", "deletionTimestamp") is None

    @property
    def body(self) -> JsonObject:
        return self.api.body(self.jobs, NAME)

    @property
    def wanted(self) -> int:
        roles = fields_of(dig(self.body, "spec", "tfReplicaSpecs" if self.shape.is_tfjob else "replicaSpecs"))
        return sum(count for each in roles.values() if isinstance(count := dig(each, "replicas"), int))

    def _refused(self, call: Call) -> ApiError | None:
        return next((error for refusal in self.refusals if (error := refusal(call)) is not None), None)

    def refuse(self, refusal: Callable[[Call], ApiError | None]) -> Callable[[], None]:
        """Answer the operator's calls so, until what is returned is called."""
        self.refusals.append(refusal)
        return lambda: self.refusals.remove(refusal)

    def _against_the_schema(self, call: Call) -> ApiError | None:
        if call.verb != "patch" or call.plural != self.jobs.plural or not self.there(self.jobs) or self.form is TFJOB:
            return None
        wrong = check(apply_merge_patch(self.body, call.body).get("status"), _status_schema(), "status")
        return Invalid(str(wrong[0]), status=422, reason="Invalid") if wrong else None

    def runs_as_wanted(self) -> bool:
        status = self.status() if self.there(self.jobs) else None
        if status is None or status.state != "Running" or not status.is_true(Condition.PODS_READY):
            return False
        return len(self.live_pods()) == self.wanted

    def unexplained(self, what: str, words: tuple[str, ...]) -> Iterator[str]:
        """That it runs and its status does not say so, or that one thing alone is in its way and no condition does."""
        status = self.status()
        waits = status.state in ("Pending", "Starting") and status.reason != Reason.API_CALL_FAILED
        if waits and len(self.live_pods()) == self.wanted:
            yield f"all pods run while it {what}, and it is {status.state}"
        if self.active or not words or status.terminal or dig(self.body, "spec", "runPolicy", "suspend"):
            return
        said = [each.message for each in status.conditions]
        refused = what != "is refused" or self.refused_at > loop_time() - EXPLAINS_WITHIN
        if refused and not self.runs_as_wanted() and not any(word in one for word in words for one in said):
            yield f"while it {what}, the job says {said}"

    async def operator_dies(self) -> None:
        if self.operator is not None:
            await self.restart_operator()

    async def completes(self) -> None:
        """The replica that decides ends with 0; if it is started again, once more."""
        while True:
            await asyncio.sleep(1.0)
            lead = min(self.live_pods(), default="", key=lambda pod: ("chief-0" not in pod, "worker-0" not in pod, pod))
            if lead and not self.status().terminal:
                self.end_pod(lead.removeprefix(f"{NAME}-"), 0)
            await asyncio.sleep(30.0)
            if not self.there(self.jobs):
                self.begin()

    async def launchers(self) -> None:
        """What the pods of a job say whose members change in place."""
        while self.shape.in_place:
            await asyncio.sleep(1.0)
            with contextlib.suppress(LookupError):  # a job that was deleted
                await launchers(self)

    async def kueue(self) -> None:
        """Admit what is not evicted; the quota of that is given back first."""
        while True:
            await asyncio.sleep(2.0)
            self._look_for_quota()
            for name in self.api.names(WORKLOADS):
                body = self.api.body(WORKLOADS, name)
                states = conditions_of(body)
                if (
                    self.full
                    or dig(body, "spec", "active") is False
                    or "True" in (states.get("Finished"), states.get("QuotaReserved"))
                ):
                    continue
                sets = [{"name": one["name"], "count": one["count"]} for one in objects(dig(body, "spec", "podSets"))]
                given = [{**kueue_condition(each), "lastTransitionTime": at(loop_time())} for each in ADMITTED]
                admission: JsonObject = {"clusterQueue": "all", "podSetAssignments": [*sets]}
                if sets and dig(body, "metadata", "deletionTimestamp") is None:
                    self.api.merge(WORKLOADS, name, {"status": {"conditions": [*given], "admission": admission}})

    def _look_for_quota(self) -> None:
        """A job that has ended or was evicted gives its quota back once no pod of it runs, whatever else is left."""
        body = self.api.body(WORKLOADS, NAME) if self.there(WORKLOADS, NAME) else {}
        states, status = conditions_of(body), self.status()
        wanted_back = states.get("Evicted") == "True" or (status.terminal and states.get("Finished") != "True")
        ended = all(dig(self.api.body(PODS, pod), "status", "phase") in _ENDED for pod in self.api.names(PODS))
        names_are_free = not (self.shape.is_tfjob and self.api.names(PODS) and not status.terminal)
        if dig(body, "status", "admission") is None or not wanted_back or not ended or not names_are_free or self.mute:
            self.owed_since = None
        elif self.owed_since is None:
            self.owed_since = loop_time()
        elif loop_time() > self.owed_since + EXPLAINS_WITHIN and not self.harmed:
            self.harmed.append(f"it runs no pod and holds quota while it {self.active}")

    @property
    def mute(self) -> bool:
        """Whether the operator cannot know or say what is the matter, or could not a moment ago."""
        blind = {"view is late", "answers are slow"} & {*self.active}
        return bool(blind) or self.mute_at > loop_time() - EXPLAINS_WITHIN

    # -- judged --------------------------------------------------------------------------------------------------

    def after_the_end(self, created: int) -> Iterator[str]:
        """What must not be of a job that has ended; so many things had been created and deleted then."""
        if not self.there(self.jobs):
            return
        status = self.status()
        if status.state != "Succeeded":
            yield f"it is {status.state} after its end"
        if status.observed_generation != dig(self.body, "metadata", "generation"):
            yield "the status describes another generation"
        uid = dig(self.body, "metadata", "uid")
        for resource in (
            PODS,
            SERVICES,
            NETWORK_POLICIES,
            CONFIG_MAPS,
            *([self.gang] if self.gang is not None else []),
        ):
            for name in self.api.names(resource):
                body = self.api.body(resource, name)
                ended = dig(body, "status", "phase") in _ENDED
                finished = conditions_of(body).get("Finished") == "True"
                if dig(body, "metadata", "ownerReferences", 0, "uid") == uid and not ended and not finished:
                    yield f"{resource.kind} {name} is there after the end"
        yield from (
            f"{each.name} was created after the end"
            for each in self.api.effects[created:]
            if each.verb == "create" and each.plural == PODS.plural
        )
        began, ended_at = (
            parse_time(text(each)) for each in (dig(self.body, "metadata", "creationTimestamp"), status.completion_time)
        )
        if not self.tampered and status.goodput is not None and began is not None and ended_at is not None:
            lifetime = (ended_at - began).total_seconds()
            if status.goodput.seconds.total != lifetime:
                yield f"{status.goodput.seconds.total} s of {lifetime:.0f} s went to something"
        kept = {text(each["type"]) for each in objects(dig(self.body, "status", "conditions"))}
        if lost := set(self.foreign) - kept:
            yield f"conditions of others are gone: {sorted(lost)}"
        yield from (
            f"{each.plural} {each.name} of others was deleted"
            for each in self.api.effects
            if each.verb == "delete"
            and dig(each.body, "metadata", "ownerReferences", 0, "uid") not in self._owners
            and each.plural != self.jobs.plural
        )


ADMITTED: Final = ("QuotaReserved", "Admitted")
_ENDED: Final = ("Succeeded", "Failed")


def conditions_of(body: JsonObject) -> dict[str, str]:
    """The status of each condition of an object, by type."""
    return {text(one["type"]): text(one["status"]) for one in objects(dig(body, "status", "conditions"))}


@cache
def _status_schema() -> JsonObject:
    return job_schema()["properties"]["status"]  # type: ignore[index,call-overload,return-value]
