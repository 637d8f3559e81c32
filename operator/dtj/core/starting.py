"""Bringing a job's pods about: what they need comes first, and what keeps them from starting is said."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dtj.api.job import parse_time
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang
from dtj.core import blockers, gangs, leftovers, manifests, network_policy, outcome, recovery, stall
from dtj.core.actions import (
    Action,
    CheckPods,
    CreateClaim,
    CreateService,
    DeletePod,
    Emit,
    Plan,
    RequeueAfter,
    UpdateServiceSelector,
)
from dtj.core.messages import first_few
from dtj.core.observed import Pod
from dtj.core.outcome import replica_of
from dtj.core.picture import REJECTION_TTL, Picture
from dtj.core.replicas import Replica, replicas
from dtj.core.status import DesiredCondition, DesiredConditions, format_time, recorded_completions
from dtj.core.stragglers import Straggler
from dtj.core.validity import Problem
from dtj.core.view import writes

COLLISION_RETRY_SECONDS = 30.0
"""When to look again whether a foreign object that has one of our names is gone."""

COLLISION_PATIENCE_SECONDS = 10.0
"""For how long a new job does not complain of names that are taken."""


def _delete(pod: Pod) -> DeletePod:
    return DeletePod(pod.name, pod.uid)


@dataclass(frozen=True, slots=True)
class Starting(Picture):
    """The part of planning that creates."""

    def collision(self) -> Plan | None:
        """Objects with our names that are not ours: said aloud, and nothing is created around them."""
        ours = {self.name_of(replica) for replica in replicas(self.spec)}
        taken = [f'pod "{pod.name}"' for pod in self.view.foreign_pods if pod.name in ours]
        for kind, child in (
            ("service", self.view.observed.service),
            ("networkpolicy", self.view.observed.network_policy),
            ("persistentvolumeclaim", self.claim_in_use()),
            *(((self.gang.kind.lower(), self.view.observed.gang),) if self.gang is not None else ()),
        ):
            if child is not None and not self.job.owns(child):
                taken.append(f'{kind} "{child.name}"')
        if not taken:
            return None
        patience = self._patience()
        if patience > 0:
            return (RequeueAfter(patience),)
        belong, them = ("exists and belongs", "it") if len(taken) == 1 else ("exist and belong", "them")
        message = (
            f"{first_few(sorted(taken))} {belong} to something else, and the operator leaves {them} alone; "
            f"delete {them}, or give this job another name"
        )
        desired = DesiredConditions(pods_ready=DesiredCondition("False", Reason.NAME_TAKEN, message))
        changed = self.view.patch(self.view.with_conditions(self.status(starting=frozenset()), desired))
        said = (Emit("Warning", Reason.NAME_TAKEN, message),) if writes(changed) else ()
        return (*changed, *said, RequeueAfter(COLLISION_RETRY_SECONDS))

    def _patience(self) -> float:
        """Seconds for which a new job waits in silence for its names.

        Of a job that was deleted and created anew, the predecessor's objects are about to be collected.
        """
        created = recovery.at_most_later(self.job.created_at, outcome.CLOCKS_DIFFER, self.view.now)
        return COLLISION_PATIENCE_SECONDS - (self.view.now - created).total_seconds() if created is not None else 0.0

    def check_template(self) -> Plan | None:
        """Before pods are created: does the API server take one of each role? Its own words go into the status.

        Where the namespace enforces the Pod Security Standard "restricted", it is asked again with pods that fit it.
        A job that has started is not invalid any more: what is refused then is said when its pod is created.
        """
        verdict = self.verdict
        if verdict is None or (verdict.wants_restricted and not verdict.restricted):
            restricted = self.view.observed.platform.restricted or verdict is not None
            check = CheckPods(self.job.generation, self.first_pods(restricted=restricted), restricted)
            return (*self._obstructed(), check)
        if not verdict.errors or self.view.own or self.job.status.start_time is not None:
            return None
        found = tuple(Problem(Reason.TEMPLATE_REJECTED, error) for error in verdict.errors)
        again = self.seconds_until(verdict.at + REJECTION_TTL)
        return (*self.view.report_invalid(found), RequeueAfter(again))

    def _obstructed(self) -> Plan:
        """Nothing else is written before the pods are checked, which may be what keeps failing."""
        if not self.view.observed.obstacle:
            return ()
        return self.view.patch(self.view.with_conditions(self.status(starting=frozenset()), DesiredConditions()))

    def run(self, done: frozenset[Replica]) -> Plan:
        missing = self.missing(done)
        held = {replica: wait for replica in missing if (wait := self.seconds_until_due(replica)) > 0}
        wanted = [replica for replica in missing if replica not in held]
        check = self.check_template() if wanted else None
        if check is not None:
            return check
        stale = self.gang_object
        if wanted and stale is not None and stale.size != gangs.size(self.spec):
            return self.drop_gang()  # of another size; it is made anew when it is gone
        creations = (*self._left_behind(), *self._shared_objects(), *self.creations(wanted))
        tidied = leftovers.to_delete(self.view.own, self.job, now_running=self.is_current)
        first_pods = not self.current()
        status = self.status(starting=frozenset(wanted))
        starting = status.start_time is None
        if starting:
            began = {"start_time": format_time(self.view.now), "attempt": self.attempt, "gang": self._gang_name()}
            status = status.model_copy(update=began)
        readiness = self.readiness(done, status)
        if readiness.status == "True":
            ready_time = status.ready_time or format_time(self.view.now)
            status = status.model_copy(update={"ready_time": ready_time, "ready_attempt": self.attempt})
        stalled = stall.condition(self)
        desired = DesiredConditions(pods_ready=readiness, stalled=stalled)
        changed = self.view.patch(self.view.with_conditions(status, desired))
        events = self._events(wanted, starting=starting, changed=writes(changed))
        # How many replicas the pods of an attempt are told of is recorded before the first of them exists.
        made = (*changed, *creations) if first_pods else (*creations, *changed)
        again = (RequeueAfter(min(held.values())),) if held else ()
        before = self.job.status.condition(Condition.STALLED)
        told = before is not None and before.status == stalled.status
        if stalled.status != "False" and writes(changed) and not told:
            events = (*events, Emit("Warning", stalled.reason, stalled.message))
        if writes(changed):
            events = (*events, *map(self._told_slow, self.new_stragglers))
        news = self._blocked_news(readiness, changed=writes(changed))
        return (*made, *map(_delete, tidied), *events, *news, *again)

    def _told_slow(self, straggler: Straggler) -> Emit:
        node = next((pod.node for pod in self.current() if f"{pod.role}-{pod.index}" == straggler.hostname), "")
        words = (
            f"{straggler.hostname} is slower than the others: its steps take {straggler.times:.1f} times as long as "
            f"the median" + (f"; look at node {node}" if node else "")
        )
        return Emit("Warning", Reason.STRAGGLING, words)

    def seconds_until_due(self, replica: Replica) -> float:
        """Seconds until the missing pod of a replica may be created."""
        due = self.restart_due(replica)
        return max(
            self.seconds_until_predecessor_gone(replica),
            (due - self.view.now).total_seconds() if due is not None else 0.0,
        )

    def restart_due(self, replica: Replica) -> datetime | None:
        """When the next pod of a replica that is replaced alone may be created, by what was recorded then."""
        counts = self.job.status.replica_statuses.get(replica.role)
        due = parse_time(counts.restarting.get(str(replica.index))) if counts is not None else None
        return recovery.at_most_later(due, recovery.LONGEST_BACKOFF, self.view.now)

    def seconds_until_predecessor_gone(self, replica: Replica) -> float:
        """Seconds for which a replica that comes back alone waits for its predecessor: two must not share an address.

        One that hangs on a dead node is given up some time after its grace period. That is counted from when the
        replica was replaced, by the operator's own clock: the API server's may be another by hours.
        """
        since, waits = self.restart_due(replica), [0.0]
        for pod in self.predecessors(replica):
            if pod.deletion_due is None:
                waits.append(leftovers.STUCK.total_seconds())
            elif since is not None and pod.deletion_requested_at is not None:
                given_up = since + (pod.deletion_due - pod.deletion_requested_at)
                waits.append((given_up - self.view.now).total_seconds() + leftovers.STUCK.total_seconds())
            else:
                waits.append((pod.deletion_due - self.view.now).total_seconds() + leftovers.STUCK.total_seconds())
        return max(waits)

    def predecessors(self, replica: Replica) -> list[Pod]:
        """The pods of this attempt that run still, of a replica that comes back alone."""
        if not self.alone(replica):
            return []
        before = (pod for pod in self.view.own if replica_of(pod) == replica and not pod.stopped)
        return [pod for pod in before if pod.attempt >= self.attempt and not self.is_current(pod)]

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

    def _blocked_news(self, readiness: DesiredCondition, *, changed: bool) -> tuple[Action, ...]:
        """An event when a kind of blocker first shows, and another look at pods too young to be named."""
        before = self.job.status.condition(Condition.PODS_READY)
        new = readiness.reason in blockers.REASONS and (before is None or before.reason != readiness.reason)
        wait = blockers.seconds_until_named(self.blocked(), self.view.now)
        return (
            *((Emit("Warning", readiness.reason, readiness.message),) if new and changed else ()),
            *((RequeueAfter(wait),) if wait is not None else ()),
        )

    def _shared_objects(self) -> tuple[Action, ...]:
        """NetworkPolicy, claim and Service, before the pods that need them."""
        claim = manifests.claim(self.job, self.spec)
        return (
            *network_policy.before_pods(self),
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
            return (CreateService(manifests.service(self.job, self.spec, attempt=self.attempt)),)
        selector = manifests.service_selector(self.job, self.attempt)
        return (UpdateServiceSelector(service.name, service.uid, selector),) if service.selector != selector else ()

    def _left_behind(self) -> Plan:
        """What runs on of older incarnations, and of replicas of which it is recorded that they have completed."""
        recorded = recorded_completions(self.job.status)
        return self.view.stop(
            pod for pod in self.view.own if not self.is_current(pod) or (pod.ended and replica_of(pod) in recorded)
        )
