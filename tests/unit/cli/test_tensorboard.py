"""``dtj tensorboard``: what it says where there is nothing to show."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from builders import CLAIM_TEMPLATE, NOW, job
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.status import JobStatus
from dtj.cli.tensorboard.show import problem_of, reason_to_wait
from dtj.core.observed import Pod
from dtj.kube.observed import pod_from
from dtj.kube.records import pod_from_object

CLAIM: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}


def shown(**spec: object) -> Job:
    return job(checkpoint=CLAIM, **{"tensorBoard": {}, **spec})  # type: ignore[arg-type]


def ended(ago: timedelta, **spec: object) -> Job:
    status = JobStatus.from_object(
        {
            "state": "Succeeded",
            "readyTime": "2026-01-02T03:00:00Z",
            "completionTime": (NOW - ago).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "conditions": [{"type": "Complete", "status": "True"}],
        }
    )
    return replace(shown(**spec), status=status)


def pod_that_waits(waiting: JsonObject) -> Pod:
    status: JsonObject = {"name": "tensorboard", "state": {"waiting": waiting}}
    spec: JsonObject = {"containers": [{"name": "tensorboard"}]}
    metadata: JsonObject = {"name": "digits-tensorboard"}
    record: JsonObject = {"metadata": metadata, "spec": spec, "status": {"containerStatuses": [status]}}
    return pod_from(pod_from_object(record))


def test_a_job_that_does_not_ask_for_it_gets_the_command_that_does() -> None:
    assert problem_of(job(checkpoint=CLAIM), now=NOW) == (
        "digits has no TensorBoard: set spec.tensorBoard: kubectl patch dtj/digits --type=merge -p "
        '\'{"spec":{"tensorBoard":{}}}\''
    )


def test_of_a_job_that_ended_long_ago_it_names_the_field_to_raise() -> None:
    assert problem_of(ended(timedelta(minutes=59)), now=NOW) is None
    assert problem_of(ended(timedelta(hours=2)), now=NOW) == (
        "digits ended 2h00m ago: to see it again, raise spec.tensorBoard.ttlSeconds (3600)"
    )


def test_a_job_that_is_about_to_run_is_waited_for() -> None:
    assert problem_of(shown(), now=NOW) is None
    assert reason_to_wait(None) == "it starts when all pods of the job run"


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        ({"reason": "ErrImagePull", "message": "no such\nimage"}, "ImagePullFailed: no such image"),
        (
            {"reason": "RunContainerError", "message": 'exec: "tensorboard": executable file not found in $PATH'},
            'ContainerConfigError: exec: "tensorboard": executable file not found',
        ),
        (
            {"reason": "CrashLoopBackOff", "message": "back-off 10s"},
            "its pod starts, see kubectl describe pod/digits-tensorboard",
        ),
    ],
    ids=["image", "command", "crashes"],
)
def test_what_keeps_its_pod_from_starting_is_said(waiting: JsonObject, words: str) -> None:
    assert reason_to_wait(pod_that_waits(waiting)).startswith(words)


def test_a_pod_that_finds_no_node_says_so() -> None:
    why: JsonObject = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}
    unplaced = pod_from_object({"metadata": {"name": "digits-tensorboard"}, "status": {"conditions": [why]}})
    assert reason_to_wait(pod_from(unplaced)) == "Unschedulable: 0/3 nodes"
