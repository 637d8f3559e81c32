"""Why pods ended: the table of 3-failure-semantics, row by row."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from builders import NOW, ended, job, pod
from dtj.core.observed import Phase, Pod
from dtj.core.pod_failure import PodFailureClass, ends_of

JOB = job()


def failed(code: int, *, after: float = 10, ran: float = 5, **fields: Any) -> Pod:
    """A worker that ended with this code, `after` seconds from now and having run for `ran` seconds."""
    end = ended(code, after_seconds=after)
    end = replace(end, started_at=NOW + timedelta(seconds=after - ran))
    return replace(pod(JOB, "worker-0", phase=Phase.FAILED, termination=end), **fields)


def asked_to_stop(after: float) -> dict[str, Any]:
    return {"terminating": True, "deletion_requested_at": NOW + timedelta(seconds=after)}


def ending(of: Pod, *peers: Pod) -> PodFailureClass | None:
    return next((found.failure_class for found in ends_of((of, *peers)) if found.pod is of), None)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (pod(JOB, "worker-0"), None),
        (pod(JOB, "worker-0", phase=Phase.PENDING), None),
        (pod(JOB, "worker-0", phase=Phase.SUCCEEDED, termination=ended(0)), PodFailureClass.COMPLETED),
        (failed(1), PodFailureClass.USER_ERROR),
        (failed(137), PodFailureClass.USER_ERROR),
        (failed(75), PodFailureClass.PEER_LOST),
        (failed(42), PodFailureClass.USER_ERROR),
        (failed(143), PodFailureClass.USER_ERROR),
        (failed(42, ran=30), PodFailureClass.PREEMPTION),
        (failed(143, ran=31), PodFailureClass.PREEMPTION),
        (failed(42, **asked_to_stop(8)), PodFailureClass.PREEMPTION),
        (failed(42, disrupted=True), PodFailureClass.PREEMPTION),
        (failed(1, **asked_to_stop(8)), PodFailureClass.DISRUPTION),
        (failed(1, **asked_to_stop(12)), PodFailureClass.USER_ERROR),
        (failed(137, disrupted=True), PodFailureClass.DISRUPTION),
        (replace(pod(JOB, "worker-0"), **asked_to_stop(0)), PodFailureClass.DISRUPTION),
    ],
    ids=lambda value: "" if isinstance(value, Pod) else str(value),
)
def test_each_end_has_its_class(of: Pod, expected: PodFailureClass | None) -> None:
    assert ending(of) is expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi.",
            PodFailureClass.DISRUPTION,
        ),
        (
            "The node was low on resource: ephemeral-storage. Container trainer was using 9Gi, which exceeds its "
            "request of 0.",
            PodFailureClass.DISRUPTION,
        ),
        ("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ", PodFailureClass.USER_ERROR),
        ('Container trainer exceeded its local ephemeral storage limit "1Gi". ', PodFailureClass.USER_ERROR),
        ('Usage of EmptyDir volume "cache" exceeds the limit "1Gi". ', PodFailureClass.USER_ERROR),
    ],
)
def test_an_eviction_for_the_pods_own_use_of_storage_is_its_error(message: str, expected: PodFailureClass) -> None:
    evicted = replace(pod(JOB, "worker-0", phase=Phase.FAILED), reason="Evicted", message=message)
    assert ending(evicted) is expected


def test_peers_that_leave_together_with_one_that_was_asked_to_stop_are_believed_at_once() -> None:
    peer = replace(pod(JOB, "worker-1"), **asked_to_stop(0))
    assert ending(failed(42), peer) is PodFailureClass.PREEMPTION
    assert ending(failed(42), pod(JOB, "worker-1")) is PodFailureClass.USER_ERROR


def test_the_earliest_comes_first() -> None:
    first = replace(pod(JOB, "worker-1"), **asked_to_stop(2))
    assert [found.pod.index for found in ends_of((failed(1, after=3), first))] == [1, 0]
