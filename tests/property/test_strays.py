"""Objects of other namespaces, whatever they claim to be, change neither what is observed of a job nor its plan.

A user may put any labels and any owner reference on the objects of their own namespace, many can read a job's UID, and
the API server does not check owner references across namespaces.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders import NOW, pod, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Label
from dtj.core.admission.scheduler_choice import APIS
from dtj.core.context import JobContext
from dtj.core.manifests.metadata import claim_name
from dtj.core.observed import Phase
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.core.policies.tensorboard import tensorboard_name
from dtj.engine.state import ClusterState
from dtj.kube.informer import Change
from dtj.kube.observed import claim_from, gang_from, pod_from, service_from
from dtj.kube.records import decode_gang, decode_plain, decode_pod, decode_service
from strategies import jobs

KINDS = ("pods", "services", "claims", "gangs")


@st.composite
def strays(draw: st.DrawFn, job: Job, *, namespaces: st.SearchStrategy[str]) -> tuple[str, JsonObject]:
    """An object of any kind that looks as much like the job's own as a user can make it: (store, body)."""
    replicas = [f"{role}-{index}" for role in ("worker", "chief", "ps") for index in range(2)]
    own_names = [job.name, claim_name(job), tensorboard_name(job.name), *(f"{job.name}-{each}" for each in replicas)]
    owner: JsonObject = {"kind": "DistributedTrainingJob", "name": job.name}
    owner |= {"uid": draw(st.sampled_from([job.uid, "somebody"])), "controller": draw(st.booleans())}
    role, index = draw(st.sampled_from(replicas)).split("-")
    metadata: dict[str, Any] = {
        "name": draw(st.sampled_from(own_names)),
        "namespace": draw(namespaces),
        "uid": draw(st.uuids().map(str)),
        "resourceVersion": "7",
        "labels": {
            Label.JOB_NAME: draw(st.sampled_from([job.name, "other"])),
            Label.JOB_UID: job.uid,
            Label.ROLE: role,
            Label.INDEX: index,
            Label.ATTEMPT: draw(st.sampled_from(["1", "2", ""])),
        },
        "ownerReferences": draw(st.sampled_from([[], [owner]])),
    }
    if draw(st.booleans()):
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    end: JsonObject = {
        "terminated": {"exitCode": draw(st.sampled_from([0, 1, 3, 42, 75, 143])), "message": '{"export": {}}'}
    }
    status: dict[str, Any] = {
        "phase": draw(st.sampled_from([str(phase) for phase in Phase])),
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "trainer", "state": draw(st.sampled_from([end, {}]))}],
    }
    return draw(st.sampled_from(KINDS)), {"metadata": metadata, "spec": {}, "status": status}


def throw(state: ClusterState, kind: str, body: JsonObject) -> None:
    """Show an object to its store, as its informer would."""
    raw = json.dumps(body).encode()
    match kind:
        case "pods":
            state.pods.apply(Change(None, pod_from(decode_pod(raw))))
        case "services":
            state.services.apply(Change(None, service_from(decode_service(raw))))
        case "claims":
            state.claims.apply(Change(None, claim_from(decode_plain(raw))))
        case _:
            state.gangs.apply(Change(None, gang_from(APIS[0], decode_gang(raw))))


def with_own_pods(job: Job) -> ClusterState:
    state = ClusterState(Platform())
    for replica in ("worker-0", "worker-1"):
        state.pods.apply(Change(None, pod(job, replica)))
    return state


@given(st.data())
def test_objects_of_other_namespaces_change_nothing_about_a_job(data: st.DataObject) -> None:
    job = data.draw(jobs())
    other_namespaces = st.sampled_from(["evil", "kube-system", ""]).filter(lambda name: name != job.namespace)
    state = with_own_pods(job)
    undisturbed = state.observe(job)
    for kind, body in data.draw(st.lists(strays(job, namespaces=other_namespaces), min_size=1, max_size=8)):
        throw(state, kind, body)
    observed = state.observe(job)
    assert observed == undisturbed
    assert plan(observed, NOW) == plan(undisturbed, NOW)


@given(st.data())
def test_no_object_is_a_jobs_own_but_that_which_it_controls_in_its_namespace(data: st.DataObject) -> None:
    job = Job.from_object(stored({"metadata": {"name": "digits"}, "spec": {}}))
    state = ClusterState(Platform())
    for kind, body in data.draw(st.lists(strays(job, namespaces=st.sampled_from(["default", "evil"])), max_size=8)):
        throw(state, kind, body)
    view = JobContext.of(state.observe(job), NOW)
    assert all(own.namespace == job.namespace and own.owner_uid == job.uid for own in view.own)
    assert all(foreign.namespace == job.namespace for foreign in view.foreign_pods)
