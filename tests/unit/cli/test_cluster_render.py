"""What a person sees of jobs of a cluster, as text."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import click
import pytest

from builders import NOW, ended, job, manifest, pod, stored
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.names import Condition, Reason
from dtj.api.status import ConditionStatus, ExportedModel, JobStatus, Progress, RestartCounts, RootCause
from dtj.cli.common.options import Duration
from dtj.cli.list import job_rows, padded
from dtj.cli.run.on_cluster import cluster_view, news
from dtj.cli.run.summary import end_of_job
from dtj.core.observed import Blocker, Phase, Pod
from dtj.local.view import RunView

LATER = NOW + timedelta(minutes=5)


def known(kind: Condition, status: str, reason: str = "", message: str = "") -> ConditionStatus:
    return ConditionStatus(type=kind, status=status, reason=reason, message=message)  # type: ignore[arg-type]


def with_status(of: Job | None = None, **status: object) -> Job:
    return replace(of or job(), status=JobStatus(**status))  # type: ignore[arg-type]


def view(of: Job, *pods: Pod) -> RunView:
    assert of.spec is not None
    return cluster_view(of, of.spec, pods, now=LATER)


def states(of: Job, *pods: Pod) -> list[str]:
    return [replica.state for replica in view(of, *pods).replicas]


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


def test_the_jobs_progress_is_shown_of_the_replica_that_knows_it() -> None:
    progress = Progress(phase="Training", step=10, total_steps=40, metrics={"loss": "0.5"})
    training = with_status(state="Running", progress=progress)
    first, second = view(training, pod(training, "worker-0"), pod(training, "worker-1")).replicas
    assert (first.state, first.progress.step, first.progress.metrics) == ("Training", 10, {"loss": "0.5"})
    assert (second.state, second.progress.step) == ("Running", None)


def test_the_time_of_a_job_ends_with_it() -> None:
    assert view(job()).elapsed == 300.0
    assert view(with_status(completion_time="2026-01-02T03:04:35Z")).elapsed == 30.0


def test_a_replica_without_a_pod_is_still_to_come_until_the_job_has_ended() -> None:
    begun = "2026-01-02T03:04:05Z"
    assert states(with_status(state="Starting", start_time=begun)) == ["Pending", "Pending"]
    ended_job = with_status(conditions=(known(Condition.COMPLETE, "True"),), start_time=begun)
    assert states(ended_job) == ["Stopped", "Stopped"]


# -- news -----------------------------------------------------------------------------------------------------


def test_an_obstacle_is_reported_once_though_its_words_change() -> None:
    starting = with_status(conditions=(known(Condition.PODS_READY, "False", Reason.WAITING_FOR_PODS, "0 of 2"),))
    blocked = with_status(conditions=(known(Condition.PODS_READY, "False", Reason.UNSCHEDULABLE, "0/3 nodes"),))
    other_words = with_status(conditions=(known(Condition.PODS_READY, "False", Reason.UNSCHEDULABLE, "0/4 nodes"),))
    assert news(job(), starting) == ()
    assert news(starting, blocked) == ("Unschedulable: 0/3 nodes",)
    assert news(blocked, other_words) == ()


def test_a_restart_is_reported_with_its_reason_and_its_end_is_not() -> None:
    restarting = with_status(conditions=(known(Condition.RESTARTING, "True", Reason.REPLICA_LOST, "worker-1 is gone"),))
    over = with_status(conditions=(known(Condition.RESTARTING, "False", Reason.NOT_RESTARTING),))
    assert news(job(), restarting) == ("ReplicaLost: worker-1 is gone",)
    assert news(restarting, over) == ()


def test_one_thing_is_reported_once_though_two_conditions_name_it() -> None:
    lost = (Reason.REPLICA_LOST, "worker-1 is gone")
    both = with_status(
        conditions=(known(Condition.RESTARTING, "True", *lost), known(Condition.PODS_READY, "False", *lost))
    )
    assert news(job(), both) == ("ReplicaLost: worker-1 is gone",)


# -- the end --------------------------------------------------------------------------------------------------


def again(*words: str) -> str:
    return " ".join(("dtj", *words, "-n", "team"))


def end_text(of: Job) -> str:
    return "\n".join(line.plain for line in end_of_job(of, again=again, now=LATER))


def test_success_says_what_came_out_and_what_to_type_next() -> None:
    done = with_status(
        state="Succeeded",
        completion_time="2026-01-02T03:09:07Z",
        conditions=(known(Condition.COMPLETE, "True"),),
        progress=Progress(metrics={"loss": "0.05", "accuracy": "0.98"}, examples_per_second=25_400),
        export=ExportedModel(path="/models/1", formats=("SavedModel",), size=1_900_000),
        restarts=RestartCounts(total=3, preemption=2, disruption=1),
    )
    assert end_text(done) == (
        "digits succeeded after 5m02s\n"
        "  metrics      loss 0.05  accuracy 0.98\n"
        "  speed        25.4k examples/s at the end\n"
        "  model        /models/1  (SavedModel; 1.9M bytes)\n"
        "  restarts     3 (2 preemption, 1 disruption)\n"
        "Next\n"
        "  dtj logs digits -n team    # show what its pods printed\n"
        "  dtj status digits -n team  # show all details\n"
        "  dtj delete digits -n team  # delete it and its pods"
    )


def test_failure_says_why_who_was_first_its_last_words_and_what_to_do() -> None:
    cause = RootCause(
        role="worker", index=1, node="node-3", exit_code=137, reason="OOMKilled", log_tail="boom", hint="use less"
    )
    failed = with_status(
        conditions=(known(Condition.FAILED, "True", "BackoffLimitExceeded", "worker-1 failed 4 times"),),
        completion_time="2026-01-02T03:04:35Z",
        root_cause=cause,
    )
    assert end_text(failed).startswith(
        "digits failed after 30s\n"
        "  why          worker-1 failed 4 times\n"
        "  cause        worker-1 exited with code 137 (OOMKilled) on node-3\n"
        "               boom\n"
        "  hint         use less\n"
        "Next\n"
        "  dtj logs digits --first-error -n team  # show the first error\n"
    )


def test_an_invalid_job_says_what_to_fix() -> None:
    invalid = with_status(conditions=(known(Condition.INVALID, "True", "TemplateRejected", "spec.template: no"),))
    assert end_text(invalid) == (
        "digits cannot run after 5m00s\n"
        "  cause        spec.template: no\n"
        "Next\n"
        "  dtj delete digits -n team  # delete it, fix the manifest and submit it again"
    )


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
    assert padded(rows) == (
        "NAMESPACE   NAME     STATE     STRATEGY              READY   PROGRESS   RESTARTS   AGE     STEP   EX/S"
        "   ETA(S)   REASON         ATTEMPT",
        "default     digits   Running   MultiWorkerMirrored   2/2     25%        1          5m00s   10     2543"
        "   62       AllPodsReady   2",
        "default     b                  MultiWorkerMirrored                                 5m00s",
    )
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


@pytest.mark.parametrize("text", ["", "soon", "10 m", "-1s", "1e9", "s", "1h30"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r'^"'):
        Duration(zero=True).convert(text, None, None)
