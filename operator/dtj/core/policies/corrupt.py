"""Replicas that have to hold the same weights and do not: an event, and a loss of the node whose pod was wrong.

The trainer compares them, and all its tasks end with 75. Launchers start them again in place, so usually no pod ends,
and the answer to ``GET /status`` tells of it; else the last line of a termination message does.
"""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.api.node_losses import Corrupt
from dtj.api.status import Progress
from dtj.core import node_losses
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.context import JobContext
from dtj.core.messages import first_few
from dtj.core.observed import Pod
from dtj.core.pod_failure import PEER_LOST_EXIT_CODE
from dtj.core.progress import progress


def report(context: JobContext) -> Decision | None:
    """Record what was found, once, before anything else is made of it.

    A run goes back to the checkpoint before and finds the same at the same step again, after another start or in
    another attempt.
    """
    found, before = _found(context), context.job.status
    known = before.progress.corrupt if before.progress is not None else None
    if found is None:
        return None
    found = found.model_copy(update={"attempt": context.attempt})
    if known is not None and (known.attempt, known.step, known.start) == (found.attempt, found.step, found.start):
        return None
    reported = (progress(context) or Progress()).model_copy(update={"corrupt": found})
    status = before.model_copy(update={"progress": reported})
    pod = _pod_of(context, found.workers[0]) if len(found.workers) == 1 else None
    if pod is not None:
        status = node_losses.recorded(status, {pod.node}, context.now)
    return Decision.write(status).then(
        Emit("Warning", Reason.REPLICAS_DIFFER, _words(found, pod)),
        RequeueAfter(0.0),
    )


def _found(context: JobContext) -> Corrupt | None:
    """What the pods tell of; None of what names no step or nobody."""
    answer = context.latest_answer
    messages = (
        Corrupt.from_message(pod.termination.message)
        for pod in context.current
        if pod.termination is not None and pod.termination.exit_code == PEER_LOST_EXIT_CODE
    )
    told = (*messages, answer.progress.corrupt if answer is not None else None)
    return next((each for each in told if each is not None and each.step is not None and each.workers), None)


def _pod_of(context: JobContext, worker: str) -> Pod | None:
    return next((pod for pod in context.current if f"{pod.role}-{pod.index}" == worker), None)


def _words(found: Corrupt, pod: Pod | None) -> str:
    where = f"at step {found.step}" + (f" in {found.variable}" if found.variable else "")
    if len(found.workers) > 1:
        return f"the weights of {first_few(found.workers)} differ {where}; nobody knows which of them are right"
    node = f"; look at node {pod.node}" if pod is not None and pod.node else ""
    who = f"{found.workers[0]} (pod {pod.name})" if pod is not None else found.workers[0]
    return f"{who} has wrong weights {where}{node}"
