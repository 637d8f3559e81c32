"""The Services of a TFJob: one for each replica, so that its name outlives its pod.

They are made before the pods, and publish addresses of pods that are not ready: no replica ends for want of a name.
"""

from __future__ import annotations

from dtj.api.json import JsonObject
from dtj.api.names import Annotation, Label
from dtj.core.actions import Action, Create, Delete, Kind, Update
from dtj.core.context import JobContext
from dtj.core.manifests.metadata import labels_of, metadata_of
from dtj.core.observed import Child
from dtj.core.pod_state import replica_of
from dtj.core.replicas import Replica, base_name, incarnation, replicas


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the Services that are missing, and delete those of replicas that the job does not have any more."""
    wanted = {base_name(context.job, replica): replica for replica in replicas(context.spec)}
    found = {child.name: child for child in context.observed.services}
    missing = (Create(Kind.SERVICE, _service(context, each)) for name, each in wanted.items() if name not in found)
    outdated = (_delete(child) for child in _owned(context) if child.name not in wanted)
    return (*missing, *_updates(context, wanted), *outdated)


def drop(context: JobContext) -> tuple[Action, ...]:
    """Delete the Services of the job."""
    return tuple(map(_delete, _owned(context)))


def _delete(child: Child) -> Delete:
    return Delete(Kind.SERVICE, child.name, child.uid)


def _owned(context: JobContext) -> tuple[Child, ...]:
    return tuple(child for child in context.observed.services if context.job.owns(child))


def _updates(context: JobContext, wanted: dict[str, Replica]) -> tuple[Update, ...]:
    """Let a Service select the next pod of its replica alone where the one before may still answer: that one is on its
    way out, or on a node that is lost. Such a Service is changed again with each later pod."""
    answering = {replica_of(pod) for pod in context.own if not pod.all_containers_ended and not context.is_current(pod)}
    updates = []
    for child in _owned(context):
        replica = wanted.get(child.name)
        if replica is None or not (replica in answering or Label.INCARNATION in child.selector):
            continue
        number = incarnation(context.job.status, replica)
        selector = {**_selector(context, replica), **({Label.INCARNATION: str(number)} if number else {})}
        if selector != child.selector:
            updates.append(selecting(child, selector))
    return tuple(updates)


def selecting(child: Child, selector: dict[str, str], *, config_map: str = "") -> Update:
    """Have a Service select these pods, and name this ConfigMap, or none where it is empty."""
    metadata: JsonObject = {"uid": child.uid, "annotations": {Annotation.CLUSTER: config_map or None}}
    return Update(Kind.SERVICE, child.name, {"metadata": metadata, "spec": {"selector": {**selector}}})


def _selector(context: JobContext, replica: Replica) -> dict[str, str]:
    """The labels by which Kubeflow's operator, too, finds the pods of a replica."""
    job = context.job
    labels = {**labels_of(job), **job.form.replica_labels(replica.role, replica.index, decides=False)}
    return {key: str(value) for key, value in labels.items()}


def _service(context: JobContext, replica: Replica) -> JsonObject:
    """The headless Service of a replica, with all ports that its container names.

    A Service has each port once: the container may have a name of its own for that of TensorFlow's server.
    """
    job, spec = context.job, context.spec
    labels: JsonObject = {**_selector(context, replica)}
    named = job.form.named_ports(spec, replica.role)
    ports = {number: name for name, number in named.items()} | {job.form.port(spec, replica.role): job.form.port_name}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata_of(job, base_name(job, replica), labels=labels),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": name, "port": number, "targetPort": number} for number, name in ports.items()],
        },
    }
