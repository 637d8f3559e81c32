"""The Service of a job: it names the pods of one attempt, and goes with the end of the job."""

from __future__ import annotations

from dtj.core.actions import Action, CreateService, DeleteService, UpdateServiceSelector
from dtj.core.context import JobContext
from dtj.core.manifests import service as manifests


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the Service, or let it select this attempt: then the addresses of the older one vanish."""
    found = context.observed.service
    if found is None:
        return (CreateService(manifests.service(context.job, context.spec, attempt=context.attempt)),)
    selector = manifests.service_selector(context.job, context.attempt)
    return (UpdateServiceSelector(found.name, found.uid, selector),) if found.selector != selector else ()


def drop(context: JobContext) -> tuple[DeleteService, ...]:
    """Delete the job's Service, if it is there and ours."""
    found = context.observed.service
    if found is None or not context.job.owns(found):
        return ()
    return (DeleteService(found.name, found.uid),)
