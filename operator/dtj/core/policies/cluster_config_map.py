"""The ConfigMap with the addresses of a job's replicas, where they are too many for each pod's manifest.

The operator observes no ConfigMaps. An annotation of the job's Service names the one that exists: it is written after
the ConfigMap was created, and the Service is deleted after it. Each name stands for one content, so that creating a
ConfigMap twice changes nothing.
"""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.core.actions import Action, CreateConfigMap, DeleteConfigMap
from dtj.core.context import JobContext


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the ConfigMap that this attempt's pods refer to, and delete the one of another number of replicas."""
    wanted, found = context.cluster.config_map_name, _named(context)
    if wanted == found and not (wanted and _is_missed(context, wanted)):
        return ()
    outdated = (DeleteConfigMap(found),) if found and found != wanted else ()
    return (*((CreateConfigMap(context.cluster.config_map()),) if wanted else ()), *outdated)


def drop(context: JobContext) -> tuple[Action, ...]:
    """Delete the ConfigMap, before the Service that names it."""
    found = _named(context)
    return (DeleteConfigMap(found),) if found else ()


def _named(context: JobContext) -> str:
    """The ConfigMap that the job's Service names; what a Service of somebody else names is theirs."""
    service = context.observed.service
    return service.config_map if service is not None and context.job.owns(service) else ""


def _is_missed(context: JobContext, name: str) -> bool:
    """Whether the kubelet reports for one of the pods that the ConfigMap is not there: somebody has deleted it."""
    return any(
        pod.blocker is not None and pod.blocker.reason is Reason.CONTAINER_CONFIG_ERROR and name in pod.blocker.message
        for pod in context.current
    )
