"""A cluster around the model of an API server: a kubelet, a garbage collector, users, and operators that come and go.

The operators are the real engine and planner: see model_operator.py. Time is virtual.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace

from builders import at, manifest
from dtj.api.form import DTJ, Form
from dtj.api.job import Job
from dtj.api.json import JsonObject, dig, object_at, objects, text
from dtj.api.names import Condition, Label
from dtj.api.status import JobStatus
from dtj.core.platform import Platform
from dtj.kube.gateway import CLAIMS, CONFIG_MAPS, PODS, SERVICES, Resource, jobs_of
from support.campaigns.model_api import Effect, ModelApi
from support.campaigns.model_operator import WITH_CONFIG_MAPS, Operator
from support.fake_gateway import Line
from support.virtual_time import loop_time

PATIENCE_SECONDS = 600.0
"""A story that waits for longer is stuck."""

START_SECONDS, STOP_SECONDS, REMOVAL_SECONDS, COLLECTION_SECONDS = 0.5, 1.0, 0.2, 0.3
"""How long a kubelet takes to start a pod, to stop one, and to tell that it is gone; and the garbage collector."""


class Stuck(AssertionError):
    """What a story waits for does not come."""


@dataclass(frozen=True)
class End:
    """What must be the same, whatever the operator was shown on the way."""

    status: tuple[object, ...]
    conditions: dict[str, tuple[str, str]]
    objects: dict[str, tuple[object, ...]]
    created: Counter[tuple[str, str]]
    """How often the operator created each object of a job that was there, by its owner and name."""

    orphans: int
    """How many objects the operator created for a job that was gone."""

    deleted: Counter[tuple[str, str]]
    """How often the operator deleted each pod that ran."""

    torn_out: tuple[str, ...]
    """The pods among them that a live attempt of a live job needed."""

    def without_evidence(self) -> End:
        """The same without pods that have ended."""
        kept = {name: shape for name, shape in self.objects.items() if shape[1] not in ("Succeeded", "Failed")}
        return replace(self, objects=kept)

    def differences(self, other: End, *, of: Sequence[str]) -> list[str]:
        """Where ``other`` differs in these parts, in words."""
        return [
            f"{part}: {getattr(other, part)}, but undisturbed {getattr(self, part)}"
            for part in of
            if getattr(other, part) != getattr(self, part)
        ]


class ModelCluster:
    """Everything but the operator, which :meth:`start_operator` starts."""

    def __init__(self, form: Form = DTJ, platform: Platform = WITH_CONFIG_MAPS) -> None:
        """``form`` is that of the jobs, ``platform`` what an operator has for their pods."""
        self.form = form
        self.jobs = jobs_of(form)
        self._platform = platform
        self.api = ModelApi()
        self.api.on_line.append(self._on_line)
        self.stop_code = 143
        """With which exit code a container ends that is asked to stop."""

        self.stop_seconds = STOP_SECONDS
        """How long it takes."""

        self.operator: Operator | None = None
        self.operator_clock = 0.0
        """By how many seconds the clock of the next operator is ahead."""

        self.node_clocks: dict[str, float] = {}
        """By how many seconds the clock of a replica's node is ahead, by replica; "" for all others."""

        self.starts = True
        """Whether pods find a node."""

        self._owners: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._kinds: dict[str, Resource] = {kind.plural: kind for kind in (self.jobs, PODS, SERVICES, CLAIMS)}

    # -- the operator ------------------------------------------------------------------------------------------

    def start_operator(self) -> None:
        """Start one; it knows nothing."""
        self.operator = Operator(self.api, form=self.form, platform=self._platform, clock=self.operator_clock)

    async def restart_operator(self) -> None:
        """Kill the operator, and start another."""
        assert self.operator is not None
        operator, self.operator = self.operator, None
        await operator.kill()
        self.start_operator()

    def meanwhile(self, work: Coroutine[object, object, None]) -> None:
        """Have something happen next to all else."""
        self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        """End everything. Raises what has ended the operator, if something has."""
        await asyncio.gather(*self._tasks)
        if self.operator is not None:
            await self.operator.kill()

    # -- users -------------------------------------------------------------------------------------------------

    def submit(self, name: str = "digits", *, roles: dict[str, int] | None = None, **arguments: object) -> Job:
        """Create a job."""
        return self.create(manifest(name, roles=roles or {"worker": 2}, **arguments))  # type: ignore[arg-type]

    def create(self, body: JsonObject) -> Job:
        """Create the job of a manifest."""
        metadata: JsonObject = {**object_at(body, "metadata"), "generation": 1}
        job = Job.from_object(self.api.put(self.jobs, {**body, "metadata": metadata}))
        self._owners.append(job.uid)
        return job

    def change(self, spec: JsonObject, name: str = "digits") -> None:
        """Merge this into the job's spec."""
        self.api.merge(self.jobs, name, {"spec": spec})

    def delete(self, resource: Resource, name: str = "digits") -> None:
        """``kubectl delete``."""
        self.api.end(resource, name)

    def there(self, resource: Resource, name: str = "digits") -> bool:
        return name in self.api.names(resource)

    def status(self, name: str = "digits") -> JobStatus:
        return self.form.record(self._stored_status(name))

    def _stored_status(self, name: str) -> JsonObject:
        found = dig(self.api.body(self.jobs, name), "status") if self.there(self.jobs, name) else {}
        return found if isinstance(found, dict) else {}

    # -- waiting -----------------------------------------------------------------------------------------------

    async def until(self, what: str, holds: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait for a state of the cluster itself, not of what anybody is shown of it. Raises Stuck."""
        deadline = loop_time() + seconds
        while not holds():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError as error:
                raise Stuck(f"{what}: not after {seconds:.0f} s; {self._scene()}") from error

    async def runs(self, *replicas: str, name: str = "digits") -> None:
        """The job runs, with these pods."""
        wanted = {f"{name}-{replica}" for replica in replicas}

        def holds() -> bool:
            status = self.status(name)
            # Running is also a job of which a replica comes back alone: that it is there again must be recorded.
            seen = status.state == "Running" and status.is_true(Condition.PODS_READY)
            return seen and self.live_pods(name) == wanted

        await self.until(f"{name} runs with {sorted(replicas)}", holds)

    async def is_in(self, state: str) -> None:
        await self.until(f"the job is {state}", lambda: self.status().state == state)

    async def has(self, condition: Condition) -> None:
        await self.until(f"the job is {condition}", lambda: self.status().is_true(condition))

    def live_pods(self, name: str = "digits") -> set[str]:
        """The job's replicas that run and are not asked to stop; TensorBoard is none."""
        return {
            pod
            for pod in self.api.names(PODS)
            if dig(body := self.api.body(PODS, pod), "metadata", "labels", self.form.job_label) == name
            and dig(body, "metadata", "deletionTimestamp") is None
            and dig(body, "metadata", "labels", self.form.index_label) is not None
            and dig(body, "status", "phase") == "Running"
        }

    async def quiet(self) -> None:
        """Wait until nothing but events has changed for 90 seconds."""
        while True:
            version = self.api.version
            await asyncio.sleep(90.0)
            if self.api.version == version:
                return

    def _scene(self) -> str:
        status = {job: (s := self.status(job)).state + "/" + s.reason for job in self.api.names(self.jobs)}
        pods = {pod: dig(self.api.body(PODS, pod), "status", "phase") for pod in self.api.names(PODS)}
        return f"jobs {status}, pods {pods}"

    # -- the kubelet -------------------------------------------------------------------------------------------

    def end_pod(self, replica: str, code: int, *, name: str = "digits", message: str = "") -> None:
        """The main container of this replica's pod ends."""
        self._end(f"{name}-{replica}", code, message=message)

    def drain(self, replica: str) -> None:
        """The node is drained: the pod is asked to stop, with the condition that says why."""
        pod = f"digits-{replica}"
        body = self.api.body(PODS, pod)
        target: JsonObject = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        conditions = [*objects(dig(body, "status", "conditions")), target]
        self.api.merge(PODS, pod, {"status": {"conditions": [*conditions]}})
        self.api.end(PODS, pod)

    def start_pod(self, pod: str) -> None:
        if not self.starts or self.phase(pod) is not None or not self.there(PODS, pod) or self._stop_requested(pod):
            return
        running: JsonObject = {"name": self.form.container, "state": {"running": {"startedAt": self._node_time(pod)}}}
        status: JsonObject = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [running],
        }
        self.api.merge(PODS, pod, {"spec": {"nodeName": "node-1"}, "status": status})

    def _end(self, pod: str, code: int, *, message: str = "") -> None:
        body = self.api.body(PODS, pod)
        kept = [c for c in objects(dig(body, "status", "conditions")) if c.get("type") != "Ready"]
        began = objects(dig(body, "status", "containerStatuses"))
        terminated: JsonObject = {
            "exitCode": code,
            "reason": "Error" if code else "Completed",
            "message": message,
            "startedAt": dig(began[0], "state", "running", "startedAt") if began else None,
            "finishedAt": self._node_time(pod),
        }
        status: JsonObject = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [*kept, {"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": self.form.container, "state": {"terminated": terminated}}],
        }
        self.api.merge(PODS, pod, {"status": status})

    def _node_time(self, pod: str) -> str:
        ahead = [seconds for replica, seconds in self.node_clocks.items() if replica and f"-{replica}" in pod]
        return at(loop_time() + (ahead[0] if ahead else self.node_clocks.get("", 0.0)))

    def _stop(self, pod: str, uid: str) -> None:
        if self._is(pod, uid) and self.phase(pod) == "Running":
            self._end(pod, self.stop_code)
        asyncio.get_running_loop().call_later(REMOVAL_SECONDS, self._remove, pod, uid)

    def _remove(self, pod: str, uid: str) -> None:
        if self._is(pod, uid):
            self.api.remove(PODS, pod)

    def _is(self, pod: str, uid: str) -> bool:
        return self.there(PODS, pod) and dig(self.api.body(PODS, pod), "metadata", "uid") == uid

    def phase(self, pod: str) -> object:
        return dig(self.api.body(PODS, pod), "status", "phase") if self.there(PODS, pod) else None

    def _stop_requested(self, pod: str) -> bool:
        return dig(self.api.body(PODS, pod), "metadata", "deletionTimestamp") is not None

    # -- what happens by itself --------------------------------------------------------------------------------

    def _on_line(self, line: Line) -> None:
        loop = asyncio.get_running_loop()
        self._changed.set()
        name, uid = text(dig(line.body, "metadata", "name")), text(dig(line.body, "metadata", "uid"))
        if line.plural == PODS.plural and line.type == "ADDED":
            loop.call_later(START_SECONDS, self.start_pod, name)
        if line.plural == PODS.plural and line.type == "MODIFIED" and self._begins_to_go(line):
            loop.call_later(self.stop_seconds, self._stop, name, uid)
        orphans = {"DELETED"} if line.plural == self.jobs.plural else {"ADDED"}
        if line.plural in self._kinds and line.type in orphans:
            loop.call_later(COLLECTION_SECONDS, self._collect)

    def _begins_to_go(self, line: Line) -> bool:
        return (
            dig(line.body, "metadata", "deletionTimestamp") is not None
            and dig(line.body, "status", "phase") == "Running"
        )

    def _collect(self) -> None:
        """The garbage collector: what has no living owner goes."""
        jobs = {dig(self.api.body(self.jobs, job), "metadata", "uid") for job in self.api.names(self.jobs)}
        for resource in (*self._kinds.values(), CONFIG_MAPS):
            for name in self.api.names(resource):
                owner = _owner(self.api.body(resource, name))
                if resource != self.jobs and owner and owner not in jobs:
                    self.api.end(resource, name)

    # -- the end -----------------------------------------------------------------------------------------------

    def knows(self, resource: Resource) -> None:
        """Have the cluster serve one more kind, whose objects jobs own."""
        self.api.installed.add(resource)
        self._kinds[resource.plural] = resource

    @property
    def plurals(self) -> tuple[str, ...]:
        """All kinds that the operator watches."""
        return tuple(self._kinds)

    def end(self, name: str = "digits") -> End:
        """All that must be the same."""
        status = self.status(name)
        found = {
            f"{resource.plural} {found}": self._shape(self.api.body(resource, found))
            for resource in self._kinds.values()
            for found in self.api.names(resource)
        }
        # Without the digest of the job's UID, which differs by run.
        found |= {
            f"{CONFIG_MAPS.plural} {name.rpartition('-')[0]}": self._shape(self.api.body(CONFIG_MAPS, name))
            for name in self.api.names(CONFIG_MAPS)
        }
        made = [effect for effect in self.api.effects if effect.verb == "create" and effect.plural in self._kinds]
        stopped = [effect for effect in self.api.effects if _stops(effect)]
        return End(
            status=_lasting(status),
            conditions={
                **{condition.type: (condition.status, condition.reason) for condition in status.conditions},
                **self._shown_conditions(name),
            },
            objects=found,
            created=Counter(
                (self._name_of(_owner(effect.body)), f"{effect.plural} {effect.name}")
                for effect in made
                if effect.job is not None
            ),
            orphans=sum(effect.job is None for effect in made),
            deleted=Counter((self._name_of(_owner(effect.body)), effect.name) for effect in stopped),
            torn_out=tuple(effect.name for effect in stopped if _is_needed(effect)),
        )

    def _shown_conditions(self, name: str) -> dict[str, tuple[str, str]]:
        """Those of a TFJob as others read them; none where our record is all that there is."""
        shown = objects(self._stored_status(name).get("conditions")) if self.form.recorded_in else []
        return {f"TFJob {each['type']}": (text(each["status"]), text(each["reason"])) for each in shown}

    def _shape(self, body: JsonObject) -> tuple[object, ...]:
        return (
            self._name_of(_owner(body)),
            dig(body, "status", "phase") if dig(body, "spec", "containers") else None,
            dig(body, "spec", "selector", Label.ATTEMPT),
        )

    def _name_of(self, uid: str) -> str:
        return f"job {self._owners.index(uid) + 1}" if uid in self._owners else "nobody"


def _lasting(status: JobStatus) -> tuple[object, ...]:
    """A status without the times in it."""
    return (
        status.state,
        status.reason,
        status.ready,
        status.attempt,
        status.restarts,
        status.root_cause,
        status.replica_statuses,
    )


def _owner(body: JsonObject) -> str:
    return text(dig(body, "metadata", "ownerReferences", 0, "uid"))


def _stops(effect: Effect) -> bool:
    """Whether a pod was deleted that ran and had not been asked to stop."""
    return (
        effect.verb == "delete"
        and effect.plural == PODS.plural
        and dig(effect.body, "status", "phase") == "Running"
        and dig(effect.body, "metadata", "deletionTimestamp") is None
    )


def _is_needed(effect: Effect) -> bool:
    """Whether its owner lived, wanted pods, and was at this pod's attempt."""
    if effect.job is None:
        return False
    job = Job.from_object(effect.job)
    over = (Condition.SUCCESS_CRITERIA_MET, Condition.FAILURE_TARGET, Condition.SUSPENDED)
    if job.status.terminal or any(map(job.status.is_true, over)) or dig(effect.job, "spec", "runPolicy", "suspend"):
        return False
    return text(dig(effect.body, "metadata", "labels", Label.ATTEMPT)) == str(job.status.attempt)
