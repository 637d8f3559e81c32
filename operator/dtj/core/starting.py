"""Bringing a job's pods about: what they need comes first, and what keeps them from starting is said."""

from __future__ import annotations

from dataclasses import dataclass

from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang
from dtj.core import blockers, gangs, manifests
from dtj.core.observed import Pod
from dtj.core.outcome import replica_of
from dtj.core.picture import REJECTION_LIFE, Picture
from dtj.core.plan import (
    Action,
    ApplyService,
    CheckPods,
    CreateClaim,
    CreatePod,
    DeletePod,
    Emit,
    Plan,
    PointService,
    RequeueAfter,
)
from dtj.core.replicas import Replica, replicas
from dtj.core.status import Assertion, Verdicts, format_time
from dtj.core.stragglers import Straggler
from dtj.core.validity import Problem
from dtj.core.view import writes

COLLISION_RETRY_SECONDS = 30.0
"""When to look again whether a foreign object that has one of our names is gone."""

COLLISION_PATIENCE_SECONDS = 10.0
"""For how long a new job does not complain of names that are taken."""

STUCK_SECONDS = 30.0
"""How long after its grace period a pod that does not go away is given up; its node is dead, most likely."""


@dataclass(frozen=True, slots=True)
class Starting(Picture):
    """The part of planning that creates."""

    def collision(self) -> Plan | None:
        """Objects with our names that are not ours: said aloud, and nothing is created around them."""
        ours = {self.name_of(replica) for replica in replicas(self.spec)}
        taken = [f'pod "{pod.name}"' for pod in self.view.strangers if pod.name in ours]
        for kind, child in (
            ("service", self.view.observed.service),
            ("persistentvolumeclaim", self.claim_in_use()),
            *(((self.gang.kind.lower(), self.view.observed.gang),) if self.gang is not None else ()),
        ):
            if child is not None and child.owner_uid != self.job.uid:
                taken.append(f'{kind} "{child.name}"')
        if not taken:
            return None
        patience = self._patience()
        if patience > 0:
            return (RequeueAfter(patience),)
        message = (
            f"{', '.join(sorted(taken))} exists and belongs to something else: it is left alone; "
            "delete it, or give this job another name"
        )
        verdicts = Verdicts(pods_ready=Assertion("False", Reason.NAME_TAKEN, message))
        changed = self.view.patch(self.view.with_verdicts(self.status(starting=frozenset()), verdicts))
        said = (Emit("Warning", Reason.NAME_TAKEN, message),) if writes(changed) else ()
        return (*changed, *said, RequeueAfter(COLLISION_RETRY_SECONDS))

    def _patience(self) -> float:
        """Seconds for which a new job waits in silence for its names.

        Of a job that was deleted and created anew, the predecessor's objects are about to be collected.
        """
        created = self.job.created_at
        return COLLISION_PATIENCE_SECONDS - (self.view.now - created).total_seconds() if created is not None else 0.0

    def check_template(self) -> Plan | None:
        """Before pods are created: does the API server take one of each role? Its own words go into the status.

        Where the namespace enforces the Pod Security Standard "restricted", it is asked again with pods that fit it.
        A job that has started is not invalid any more: what is refused then is said when its pod is created.
        """
        verdict = self.verdict
        if verdict is None or (verdict.wants_restricted and not verdict.restricted):
            restricted = self.view.observed.platform.restricted or verdict is not None
            first_of_role = (Replica(role, 0) for role in self.spec.roles())
            check = CheckPods(self.job.generation, self.pods(first_of_role, restricted=restricted), restricted)
            return (*self._obstructed(), check)
        if not verdict.errors or self.view.own or self.job.status.start_time is not None:
            return None
        found = tuple(Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors)
        again = self.seconds_until(verdict.at + REJECTION_LIFE)
        return (*self.view.report_invalid(found), RequeueAfter(again))

    def _obstructed(self) -> Plan:
        """Nothing else is written before the pods are checked, which may be what keeps failing."""
        if not self.view.observed.obstacle:
            return ()
        return self.view.patch(self.view.with_verdicts(self.status(starting=frozenset()), Verdicts()))

    def run(self, done: frozenset[Replica]) -> Plan:
        missing = self.missing(done)
        held = {replica: wait for replica in missing if (wait := self.room_in(replica)) > 0}
        wanted = [replica for replica in missing if replica not in held]
        check = self.check_template() if wanted else None
        if check is not None:
            return check
        stale = self.gang_object
        if wanted and stale is not None and stale.size != gangs.size(self.spec):
            return self.drop_gang()  # of another size; it is made anew when it is gone
        creations = (*self._left_behind(), *self._shared_objects(), *map(CreatePod, self.pods(wanted)))
        first_pods = not self.current()
        status = self.status(starting=frozenset(wanted))
        starting = status.start_time is None
        if starting:
            began = {"start_time": format_time(self.view.now), "attempt": self.attempt, "gang": self._gang_name()}
            status = status.model_copy(update=began)
        readiness = self.readiness(done, status)
        if readiness.status == "True" and status.ready_time is None:
            status = status.model_copy(update={"ready_time": format_time(self.view.now)})
        stalled = self.stalled()
        verdicts = Verdicts(pods_ready=readiness, stalled=stalled)
        changed = self.view.patch(self.view.with_verdicts(status, verdicts))
        events = self._events(wanted, starting=starting, changed=writes(changed))
        # How many replicas the pods of an attempt are told of is recorded before the first of them exists.
        made = (*changed, *creations) if first_pods else (*creations, *changed)
        again = (RequeueAfter(min(held.values())),) if held else ()
        if stalled.status == "True" and writes(changed) and not self.job.status.is_true(Condition.STALLED):
            events = (*events, Emit("Warning", Reason.STALLED, stalled.message))
        if writes(changed):
            events = (*events, *map(self._told_slow, self.new_stragglers))
        return (*made, *events, *self._blocked_news(readiness, changed=writes(changed)), *again)

    def _told_slow(self, straggler: Straggler) -> Emit:
        node = next((pod.node for pod in self.current() if f"{pod.role}-{pod.index}" == straggler.hostname), "")
        words = (
            f"{straggler.hostname} is slower than the others: its steps take {straggler.times:.1f} times as long as "
            f"the median" + (f"; look at node {node}" if node else "")
        )
        return Emit("Warning", Reason.STRAGGLING, words)

    def room_in(self, replica: Replica) -> float:
        """Seconds for which a replica that comes back alone waits for its predecessor: two must not share an address.

        One that hangs on a dead node is given up some time after its grace period.
        """
        waits = [
            (pod.deletion_due - self.view.now).total_seconds() + STUCK_SECONDS
            if pod.deletion_due is not None
            else STUCK_SECONDS
            for pod in self.predecessors(replica)
        ]
        return max(waits, default=0.0)

    def predecessors(self, replica: Replica) -> list[Pod]:
        """The pods of this attempt that have not ended of a replica that comes back alone."""
        if not self.alone(replica):
            return []
        before = (pod for pod in self.view.own if replica_of(pod) == replica and not pod.ended)
        return [pod for pod in before if pod.attempt >= self.attempt]

    def _events(self, created: list[Replica], *, starting: bool, changed: bool) -> tuple[Emit, ...]:
        refusal = self.view.observed.refusal
        if refusal is not None:
            message = f"{refusal.name}: {refusal.message}"
            return (Emit("Warning", Reason.POD_CREATION_FAILED, message),) if changed else ()
        if not created:
            return ()
        if not starting and self.current():
            gone = len([replica for replica in created if not self.alone(replica)])
            return (Emit("Warning", Reason.REPLICA_LOST, f"created {gone} pods anew that were gone"),) if gone else ()
        roles = ", ".join(f"{self.spec.replicas(role)} {role}" for role in self.spec.roles())
        which = f" for attempt {self.attempt}" if self.attempt > 1 else ""
        said = Emit("Normal", Reason.PODS_CREATED, f"created {len(created)} pods{which} ({roles})")
        if starting and self.job.status.is_true(Condition.SUSPENDED):
            if self.gang is not None and self.gang.gang is Gang.KUEUE:
                return (Emit("Normal", Reason.ADMITTED, "Kueue has admitted the job"), said)
            return (Emit("Normal", Reason.RESUMED, f"resumed as attempt {self.attempt}"), said)
        return (said,)

    def _blocked_news(self, readiness: Assertion, *, changed: bool) -> tuple[Action, ...]:
        """An event when a kind of blocker first shows, and another look at pods too young to be named."""
        before = self.job.status.condition(Condition.PODS_READY)
        new = readiness.reason in blockers.REASONS and (before is None or before.reason != readiness.reason)
        wait = blockers.seconds_until_named(self.blocked(), self.view.now)
        return (
            *((Emit("Warning", readiness.reason, readiness.message),) if new and changed else ()),
            *((RequeueAfter(wait),) if wait is not None else ()),
        )

    def _shared_objects(self) -> tuple[Action, ...]:
        """Claim and Service, before the pods that need them."""
        claim = manifests.claim(self.job, self.spec)
        return (
            *((CreateClaim(claim),) if claim is not None and self.view.observed.claim is None else ()),
            *self._service(),
            *((self.new_gang(self.gang),) if self.gang is not None and self.gang_object is None else ()),
        )

    def _gang_name(self) -> str:
        """What the status says of it; nothing where the job does not ask for any."""
        if self.spec.run_policy.scheduling is None:
            return ""
        return str(self.gang.gang if self.gang is not None else Gang.NONE)

    def _service(self) -> tuple[Action, ...]:
        """The Service; the addresses of an older attempt vanish when it selects this one."""
        service = self.view.observed.service
        if service is None:
            return (ApplyService(manifests.service(self.job, self.spec, attempt=self.attempt)),)
        selector = manifests.service_selector(self.job, self.attempt)
        return (PointService(service.name, selector),) if service.selector != selector else ()

    def _left_behind(self) -> tuple[Action, ...]:
        """What is left of older incarnations. Pods that failed are kept: their logs are evidence."""
        older = (pod for pod in self.view.own if not pod.ended and not self.is_current(pod))
        return tuple(DeletePod(pod.name, pod.uid) for pod in older if not pod.terminating)
