"""The NetworkPolicy of a job: the peers that may connect to its pods.

TensorFlow's servers authenticate nobody, and a client that reaches one can run code in it. Therefore the policy exists
before the first pod does, and a job whose policy is refused does not start. The policy is deleted when no pod of the
job listens any more.

Between the pods of one job all ports are open: NCCL, the TPU runtime and a user's own programs choose ports when they
run, and each of these pods can run code in the others anyway. From outside the job, only what is configured is open.

Source: https://kubernetes.io/docs/concepts/services-networking/network-policies/. A network plugin that does not
implement NetworkPolicy ignores it.
"""

from __future__ import annotations

from collections.abc import Iterable

from dtj.api import names
from dtj.api.job import Job
from dtj.api.json import JsonObject, digest_of
from dtj.api.names import Annotation, Label
from dtj.core.actions import Action, Create, Delete, Kind, Update
from dtj.core.context import JobContext
from dtj.core.manifests.metadata import labels_of, metadata_of
from dtj.core.platform import JobAccess


def network_policy(job: Job, access: JobAccess) -> JsonObject:
    """The NetworkPolicy of a job. Its annotation holds the digest of its spec."""
    spec = _spec(job, access)
    metadata = metadata_of(job, job.name, labels=labels_of(job))
    metadata["annotations"] = {Annotation.POLICY_DIGEST: digest_of(spec)}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def before_pods(context: JobContext) -> tuple[Action, ...]:
    """Create the policy, or bring it up to date if the operator is configured otherwise than when it was made."""
    access, found = context.observed.platform.job_access, context.observed.network_policy
    if access is None:
        return ()
    if found is None:
        return (Create(Kind.NETWORK_POLICY, network_policy(context.job, access)),)
    spec = _spec(context.job, access)
    if not context.job.owns(found) or found.digest == digest_of(spec):
        return ()
    metadata: JsonObject = {"uid": found.uid, "annotations": {Annotation.POLICY_DIGEST: digest_of(spec)}}
    return (Update(Kind.NETWORK_POLICY, found.name, {"metadata": metadata, "spec": spec}),)


def after_the_end(context: JobContext) -> tuple[Action, ...]:
    """Delete the policy of a finished job when nothing of it listens any more, TensorBoard included."""
    observed, job = context.observed, context.job
    found = observed.network_policy
    if not job.status.terminal or found is None or not job.owns(found):
        return ()
    shows_curves = observed.tensorboard is not None and job.owns(observed.tensorboard)
    if shows_curves or any(job.owns(pod) and not pod.main_container_ended for pod in observed.pods):
        return ()
    return (Delete(Kind.NETWORK_POLICY, found.name, found.uid),)


def _spec(job: Job, access: JobAccess) -> JsonObject:
    own: JsonObject = {"podSelector": {"matchLabels": {Label.JOB_UID: job.uid}}}
    return {
        "podSelector": {"matchLabels": {Label.JOB_UID: job.uid}},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"from": [own]},
            *_from(access.status, names.STATUS_PORT),
            *_from(access.tensorboard, names.TENSORBOARD_PORT),
        ],
    }


def _from(peers: Iterable[JsonObject], port: int) -> tuple[JsonObject, ...]:
    """One rule. No rule for no peers: an empty list would let everybody in."""
    listed = list(peers)
    return ({"from": [*listed], "ports": [{"protocol": "TCP", "port": port}]},) if listed else ()
