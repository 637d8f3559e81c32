"""Stalled jobs that start again: ``runPolicy.onStall: Restart``."""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.api.spec import OnStall
from dtj.core.context import JobContext
from dtj.core.decision import Decision
from dtj.core.outcome import Failure
from dtj.core.pod_failure import PodFailureClass
from dtj.core.policies import budgets, stall
from dtj.core.policies.finish import finish
from dtj.core.policies.restart import begin_attempt


def restart_stalled(context: JobContext) -> Decision | None:
    """All start again, as after an error of their own: a job that always stands still must end."""
    why = stall.evidence(context)
    if why is None or context.spec.run_policy.on_stall is not OnStall.RESTART:
        return None
    status = context.job.status
    spent = budgets.used_up(context.spec, status)
    if spent is not None:
        return finish(context, Failure(Reason.STALLED, why + spent))
    counts = budgets.charged(status.restarts, PodFailureClass.USER_ERROR)
    return begin_attempt(context, "Warning", why, status.model_copy(update={"restarts": counts}))
