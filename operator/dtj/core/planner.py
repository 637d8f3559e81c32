"""The planner: from what is observed of a job to what is to be done about it.

This file is the order of precedence: the first policy that has something to say decides the pass. Each policy is one
function in :mod:`dtj.core.policies`.

Planning is pure and level-triggered. It remembers nothing: whatever must survive is in the job's status, and is
recorded there before anything depends on it. A job whose world does not change gets an empty plan, or one that only
says when its next deadline is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, TypeAlias

from dtj.core import node_losses
from dtj.core.actions import Decision, Plan, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.observed import Observed
from dtj.core.policies import (
    admission,
    clean_pod_policy,
    corrupt,
    deadlines,
    elastic_members,
    finish,
    goodput,
    invalid,
    job_service,
    kueue_default_queue,
    kueue_multikueue,
    kueue_queue,
    kueue_workload_status,
    managed_twice,
    name_collision,
    network_policy,
    pods,
    resize,
    restart,
    stale_status,
    stall,
    straggler,
    success_policy,
    suspend,
    tensorboard,
    ttl_after_finished,
)

Policy: TypeAlias = Callable[[JobContext], Decision | None]
"""Decides about a job; None if it has nothing to say about it."""

BEFORE_DEADLINES: Final[tuple[Policy, ...]] = (
    # The queue of a job decides most of what follows. It is recorded where the status allows it, and touches no pod.
    kueue_default_queue.choose,
    # Touch nothing while pods are newer than the status that we know: another operator may lead by now.
    stale_status.wait_for_status,
    # Most of what follows depends on which gang schedulers there are.
    admission.discover,
    # What an earlier pass decided about the end stands, whatever is seen now.
    success_policy.finish_as_recorded,
    # A success counts even if the job is to be suspended, or is late.
    success_policy.succeed,
    # The user's wish to suspend comes before anything that could start pods or fail the job.
    suspend.suspend,
    # A time limit holds for jobs that cannot start as well: invalid, queued, blocked.
    deadlines.fail_if_late,
)
"""Policies before which no deadline need be awaited."""


def go_on_until_a_cause_shows(context: JobContext) -> Decision | None:
    """As if all were well, as long as a replica that lost a peer waits for its cause."""
    due = restart.awaited_until(context)
    if due is None:
        return None
    decision = name_collision.report_collision(context) or pods.run(context)
    return decision.then(RequeueAfter(context.seconds_until(due)))


WHILE_RUNNING: Final[tuple[Policy, ...]] = (
    # What pods say of wrong weights is recorded before they are replaced.
    corrupt.report,
    # Kueue takes its quota back whatever became of the manifest of a job that runs.
    kueue_queue.take_back,
    # Nothing is created for a job that is wrong; what runs already is left alone.
    invalid.report_problems,
    # A copy of a job of another cluster comes with its Workload.
    kueue_multikueue.adopt,
    # Kueue says when the job runs, and takes its quota back.
    kueue_queue.hold_until_admitted,
    # An incomplete gang gives back what it holds, before its pods are taken for lost.
    admission.release_incomplete,
    # A new number of workers changes the members, or restarts all: losses of the old attempt do not matter any more.
    resize.resize,
    # A restart that was recorded goes on even if the pod that caused it has been deleted.
    restart.restart_as_recorded,
    # A lost replica: alone, all, or the end of the job.
    restart.recover,
    # While only the cause of a loss is awaited, the others go on, and none of them is taken for stalled or slow.
    go_on_until_a_cause_shows,
    # No replica has to be replaced, but the training stands still.
    stall.restart_stalled,
    # It advances, at the pace of a member that is slow.
    straggler.replace_slow_member,
    # A coordinator that hangs on a dead node may still command the others.
    restart.restart_if_predecessor_hangs,
    # Names that are taken: nothing is created around them.
    name_collision.report_collision,
    # All is well: create what is missing, and record how it is.
    pods.run,
)
"""Policies of a job that may run. The next deadline is awaited, whichever of them decides."""

FINISHED: Final[tuple[Policy, ...]] = (
    # Tools that wait go by the generation that the status describes.
    finish.notice_change,
    # The PodGroup or Workload of a job that ended before this process began may still be there.
    admission.find_after_the_end,
    # Pods may still have to be stopped; only then does the time to live count.
    clean_pod_policy.stop_before_ttl,
    ttl_after_finished.delete_when_expired,
)
"""Policies of a job that has ended."""


def plan(observed: Observed, now: datetime) -> Plan:
    """What to do about ``observed.job`` at ``now`` (an aware datetime); ordered, empty if there is nothing to do.

    Never raises for anything that an API server can store.
    """
    job = observed.job
    if job.deleting or not job.uid or job.form.left_alone(job.raw_spec):
        return ()
    context = JobContext.of(observed, now)
    twice = managed_twice.leave(context)
    if twice is not None:
        return twice.actions
    if job.spec is None:
        return _unreadable(context)
    if context.dispatched:
        return kueue_multikueue.plan_dispatched(context)
    if job.status.terminal:
        decision = _first(FINISHED, context)
    else:
        decision = _first(BEFORE_DEADLINES, context)
        if decision is None:
            decision = _first(WHILE_RUNNING, context) or Decision()
            decision = decision.then(
                *deadlines.wake_ups(context),
                *elastic_members.wake_ups(context),
                *straggler.wake_ups(context),
                *admission.look_again(context),
            )
    decision = decision or Decision()
    if decision.final:
        return decision.actions
    return goodput.recorded(
        context,
        *decision.actions,
        *node_losses.events(job.status, decision.status or job.status, now),
        *stall.ask_for_stacks(context, decision),
        # The Service comes last: what becomes of TensorBoard does not wait for one that cannot be deleted.
        *tensorboard.alongside(context, decision),
        *network_policy.after_the_end(context),
        *job_service.after_the_end(context),
        *admission.after_the_end(context),
        *kueue_workload_status.alongside(context, decision),
    )


def _unreadable(context: JobContext) -> Plan:
    """A manifest that this operator cannot read, such as one of a newer version. Kueue gets its quota back."""
    if context.job.status.terminal:
        decision = Decision.of(
            *clean_pod_policy.stop_pods(context, clean_pod_policy.to_stop(context)), *job_service.after_the_end(context)
        )
    else:
        decision = kueue_queue.take_back(context) or invalid.keep_out(context, context.problems)
    return (*decision.actions, *kueue_workload_status.alongside(context, decision), *admission.find_unreadable(context))


def _first(policies: Iterable[Policy], context: JobContext) -> Decision | None:
    """What the first policy says that has something to say."""
    return next((decision for policy in policies if (decision := policy(context)) is not None), None)
