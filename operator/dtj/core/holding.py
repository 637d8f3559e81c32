"""Jobs whose pods must not run now: suspended, queued by Kueue, or giving back what an incomplete gang holds.

Pods that are stopped here are stopped by our own will: whatever their exit codes are then, nothing has failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang
from dtj.core import gangs
from dtj.core.actions import (
    Action,
    DeleteGang,
    DeletePod,
    Emit,
    Plan,
    ReadFlavors,
    ReleaseQuota,
    RequeueAfter,
)
from dtj.core.observed import GangApi
from dtj.core.replicas import worker_selector
from dtj.core.starting import Starting
from dtj.core.status import (
    DesiredCondition,
    DesiredConditions,
    all_together,
    format_time,
    of_a_new_attempt,
    ready_text,
    without_a_guess,
)
from dtj.core.validity import Problem
from dtj.core.view import writes


@dataclass(frozen=True, slots=True)
class Holding(Starting):
    """The part of planning that keeps pods from running."""

    @property
    def begun(self) -> bool:
        """Whether there is something of the job that could be stopped."""
        return bool(self.view.own) or self.job.status.start_time is not None

    def suspend(self) -> Plan:
        """Stop what runs, as the user wishes; nothing is held for the job meanwhile."""
        told = DesiredCondition("True", Reason.SUSPENDED, "set runPolicy.suspend to false to go on")
        stopping = self._stop(told)
        return stopping if self.begun else (*stopping, *self.drop_gang())

    def _stop(self, told: DesiredCondition) -> Plan:
        """Stop all pods, then the Service. The next attempt's number is recorded first, so that the pods of a job
        that goes on need not wait for the names of these."""
        status = without_a_guess(self.job.status)
        started = status.start_time is not None
        counts = of_a_new_attempt(self.spec, status.replica_statuses)
        status = status.model_copy(
            update={
                "start_time": None,
                "ready_time": None,
                "attempt": self.attempt + 1 if started else status.attempt,
                "pending_restart": None,
                "replica_statuses": counts,
                "ready": ready_text(self.spec, counts),
                "selector": worker_selector(self.job.name),
            }
        )
        desired = DesiredConditions(pods_ready=DesiredCondition("False", told.reason), suspended=told)
        changed = self.view.patch(self.view.with_conditions(status, desired))
        if started:
            words = f"stopping {len([pod for pod in self.view.own if not pod.stopped])} pods"
            return (*changed, Emit("Normal", told.reason, words), RequeueAfter(0.0))
        stop = tuple(DeletePod(pod.name, pod.uid) for pod in self.view.own if not pod.terminating)
        return (*changed, *stop, *self.view.drop_service())

    # -- gangs -----------------------------------------------------------------------------------------------

    def must_look_for_gangs(self) -> bool:
        """Whether the next step depends on which schedulers the cluster has, and that is not known, or known too
        long."""
        scheduling, found = self.spec.run_policy.scheduling, self.view.observed.gangs
        if scheduling is None or scheduling.gang is Gang.NONE:
            return False
        return found is None or (bool(self.gang_problems()) and gangs.looked_long_ago(found, self.view.now))

    def gang_problems(self) -> tuple[Problem, ...]:
        """Why nobody can be told which pods belong together. Where that was possible once, the run goes on."""
        return (self.gang_choice,) if isinstance(self.gang_choice, Problem) else ()

    def look_again(self) -> tuple[RequeueAfter, ...]:
        """A scheduler may be installed at any time, and nobody will tell us."""
        return (RequeueAfter(gangs.LOOK_AGAIN_SECONDS),) if self.gang_problems() else ()

    def queue(self) -> Plan | None:
        """Let Kueue decide when the job runs, and stop it when Kueue wants its quota back; None once it may run."""
        api, workload = self.gang, self.gang_object
        if api is None or api.gang is not Gang.KUEUE:
            return None
        same = workload is not None and workload.size == gangs.size(self.spec)
        if workload is not None and same and gangs.admitted(workload):
            return self._learn_flavors()
        if workload is None and not self.begun:
            for held in (self.collision(), self.check_template()):
                if held is not None:
                    return held
        told = DesiredCondition("True", Reason.QUEUED, gangs.words(workload if same else None))
        stopping = self._stop(told)
        if self.begun:
            return stopping
        return (*stopping, *self._into_queue())

    def _into_queue(self) -> tuple[Action, ...]:
        """With no pod left: make the Workload, make it anew for another size, or give back its quota."""
        api, workload = self.gang, self.gang_object
        assert api is not None
        if workload is None:
            return (self.new_gang(api),)
        if workload.terminating:
            return ()
        if workload.size != gangs.size(self.spec):
            return (DeleteGang(workload.api, workload.name, workload.uid),)
        if gangs.evicted(workload) and gangs.holds_quota(workload):
            status = gangs.released(workload, format_time(self.view.now))
            return (ReleaseQuota(workload.api, workload.name, workload.version, status),)
        return ()

    def _learn_flavors(self) -> Plan | None:
        """Before pods are made: what the flavors mean to which the job was admitted."""
        api, workload = self.gang, self.gang_object
        assert api is not None
        assert workload is not None
        unknown = tuple(name for name in gangs.flavors_of(workload) if name not in self.view.observed.flavors)
        if not unknown:
            return None
        status = self.status(starting=frozenset())
        readiness = self.readiness(frozenset(), status)
        refused = self.view.observed.refusal is not None
        told = (
            self.view.patch(self.view.with_conditions(status, DesiredConditions(pods_ready=readiness)))
            if refused
            else ()
        )
        return (*told, ReadFlavors(api, unknown))

    def release(self) -> Plan | None:
        """Of a gang that cannot be complete, since the API server refuses some of its pods, the others give back
        what they hold: two such jobs could wait for each other's quota for ever.

        It is recorded first, so that these ends are never taken for failures.
        """
        ready = self.job.status.condition(Condition.PODS_READY)
        giving_back = ready is not None and ready.reason == Reason.GANG_RELEASED
        # Between the end of a container and the disappearance of its pod it still counts as one that was told to go.
        holding = [pod for pod in self.current() if not pod.stopped or pod.terminating]
        refusal = self.view.observed.refusal
        begins = refusal is not None and self.gang is not None and not self._is_complete(self.gang)
        if not holding or not (giving_back or begins):
            return None
        if giving_back:
            return tuple(DeletePod(pod.name, pod.uid) for pod in holding if not pod.terminating)
        assert refusal is not None
        message = (
            f"{refusal.name}: {refusal.message}; the other {len(holding)} pods of the gang give back what they hold, "
            "and all are created anew later"
        )
        desired = DesiredConditions(pods_ready=DesiredCondition("False", Reason.GANG_RELEASED, message))
        status = self.status(starting=frozenset())
        status = status.model_copy(update={"replica_statuses": all_together(status.replica_statuses)})
        changed = self.view.patch(self.view.with_conditions(status, desired))
        said = (Emit("Warning", Reason.GANG_RELEASED, message),) if writes(changed) else ()
        return (*changed, *said, RequeueAfter(0.0))

    def _is_complete(self, api: GangApi) -> bool:
        """Whether the gang has what it needs to run: its scheduler has placed pods, and places none before.

        Kueue leaves the placing to a scheduler that knows of no gang: there all pods must have been ready.
        """
        return self.was_ready if api.gang is Gang.KUEUE else self.has_started
