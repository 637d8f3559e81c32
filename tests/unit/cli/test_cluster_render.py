"""What a person sees of jobs of a cluster, as text."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import click
import pytest

from builders import NOW, ended, job, manifest, pod, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Reason
from dtj.api.status import JobStatus, Progress
from dtj.cli.common.formatting import columns
from dtj.cli.common.options import Duration
from dtj.cli.list import job_rows
from dtj.core.observed import Blocker, Phase, Pod
from dtj.local.view import newest_pods, run_view

LATER = NOW + timedelta(minutes=5)


def with_status(of: Job | None = None, **status: object) -> Job:
    return replace(of or job(), status=JobStatus(**status))  # type: ignore[arg-type]


def states(of: Job, *pods: Pod, started: tuple[str, ...] = ()) -> list[str]:
    assert of.spec is not None
    newest = newest_pods(pods)
    quiet = {replica: Progress(phase="" if each.ready else "Gate") for replica, each in newest.items()}
    view = run_view(of, of.spec, pods=pods, progress=quiet, elapsed=0.0, started=started)
    return [replica.state for replica in view.replicas]


# -- the view -------------------------------------------------------------------------------------------------


def test_replicas_are_what_their_pods_are() -> None:
    running = with_status(state="Starting", start_time="2026-01-02T03:04:05Z")
    blocked = replace(pod(running, "worker-1", phase=Phase.PENDING), blocker=Blocker(Reason.UNSCHEDULABLE, "0/3 nodes"))
    assert states(running, pod(running, "worker-0"), blocked) == ["Running", "Unschedulable"]
    not_ready = pod(running, "worker-0", ready=False)
    failed = pod(running, "worker-1", phase=Phase.FAILED, termination=ended(3))
    assert states(running, not_ready, failed) == ["Starting", "Failed (3)"]


def test_exit_code_42_of_a_worker_that_nobody_stopped_is_a_failure_on_the_screen_as_it_is_to_the_planner() -> None:
    running = with_status(state="Running", start_time="2026-01-02T03:04:05Z")
    early = replace(ended(42, after_seconds=5), started_at=NOW)
    late = replace(ended(42, after_seconds=60), started_at=NOW)
    other = pod(running, "worker-1")
    worker = pod(running, "worker-0", phase=Phase.FAILED, termination=early)
    assert states(running, worker, other)[0] == "Failed (42)"
    assert states(running, replace(worker, termination=late), other)[0] == "Stopped"
    drained = replace(other, phase=Phase.FAILED, termination=early, disrupted=True)
    assert states(running, worker, drained) == ["Stopped", "Stopped"], "its peer was told to go, and it left too"


def test_of_a_replica_that_was_replaced_the_newest_pod_counts() -> None:
    restarted = with_status(state="Running", start_time="2026-01-02T03:04:05Z")
    old = pod(restarted, "worker-0", phase=Phase.FAILED, termination=ended(1))
    new = replace(old, name="digits-worker-0-r1", phase=Phase.RUNNING, ready=True, attempt=2, termination=None)
    assert states(restarted, new, old)[0] == "Running"


def test_a_replica_without_a_pod_is_still_to_come_until_it_has_begun() -> None:
    assert states(job()) == ["Pending", "Pending"]
    assert states(job(), started=("worker-1",)) == ["Pending", "Stopped"]


# -- lists ----------------------------------------------------------------------------------------------------


def listed(name: str = "digits", **status: object) -> JsonObject:
    """A job that was created five minutes ago."""
    body = stored(manifest(name))
    created = {**body["metadata"], "creationTimestamp": "2026-01-02T03:04:05Z"}  # type: ignore[dict-item]
    return {**body, "metadata": created, "status": status}  # type: ignore[dict-item]


def test_the_list_has_kubectls_columns() -> None:
    progress = {"step": 10, "totalSteps": 40, "text": "25%", "examplesPerSecond": 2543.4, "etaSeconds": 62}
    running = listed(
        state="Running", ready="2/2", progress=progress, reason="AllPodsReady", restarts={"total": 1}, attempt=2
    )
    rows = job_rows([running, listed("b")], now=LATER, namespaced=True, wide=True)
    assert columns(rows, gap=3) == [
        "NAMESPACE   NAME     STATE     STRATEGY              READY   PROGRESS   RESTARTS   AGE     STEP   EX/S"
        "   ETA(S)   REASON         ATTEMPT",
        "default     digits   Running   MultiWorkerMirrored   2/2     25%        1          5m00s   10     2543"
        "   62       AllPodsReady   2",
        "default     b                  MultiWorkerMirrored                                 5m00s",
    ]
    assert job_rows([], now=LATER, namespaced=False, wide=False)[0][0] == "NAME"


def test_a_job_on_its_way_out_is_deleting() -> None:
    body = listed(state="Running")
    going = {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-02T03:09:05Z"}}  # type: ignore[dict-item]
    assert job_rows([going], now=LATER, namespaced=False, wide=False)[1][1] == "Deleting"


# -- times ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("45", 45.0),
        ("0", 0.0),
        ("1.5h", 5400.0),
        ("1d", 86_400.0),
        ("500ms", 0.5),
    ],
)
def test_times_are_written_as_for_kubectl(text: str, seconds: float) -> None:
    assert Duration(zero=True).convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "10 m", "-1s", "1e9", "s", "1h30", "1y", "9" * 50, "9" * 400 + "s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r'^"'):
        Duration(zero=True).convert(text, None, None)
