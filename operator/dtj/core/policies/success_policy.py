"""When a job has succeeded: the replicas that its success policy names have completed."""

from __future__ import annotations

from collections.abc import Collection

from dtj.api.names import Condition, Reason
from dtj.api.spec import JobSpec, Role
from dtj.core.actions import Decision
from dtj.core.context import JobContext
from dtj.core.messages import first_few
from dtj.core.outcome import CLOCKS_DIFFER, Failure, PodLosses, Success
from dtj.core.pod_failure import PodEnd, PodFailureClass
from dtj.core.pod_state import replica_of
from dtj.core.policies.finish import finish
from dtj.core.policies.restart_scope import in_order
from dtj.core.replicas import Replica, deciding_replicas


def finish_as_recorded(context: JobContext) -> Decision | None:
    """Go on with the end that an earlier pass decided, whatever is seen now."""
    status = context.job.status
    met, target = status.when_true(Condition.SUCCESS_CRITERIA_MET), status.when_true(Condition.FAILURE_TARGET)
    if met is not None:
        return finish(context, Success(met.message))
    if target is not None:
        reason = Reason.recorded(target.reason, otherwise=Reason.REPLICA_FAILED)
        return finish(context, Failure(reason, target.message, status.root_cause))
    return None


def succeed(context: JobContext) -> Decision | None:
    """End the job once the replicas that decide have completed."""
    outcome = decide(context.spec, context.pod_ends, context.completed, context.members, may_fail=context.may_fail)
    return finish(context, outcome) if isinstance(outcome, Success) else None


def decide(
    spec: JobSpec,
    terminated: tuple[PodEnd, ...],
    completed: frozenset[Replica],
    members: frozenset[Replica] | None = None,
    *,
    may_fail: Collection[Role] = (),
) -> Success | PodLosses | None:
    """What the ends of one attempt's pods mean; None if the others just go on. ``members`` are the replicas that train,
    if they are not all. The errors of roles that ``may_fail`` are in no success's way, however early they were.

    If several pods have ended, the earliest counts: what happens to the peers of a chief that has completed is no
    failure of the job, nor is the error of a worker whose peer was evicted a moment before. Nodes stamp these ends by
    their own clocks: a completion that follows an error by seconds may have been its cause, and wins.
    """
    unfinished = [e for e in terminated if e.failure_class is not PodFailureClass.COMPLETED]
    losses = in_order(spec, (e for e in unfinished if replica_of(e.pod) not in completed))
    deciding = deciding_replicas(spec, members)
    if deciding and deciding <= completed:
        ends = (e for e in terminated if e.failure_class is PodFailureClass.COMPLETED)
        decided_at = max((e.at for e in ends if replica_of(e.pod) in deciding), default=None)
        errors = [e for e in unfinished if not e.by_infrastructure and e.pod.role not in may_fail]
        if not errors or decided_at is None or decided_at - CLOCKS_DIFFER <= errors[0].at:
            return Success(_success_message(deciding, [e for e in terminated if e.pod.failed]))
    return PodLosses(tuple(losses)) if losses else None


def _success_message(deciding: frozenset[Replica], failed: list[PodEnd]) -> str:
    who = (
        next(iter(deciding)).hostname + " completed"
        if len(deciding) == 1
        else f"all {len(deciding)} training replicas completed"
    )
    after = f"; {first_few(ended.pod.name for ended in failed)} failed after that" if failed else ""
    return who + after
