"""Names that are taken: objects with our names that are not ours are reported and left alone."""

from __future__ import annotations

from typing import Final

from dtj.api.names import Reason
from dtj.core.actions import Decision, Emit, RequeueAfter
from dtj.core.conditions import DesiredCondition, DesiredConditions
from dtj.core.context import JobContext
from dtj.core.manifests.metadata import claim
from dtj.core.messages import first_few
from dtj.core.outcome import CLOCKS_DIFFER
from dtj.core.policies.restart_wait import at_most_later
from dtj.core.replicas import base_name, replicas
from dtj.core.status_update import counted, write

RETRY_SECONDS: Final = 30.0
"""When to look again whether a foreign object that has one of our names is gone."""

PATIENCE_SECONDS: Final = 10.0
"""For how long a new job does not complain of names that are taken."""


def report_collision(context: JobContext) -> Decision | None:
    """Report objects with our names that are not ours; nothing is created around them."""
    return _report(context, _taken(context))


def report_workload_of_others(context: JobContext) -> Decision | None:
    """The same, for a job of which only the Workload is in this cluster."""
    found = context.observed.gang
    foreign = found is not None and not context.job.owns(found)
    return _report(context, [f'workload "{context.job.name}"'] if foreign else [])


def _report(context: JobContext, taken: list[str]) -> Decision | None:
    if not taken:
        return None
    patience = _patience(context)
    if patience > 0:
        return Decision.of(RequeueAfter(patience))
    exist, them = ("already exists and is", "it") if len(taken) == 1 else ("already exist and are", "them")
    message = f"{first_few(sorted(taken))} {exist} not owned by this job: delete {them}, or give this job another name"
    desired = DesiredConditions(pods_ready=DesiredCondition("False", Reason.NAME_TAKEN, message))
    changed = write(context, counted(context), desired)
    return changed.if_written(Emit("Warning", Reason.NAME_TAKEN, message)).then(RequeueAfter(RETRY_SECONDS))


def _taken(context: JobContext) -> list[str]:
    observed, gang = context.observed, context.gang
    ours = {context.name_of(replica) for replica in replicas(context.spec)}
    named = {base_name(context.job, replica) for replica in replicas(context.spec)}
    wants_claim = claim(context.job, context.spec) is not None
    taken = [f'pod "{pod.name}"' for pod in context.foreign_pods if pod.name in ours]
    for kind, child in (
        *(("service", child) for child in observed.services if child.name in named),
        ("service", observed.service),
        ("networkpolicy", observed.network_policy),
        ("persistentvolumeclaim", observed.claim if wants_claim else None),
        *(((gang.kind.lower(), observed.gang),) if gang is not None else ()),
    ):
        if child is not None and not context.job.owns(child):
            taken.append(f'{kind} "{child.name}"')
    return taken


def _patience(context: JobContext) -> float:
    """Seconds for which a new job waits in silence for its names.

    If a job was deleted and created again, the objects of its predecessor are about to be collected.
    """
    created = at_most_later(context.job.created_at, CLOCKS_DIFFER, context.now)
    return PATIENCE_SECONDS - (context.now - created).total_seconds() if created is not None else 0.0
