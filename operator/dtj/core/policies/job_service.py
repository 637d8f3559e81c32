"""The Service of a job: it names the pods of one attempt, and goes with the end of the job.

Where the addresses of the replicas are too many for each pod's manifest, a ConfigMap has them. The operator observes no
ConfigMaps. An annotation of the Service names the one that exists: it is written after the ConfigMap was created, and
the Service is deleted after it. Each name stands for one content, so that creating a ConfigMap twice changes nothing.
Whoever may change the Service can write that annotation: it counts if it is a name that we give.
"""

from __future__ import annotations

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Label, Reason
from dtj.api.spec import JobSpec
from dtj.core.actions import Action, Create, Delete, Kind
from dtj.core.context import JobContext
from dtj.core.manifests.metadata import labels_of, metadata_of
from dtj.core.manifests.tf_config import may_be_config_map_of
from dtj.core.observed import Phase
from dtj.core.policies import clean_pod_policy, tfjob_replica_services


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the ConfigMap and the Service, or let the Service select this attempt: then the addresses of the older one
    vanish. The replicas of a TFJob have a Service each.

    A Service of somebody else stays as it is.
    """
    if context.job.form.replica_services:
        return tfjob_replica_services.before_pods(context)
    return (*_config_map_before_pods(context), *_service_before_pods(context))


def _service_before_pods(context: JobContext) -> tuple[Action, ...]:
    found, config_map = context.observed.service, context.cluster.config_map_name
    if found is None:
        made = service(context.job, context.spec, attempt=context.attempt, config_map=config_map)
        return (Create(Kind.SERVICE, made),)
    selector = service_selector(context.job, context.attempt)
    if not context.job.owns(found) or (found.selector, found.config_map) == (selector, config_map):
        return ()
    return (tfjob_replica_services.selecting(found, selector, config_map=config_map),)


def drop(context: JobContext) -> tuple[Action, ...]:
    """Delete the job's Service, if it is there and ours, and the ConfigMap that it names before it. An operator that
    was killed may have made another one that it does not name yet."""
    if context.job.form.replica_services:
        return tfjob_replica_services.drop(context)
    found = context.observed.service
    if found is None or not context.job.owns(found):
        return ()
    wanted = context.cluster.config_map_name if context.job.spec is not None else ""
    names_of_ours = dict.fromkeys((_config_map_named(context), wanted))
    config_maps = (Delete(Kind.CONFIG_MAP, name) for name in names_of_ours if name)
    return (*config_maps, Delete(Kind.SERVICE, found.name, found.uid))


def after_the_end(context: JobContext) -> tuple[Action, ...]:
    """The Service goes with the end of the job, whatever its clean-up policy: a cluster holds some thousands."""
    return drop(context) if context.job.status.terminal and clean_pod_policy.has_stopped(context) else ()


def service_selector(job: Job, attempt: int) -> dict[str, str]:
    """The labels by which a job's Service, and nobody else's, finds the pods of one attempt."""
    return {Label.JOB_UID: job.uid, Label.ATTEMPT: str(attempt)}


def service(job: Job, spec: JobSpec, *, attempt: int, config_map: str = "") -> JsonObject:
    """The headless Service that gives each replica its name; ``config_map`` is the one with their addresses, if any.

    It publishes addresses of pods that are not ready: peers must find each other before any is.
    """
    metadata = metadata_of(job, job.name, labels=labels_of(job))
    if config_map:
        metadata["annotations"] = {Annotation.CLUSTER: config_map}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": dict(service_selector(job, attempt)),
            "ports": [
                {"name": "tf", "port": spec.port, "targetPort": spec.port},
                {"name": "status", "port": names.STATUS_PORT, "targetPort": names.STATUS_PORT},
            ],
        },
    }


def _config_map_before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the ConfigMap that this attempt's pods refer to, and delete the one of another number of replicas.

    That one stays where a pod that has not started may still refer to it, and goes with the job then.
    """
    wanted, found = context.cluster.config_map_name, _config_map_named(context)
    if wanted == found and not (wanted and _is_missed(context, wanted)):
        return ()
    needed = any(pod.phase is Phase.PENDING for pod in context.current)
    outdated = (Delete(Kind.CONFIG_MAP, found),) if found and found != wanted and not needed else ()
    return (*((Create(Kind.CONFIG_MAP, context.cluster.config_map()),) if wanted else ()), *outdated)


def _config_map_named(context: JobContext) -> str:
    """The ConfigMap that the job's Service names; what a Service of somebody else names is theirs, and so is a
    ConfigMap with a name that this job gives to none."""
    service, job = context.observed.service, context.job
    if service is None or not job.owns(service) or not may_be_config_map_of(job, service.config_map):
        return ""
    return service.config_map


def _is_missed(context: JobContext, name: str) -> bool:
    """Whether the kubelet reports for one of the pods that the ConfigMap is not there: somebody has deleted it."""
    return any(
        pod.blocker is not None and pod.blocker.reason is Reason.CONTAINER_CONFIG_ERROR and name in pod.blocker.message
        for pod in context.current
    )
