"""The Service of a job: it names the pods of one attempt, and goes with the end of the job."""

from __future__ import annotations

from dtj.core import manifests
from dtj.core.actions import Action, CreateService, DeleteService, UpdateServiceSelector
from dtj.core.context import JobContext


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the Service, or let it select this attempt: then the addresses of the older one vanish."""
    service = context.observed.service
    if service is None:
        return (CreateService(manifests.service(context.job, context.spec, attempt=context.attempt)),)
    selector = manifests.service_selector(context.job, context.attempt)
    return (UpdateServiceSelector(service.name, service.uid, selector),) if service.selector != selector else ()


def drop(context: JobContext) -> tuple[DeleteService, ...]:
    """Delete the job's Service, if it is there and ours."""
    service = context.observed.service
    if service is None or not context.job.owns(service):
        return ()
    return (DeleteService(service.name, service.uid),)
