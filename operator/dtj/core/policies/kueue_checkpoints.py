"""On the Workload, when the job's newest checkpoint was written: what whoever chooses a job to preempt may go by.

Kueue itself does not read it. It is asked for in kubernetes-sigs/kueue#477 and ray-project/ray#63968.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Annotation
from dtj.api.spec import Gang
from dtj.core.actions import Decision, Update
from dtj.core.admission.workloads import admitted
from dtj.core.context import JobContext
from dtj.core.outcome import CLOCKS_DIFFER

INTERVAL: Final = timedelta(minutes=10)
"""How old the time on the Workload is at least when it gets another one."""


def alongside(context: JobContext, decision: Decision) -> tuple[Update, ...]:
    """Note the time along with a write of the status: about once in ten minutes, however often the job saves.

    The Workload of a copy is MultiKueue's, and is left as it is. That of the manager cluster gets the time.
    """
    workload, status = context.gang_object, context.job.status if context.dispatched else decision.status
    if workload is None or workload.api.gang is not Gang.KUEUE or status is None or status.terminal:
        return ()
    if context.job.prebuilt_workload or decision.replaces_gang or not admitted(workload):
        return ()
    latest = status.progress.last_checkpoint_time if status.progress is not None else ""
    noted = parse_time(workload.last_checkpoint)
    recent = noted is not None and -CLOCKS_DIFFER <= context.now - noted < INTERVAL
    if not latest or latest == workload.last_checkpoint or recent:
        return ()
    note = {Annotation.LAST_CHECKPOINT: latest}
    return (Update(workload.api, workload.name, {"metadata": {"uid": workload.uid, "annotations": {**note}}}),)
