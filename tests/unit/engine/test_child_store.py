"""The stores: pods as the planner sees them, and which pods are found for which job."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest
from pydantic import JsonValue

from builders import job, pod
from dtj.api.job import parse_time
from dtj.api.json import JsonObject, dig, fields_of, merge_patch_between
from dtj.api.names import Label, Reason
from dtj.core.observed import Blocker, Phase, Pod
from dtj.engine.child_store import ChildStore
from dtj.kube.informer import Change
from dtj.kube.observed import pod_from
from dtj.kube.records import decode_pod


def decoded(body: JsonObject) -> Pod:
    return pod_from(decode_pod(json.dumps(body).encode()))


FULL: JsonObject = {
    "metadata": {
        "name": "digits-worker-1",
        "namespace": "vision",
        "uid": "pod-uid",
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "deletionTimestamp": "2026-01-02T03:05:05Z",
        "labels": {Label.JOB_NAME: "digits", Label.ROLE: "worker", Label.INDEX: "1", Label.ATTEMPT: "3"},
        "ownerReferences": [{"uid": "other"}, {"uid": "job-uid", "controller": True}],
    },
    "spec": {"nodeName": "node-1", "containers": [{"name": "sidecar"}, {"name": "trainer"}]},
    "status": {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "low on memory",
        "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "False"}],
        "containerStatuses": [
            {"name": "sidecar", "state": {"terminated": {"exitCode": 0}}},
            {
                "name": "trainer",
                "state": {
                    "terminated": {
                        "exitCode": 137,
                        "signal": 9,
                        "reason": "OOMKilled",
                        "message": "last words",
                        "finishedAt": "2026-01-02T03:05:00Z",
                    }
                },
            },
        ],
    },
}


def test_a_pod_is_read_with_all_that_plans_depend_on() -> None:
    found = decoded(FULL)
    assert (found.namespace, found.name, found.uid) == ("vision", "digits-worker-1", "pod-uid")
    assert found.owner_uid == "job-uid", "the controlling owner, not the first"
    assert (found.job_name, found.role, found.index, found.attempt) == ("digits", "worker", 1, 3)
    assert (found.phase, found.ready, found.terminating) == (Phase.FAILED, False, True)
    assert (found.node, found.reason, found.message) == ("node-1", "Evicted", "low on memory")
    end = found.termination
    assert end is not None
    assert (end.exit_code, end.signal, end.reason, end.message) == (137, 9, "OOMKilled", "last words")
    assert end.finished_at is not None
    assert not end.final


def test_the_line_with_which_the_trainer_says_that_no_restart_can_help_is_read() -> None:
    refused: JsonObject = {"exitCode": 2, "message": "dtj: no restart can help\n--task=poetry: no such task"}
    status: JsonObject = {
        "phase": "Failed",
        "containerStatuses": [{"name": "trainer", "state": {"terminated": refused}}],
    }
    end = decoded({**FULL, "status": status}).termination
    assert end is not None
    assert (end.final, end.message) == (True, "--task=poetry: no such task")


@pytest.mark.parametrize(
    ("timestamp", "grace", "at"),
    [("45", 1, "44"), ("47", 0, "46"), ("59", 30, "29"), ("45", 0, "45")],
    ids=["by a person", "once more by the kubelet", "by a drain", "by force"],
)
def test_when_a_pod_was_asked_to_stop_is_known_or_it_was_before_it_ended(timestamp: str, grace: int, at: str) -> None:
    """A real kubelet's: deleted at 44 with a second of grace, ended at 46, deleted again with 0 at 47."""
    body = copy.deepcopy(FULL)
    moment = "2026-11-21T08:41:{}Z".format
    body["metadata"] |= {"deletionTimestamp": moment(timestamp), "deletionGracePeriodSeconds": grace}  # type: ignore[operator]
    statuses = dig(body, "status", "containerStatuses")
    assert isinstance(statuses, list)
    for status in statuses:
        end = dig(status, "state", "terminated")
        if isinstance(end, dict):
            end["finishedAt"] = moment("46")
    assert decoded(body).deletion_requested_at == parse_time(moment(at))


@pytest.mark.parametrize(
    ("timestamp", "grace", "requested"),
    [
        ("2026-01-02T03:04:04Z", 2**63 - 1, "2022-11-01T17:17:24Z"),
        ("2026-01-02T03:04:04Z", -(2**63), "2026-01-02T03:04:04Z"),
        ("0001-01-01T00:00:00Z", 10**8, None),
    ],
    ids=["a grace period of 2^63 seconds", "one below 0", "a deletion in the year 1"],
)
def test_a_pod_with_times_that_no_clock_has_is_read(timestamp: str, grace: int, requested: str | None) -> None:
    times: JsonObject = {"deletionTimestamp": timestamp, "deletionGracePeriodSeconds": grace}
    metadata = fields_of(FULL["metadata"]) | {**times, "creationTimestamp": "9999-12-31T23:59:59Z"}
    found = decoded({**FULL, "metadata": metadata})
    assert (found.terminating, found.deletion_requested_at, found.created_at) == (True, parse_time(requested), None)


@pytest.mark.parametrize("label", ["9" * 60, "\u0663", "\u00b2"], ids=["60 digits", "of another script", "a power"])
def test_a_label_that_no_operator_writes_is_no_number(label: str) -> None:
    labels = {**fields_of(dig(FULL, "metadata", "labels")), Label.INDEX: label, Label.ATTEMPT: label}
    found = decoded({**FULL, "metadata": {**fields_of(FULL["metadata"]), "labels": labels}})
    assert (found.index, found.attempt) == (-1, 1)


def test_the_only_container_decides_whatever_its_name() -> None:
    status = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 3}}}]}
    end = decoded({**FULL, "spec": {"containers": [{"name": "main"}]}, "status": status}).termination  # type: ignore[dict-item]
    assert end is not None
    assert end.exit_code == 3


@pytest.mark.parametrize(("role", "code"), [("tensorboard", None), ("worker", 1)])
@pytest.mark.parametrize("state", ["terminated", "waiting"])
def test_a_container_that_its_kubelet_starts_again_has_ended_where_it_trains(
    role: str, code: int | None, state: str
) -> None:
    ended: JsonObject = {"terminated": {"exitCode": 1, "reason": "Error"}}
    backs_off: JsonObject = {"waiting": {"reason": "CrashLoopBackOff"}}
    now, before = (ended, {}) if state == "terminated" else (backs_off, ended)
    status: JsonObject = {"phase": "Running", "containerStatuses": [{"name": "it", "state": now, "lastState": before}]}
    metadata: JsonObject = {"name": "digits", "labels": {Label.ROLE: role}}
    spec: JsonObject = {"restartPolicy": "Always", "containers": [{"name": "it"}]}
    end = decoded({"metadata": metadata, "spec": spec, "status": status}).termination
    assert (end.exit_code if end is not None else None) == code


def pending(*, conditions: object = None, init: object = None, main: object = None, **other: object) -> Pod:
    """A pod that waits: its conditions, and the states of its containers."""
    status = {
        "phase": "Pending",
        "conditions": conditions or [],
        "initContainerStatuses": [{"name": "fetch", "state": init or {}}],
        "containerStatuses": [
            *({"name": name, "state": state} for name, state in other.items()),
            {"name": "trainer", "state": main or {}},
        ],
    }
    return decoded({**FULL, "status": status})  # type: ignore[dict-item]


def waits(reason: str, message: str = "") -> object:
    return {"waiting": {"reason": reason, "message": message}}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: none."}


def test_a_pod_that_finds_no_node_says_so_in_the_schedulers_words() -> None:
    assert pending(conditions=[UNSCHEDULABLE]).blocker == Blocker(Reason.UNSCHEDULABLE, "0/3 nodes: none.")
    assert pending(conditions=[{**UNSCHEDULABLE, "reason": "SchedulingGated"}]).blocker is None
    assert pending(conditions=[{"type": "PodScheduled", "status": "True"}]).blocker is None


@pytest.mark.parametrize(
    ("reason", "ours"),
    [
        ("ErrImagePull", Reason.IMAGE_PULL_FAILED),
        ("ImagePullBackOff", Reason.IMAGE_PULL_FAILED),
        ("InvalidImageName", Reason.IMAGE_PULL_FAILED),
        ("CreateContainerConfigError", Reason.CONTAINER_CONFIG_ERROR),
        ("CreateContainerError", Reason.CONTAINER_CONFIG_ERROR),
        ("RunContainerError", Reason.CONTAINER_CONFIG_ERROR),
        ("ContainerCreating", None),
        ("PodInitializing", None),
        ("", None),
    ],
)
def test_a_container_that_cannot_start_says_so_in_the_kubelets_words(reason: str, ours: Reason | None) -> None:
    def says(words: str) -> Blocker | None:
        return Blocker(ours, words) if ours is not None else None

    assert pending(main=waits(reason, "no\n such thing")).blocker == says("no such thing")
    assert pending(init=waits(reason, "no")).blocker == says("container fetch: no")
    assert pending(sidecar=waits(reason, "no")).blocker == says("container sidecar: no")
    assert pending(main=waits(reason)).blocker == says(reason)


def test_a_failed_pull_and_the_wait_for_the_next_say_the_same() -> None:
    cause = 'rpc error: code = NotFound desc = failed to pull and unpack image "example/trainer:1": not found'
    failed = pending(main=waits("ErrImagePull", cause)).blocker
    waiting = waits("ImagePullBackOff", f'Back-off pulling image "example/trainer:1": ErrImagePull: {cause}')
    assert pending(main=waiting).blocker == failed == Blocker(Reason.IMAGE_PULL_FAILED, cause)
    alone = 'Back-off pulling image "example/trainer:1"'
    assert pending(main=waits("ImagePullBackOff", alone)).blocker == Blocker(Reason.IMAGE_PULL_FAILED, alone)


def test_words_without_end_are_cut() -> None:
    blocker = pending(main=waits("ErrImagePull", "x" * 10_000)).blocker
    assert blocker is not None
    assert len(blocker.message) == 1024


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"name": "a"}},
        {"metadata": {"name": "a", "labels": None, "ownerReferences": None}, "status": {"conditions": None}},
        {"metadata": {"name": "a", "labels": {Label.INDEX: "first", Label.ATTEMPT: ""}}, "status": {"phase": "New"}},
    ],
)
def test_a_pod_of_which_little_is_known_can_be_read(body: JsonObject) -> None:
    found = decoded(body)
    assert (found.name, found.phase, found.ready, found.termination) == ("a", Phase.PENDING, False, None)
    assert (found.index, found.attempt) == (-1, 1)


def store_of(*pods: tuple[str, Pod]) -> ChildStore[Pod]:
    store: ChildStore[Pod] = ChildStore()
    for job_name, found in pods:
        store.apply(Change(None, replace(found, job_name=job_name)))
    return store


def test_a_jobs_pods_are_those_with_its_name_in_their_labels_and_those_it_owns() -> None:
    digits = job()
    ours, foreign = pod(digits, "worker-0"), pod(digits, "worker-1", owner_uid="somebody")
    relabelled = pod(digits, "worker-2")
    unrelated = pod(job("other"), "worker-0", owner_uid="others")
    store = store_of(("digits", ours), ("digits", foreign), ("renamed", relabelled), ("other", unrelated))
    assert set(store.of(digits).values()) == {ours, foreign, replace(relabelled, job_name="renamed")}


def test_a_change_of_labels_or_owner_leaves_no_trace_in_the_indexes() -> None:
    digits = job()
    before = pod(digits, "worker-0")
    after = replace(before, job_name="other", owner_uid="somebody")
    store = store_of(("digits", before))
    store.apply(Change(before, after))
    assert store.of(digits) == {}
    store.apply(Change(after, None))
    assert len(store) == 0
    assert store.of(job("other")) == {}


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1, "b": 2}, {"a": 1}, {"b": None}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1, "z": 3}}, {"a": {"y": None, "z": 3}}),
        ({"a": {"x": 1}}, {"a": {"x": 1}, "b": {}}, {"b": {}}),
        ({"a": 1}, {"a": {"x": 1}}, {"a": {"x": 1}}),
        ({"a": {"x": 1}}, {"a": 1}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [1, 3]}, {"a": [1, 3]}),
    ],
)
def test_a_merge_patch_holds_just_the_difference(before: JsonObject, after: JsonObject, patch: JsonObject) -> None:
    assert merge_patch_between(before, after) == patch


@pytest.mark.parametrize(
    ("ready", "containers", "silent"),
    [
        ({"status": "False"}, "True", True),
        ({"status": "False", "reason": "ReadinessGatesNotReady"}, "True", False),
        ({"status": "False", "reason": "ContainersNotReady"}, "False", False),
        ({"status": "False"}, "False", False),
        ({"status": "True"}, "True", False),
    ],
)
def test_a_pod_that_the_node_controller_makes_unready_is_silent(
    ready: JsonObject, containers: str, silent: bool
) -> None:
    conditions: list[JsonValue] = [{"type": "Ready", **ready}, {"type": "ContainersReady", "status": containers}]
    found = decoded({"status": {"phase": "Running", "conditions": conditions}})
    assert (found.silent, found.ready) == (silent, ready["status"] == "True")
