"""What the status of a job says that the operator cannot plan, because of an error of its own.

No other policy gets to say anything about such a job, so this one stands alone: it reads nothing but the status.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from dtj.api.job import Job
from dtj.api.names import Condition, Reason
from dtj.core.actions import Emit, PatchStatus, Plan
from dtj.core.conditions import DesiredCondition, conditions
from dtj.core.messages import cut


def report(job: Job, error: str, now: datetime) -> Plan:
    """Say that ``error`` keeps the operator from planning the job; empty if the status says it already.

    Stalled is True until the next pass that writes the status. A job whose pods run goes on; of another one, the
    condition PodsReady says the same.
    """
    message = cut(f"the operator met an error of its own, and tries again: {error}")
    wrong: dict[Condition, Literal["True", "False"]] = {Condition.STALLED: "True"}
    if not job.status.is_true(Condition.PODS_READY):
        wrong[Condition.PODS_READY] = "False"
    wanted = ((kind, DesiredCondition(value, Reason.OPERATOR_ERROR, message)) for kind, value in wrong.items())
    found = conditions(job.status.conditions, wanted, generation=job.generation, now=now)
    if found == job.status.conditions:
        return ()
    status = job.status.model_copy(update={"conditions": found, "reason": str(Reason.OPERATOR_ERROR)})
    return PatchStatus(status), Emit("Warning", Reason.OPERATOR_ERROR, message)
