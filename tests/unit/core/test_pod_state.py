"""The state of a pod as status, screens and pages show it, in one table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job, pod
from dtj.api.names import Reason
from dtj.core.observed import Blocker, Phase, Pod, Termination
from dtj.core.pod_state import state_text

WORKER = replace(pod(job(), "worker-0"), node="node-1")
FAILED = replace(WORKER, phase=Phase.FAILED, ready=False, termination=Termination(exit_code=3))
PENDING = replace(WORKER, phase=Phase.PENDING, ready=False)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(WORKER, phase=Phase.SUCCEEDED, ready=False), "Succeeded"),
        (FAILED, "Failed (3)"),
        (replace(FAILED, termination=None, reason="Evicted"), "Failed (Evicted)"),
        (replace(FAILED, termination=None), "Failed"),
        (replace(FAILED, terminating=True), "Failed (3)"),
        (replace(WORKER, terminating=True), "Stopping"),
        (WORKER, "Running"),
        (replace(WORKER, ready=False), "Not ready"),
        (replace(PENDING, blocker=Blocker(Reason.IMAGE_PULL_FAILED, "no such image")), "ImagePullFailed"),
        (PENDING, "Starting"),
        (replace(PENDING, node=""), "Pending"),
    ],
)
def test_the_state_of_a_pod(found: Pod, words: str) -> None:
    assert state_text(found) == words


def test_a_pod_that_ended_on_request_has_not_failed() -> None:
    assert state_text(FAILED, on_request={FAILED.name}) == "Stopped"
    assert state_text(FAILED, on_request={"digits-worker-1"}) == "Failed (3)"
