"""What ``dtj status`` shows of a job, and why it says a job does not run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import timedelta

import pytest

from builders import NOW
from dtj.api.form import DTJ
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Condition, Reason
from dtj.cli.common.console import Text
from dtj.cli.common.formatting import columns
from dtj.cli.common.terminal import MAX_LINE
from dtj.cli.list import job_rows
from dtj.cli.status.show import change_line, status_view
from dtj.client.diagnosis import reasons, suspended_by
from dtj.client.overview import Event, Overview, aggregated
from dtj.client.pods import JobPod
from dtj.core import blockers
from dtj.kube.records import pod_from_object
from overviews import body, condition, job_pod, moment, overview, pod_body
from support.screens import seen

READY = condition(Condition.PODS_READY, "True", Reason.ALL_PODS_READY)
PROGRESS = {
    "step": 1200,
    "totalSteps": 5000,
    "percent": 24,
    "epoch": 2,
    "examplesPerSecond": 12300.0,
    "etaSeconds": 310,
    "metrics": {"loss": "0.41"},
    "lastCheckpointStep": 1000,
    "lastCheckpointTime": moment(180),
    "updatedAt": moment(4),
}
NO_NODE = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def typed(words: Sequence[str]) -> str:
    return shlex.join((*words, "-n", "team-a"))


def shown(what: Overview, width: int) -> str:
    return seen(status_view(what, width=width, typed=typed), width=width)


def running() -> Overview:
    created = Event("Normal", "PodsCreated", "created 2 pods (2 worker)", "digits", 1, NOW - timedelta(seconds=90))
    restarts = {"total": 1, "disruption": 1}
    return overview(
        body(READY, state="Running", ready="2/2", attempt=2, restarts=restarts, progress=PROGRESS),
        job_pod("worker-0", incarnation=1),
        job_pod("worker-1", phase="Failed", state={"terminated": {"exitCode": 137}}, ago=110),
        job_pod("worker-1", incarnation=1),
        events=[created],
    )


def waiting() -> Overview:
    message = f"0 of 2 pods are ready; digits-worker-0: {NO_NODE}"
    return overview(
        body(condition(Condition.PODS_READY, "False", Reason.UNSCHEDULABLE, message), state="Starting", ready="0/2"),
        job_pod("worker-0", phase="Pending", node="", unschedulable=NO_NODE),
    )


def failed() -> Overview:
    cause = {
        "role": "worker",
        "index": 1,
        "pod": "digits-worker-1",
        "node": "node-2",
        "exitCode": 1,
        "reason": "Error",
        "class": "UserError",
        "message": "ValueError: no such flower",
        "logTail": "Traceback (most recent call last):\nValueError: no such flower",
        "hint": "check the labels",
    }
    why = condition(Condition.FAILED, "True", Reason.BACKOFF_LIMIT_EXCEEDED, "worker-1 failed", ago=30)
    return overview(
        body(why, state="Failed", reason="BackoffLimitExceeded", rootCause=cause, completionTime=moment(30)),
        job_pod("worker-1", phase="Failed", state={"terminated": {"exitCode": 1}}),
    )


def test_words_of_any_length_take_a_bounded_part_of_the_screen() -> None:
    long = "lorem ipsum " * 2700
    cause = {"role": "worker", "index": 1, "pod": long, "node": long, "exitCode": 1, "reason": long, "class": long}
    explanations = {"message": long[:32768], "logTail": "\n".join([long[:2000]] * 16), "hint": long[:1024]}
    metrics = {f"{number}{long}"[:64]: long[:32] for number in range(32)}
    progress = {**PROGRESS, "metrics": metrics, "stragglers": [long[:63]] * 8, "phase": long[:32]}
    others = [condition(Condition.FAILED, "True", "R", long[:32768], ago=30)]
    others += [{**others[0], "type": f"Other{number}", "reason": long[:1024]} for number in range(8)]
    status: dict[str, object] = {
        "state": long,
        "reason": long,
        "ready": long,
        "gang": long,
        "completionTime": moment(30),
    }
    exported = {"path": long[:4096], "formats": [long[:32]] * 16}
    events = [Event("Warning", long, long, long, 1, NOW)] * 20
    what = overview(
        body(*others, roles=None, **status, progress=progress, rootCause={**cause, **explanations}, export=exported),
        job_pod("worker-1", phase="Failed", node=long, state={"terminated": {"exitCode": 1}}),
        events=events,
    )
    for width in (50, 80, 200):
        lines = shown(what, width).splitlines()
        assert max(map(len, lines)) <= width
        assert sum(map(len, lines)) < 100_000
    assert len(Text(change_line(what))) < MAX_LINE + 40
    assert max(map(len, columns(job_rows([what.body], now=NOW, namespaced=True, wide=True)))) < 500


@pytest.mark.parametrize(("admitted", "words"), [(2, " Kueue\n"), (1, "Kueue, which has admitted 1 of 2 workers")])
def test_a_job_that_runs_with_fewer_workers_than_it_asks_for_says_so(admitted: int, words: str) -> None:
    job = body(READY, gang="Kueue", state="Running", replicaStatuses={"worker": {"desired": admitted}})
    spec = object_at(job, "spec")
    spec["elastic"] = {"maxReplicas": 2}
    assert words in shown(overview(job), 80)


def test_a_running_job_at_80_columns() -> None:
    assert shown(running(), 80) == (
        "digits  Running 2/2 for 1m00s\n"
        "  namespace  default\n"
        "  strategy   MultiWorkerMirrored with 2 workers\n"
        "  image      example/trainer:1\n"
        "  age        2m00s\n"
        "  attempt    2\n"
        "  restarts   1 (1 disruption)\n"
        "\n"
        "Progress\n"
        "  ━━━━━━━━━━━━━━\n"
        "  step 1200/5000 (24%), epoch 2, 12.3k examples/s, ETA 5m10s\n"
        "  loss 0.41\n"
        "  last checkpoint at step 1000 3m00s ago, advanced 4s ago\n"
        "\n"
        "Replicas\n"
        "  POD          STATE         NODE    RESTARTS  STEP  AGE\n"
        "  worker-0-r1  Running       node-1  1         1200  1m40s\n"
        "  worker-1     Failed (137)  node-1  0               1m50s\n"
        "  worker-1-r1  Running       node-1  1               1m40s\n"
        "\n"
        "Events\n"
        "  1m30s  PodsCreated  created 2 pods (2 worker)\n"
        "\n"
        "Next\n"
        "  dtj logs digits -f -n team-a         # show what its pods print\n"
        "  dtj status digits --watch -n team-a  # show its progress\n"
        "  dtj wait digits -n team-a            # wait until it ends\n"
        "  dtj suspend digits -n team-a         # stop it, to resume it later"
    )


def test_at_50_columns_a_replica_has_fewer_columns_and_what_a_command_does_stands_above_it() -> None:
    lines = shown(running(), 50).splitlines()
    assert "  POD          STATE         AGE" in lines
    assert lines[-2:] == ["  # stop it, to resume it later", "  dtj suspend digits -n team-a"]


def test_a_waiting_job_says_why_and_what_to_do_at_80_columns() -> None:
    assert shown(waiting(), 80) == (
        "digits  Starting 0/2 for 1m00s\n"
        "  namespace  default\n"
        "  strategy   MultiWorkerMirrored with 2 workers\n"
        "  image      example/trainer:1\n"
        "  age        2m00s\n"
        "\n"
        "Why is it not running\n"
        "  Unschedulable: 0 of 2 pods are ready; digits-worker-0: 0/3 nodes are\n"
        "  available: 3 Insufficient nvidia.com/gpu.\n"
        "  do: add nodes, request less, or fix nodeSelector and tolerations\n"
        "\n"
        "Replicas\n"
        "  POD       STATE          NODE  RESTARTS  AGE\n"
        "  worker-0  Unschedulable        0         1m40s\n"
        "  worker-1  Missing\n"
        "\n"
        "Next\n"
        "  dtj logs digits -f -n team-a         # show what its pods print\n"
        "  dtj status digits --watch -n team-a  # show its progress\n"
        "  dtj wait digits -n team-a            # wait until it ends\n"
        "  dtj suspend digits -n team-a         # stop it, to resume it later"
    )


def test_a_failed_job_names_its_root_cause_at_80_columns() -> None:
    assert shown(failed(), 80) == (
        "digits  Failed 30s ago  BackoffLimitExceeded\n"
        "  worker-1 failed\n"
        "  namespace  default\n"
        "  strategy   MultiWorkerMirrored with 2 workers\n"
        "  image      example/trainer:1\n"
        "  age        2m00s\n"
        "\n"
        "Root cause\n"
        "  worker-1 exited with code 1 on node-2  [UserError, pod digits-worker-1]\n"
        "  hint: check the labels\n"
        "  | Traceback (most recent call last):\n"
        "  | ValueError: no such flower\n"
        "\n"
        "Replicas\n"
        "  POD       STATE       NODE    RESTARTS  AGE\n"
        "  worker-1  Failed (1)  node-1  0         1m40s\n"
        "\n"
        "Next\n"
        "  dtj logs digits --first-error -n team-a  # show the first error\n"
        "  dtj logs digits -n team-a                # show what its pods printed\n"
        "  dtj delete digits -n team-a              # delete it and its pods"
    )


@pytest.mark.parametrize("width", range(30, 130, 9))
@pytest.mark.parametrize("what", [running, waiting, failed], ids=lambda make: make.__name__)
def test_no_line_is_wider_than_the_terminal(what: object, width: int) -> None:
    assert callable(what)
    assert all(len(line) <= width for line in shown(what(), width).splitlines())


def test_what_may_not_be_read_is_reported_and_hides_nothing_else() -> None:
    text = shown(overview(body(READY, state="Running", ready="2/2", progress=PROGRESS), unread="pods is forbidden"), 80)
    assert "Replicas\n  cannot be read: pods is forbidden" in text
    assert "Events\n  cannot be read: pods is forbidden" in text
    assert "step 1200/5000 (24%)" in text


def test_of_many_pods_those_that_do_not_run_are_shown() -> None:
    pods = [job_pod(f"worker-{index}") for index in range(60)]
    pods[7] = job_pod("worker-7", phase="Pending", unschedulable=NO_NODE, node="")
    text = shown(overview(body(READY, roles={"worker": 60}, state="Running"), *pods), 80)
    assert "worker-7 " in text
    assert "worker-8" not in text
    assert "60 pods, of which 59 run or have succeeded" in text


def test_no_pod_is_missing_that_need_not_be_there() -> None:
    stopped = condition(Condition.SUSPENDED, "True", Reason.SUSPENDED)
    assert "Missing" not in shown(overview(body(stopped, state="Suspended", startTime=None)), 80)
    done = {"worker": {"completedIndexes": "1"}}
    assert "Missing" not in shown(overview(body(READY, replicaStatuses=done), job_pod("worker-0")), 80)


def test_tensorboard_is_shown_and_is_no_reason_not_to_run() -> None:
    board = job_pod("tensorboard-x", phase="Pending", unschedulable=NO_NODE, node="")
    found = overview(waiting().body, job_pod("worker-0"), job_pod("worker-1", incarnation=2), board)
    text = shown(found, 80)
    assert "  tensorboard-x  Unschedulable          0" in text
    assert "  worker-1-r2    Running        node-1  2" in text
    assert not any("tensorboard" in why.words for why in reasons(found))


def test_slow_replicas_and_what_the_trainer_warns_of_or_has_not_checked_are_shown_with_the_progress() -> None:
    told = {"stragglers": ["worker-3", "worker-5"], "warning": "train.py trains alone: the job has 2 workers"}
    told["unchecked"] = ["train_step", "centre"]
    told |= {"transport": "NET/IB/GDRDMA, P2P"}
    text = shown(overview(body(READY, state="Running", progress={**PROGRESS, **told})), 80)
    assert "  gradients go by NET/IB/GDRDMA, P2P" in text
    assert "  slower than the others: worker-3, worker-5" in text
    assert "  accepted unchecked: train_step, centre" in text
    assert "  warning: train.py trains alone: the job has 2 workers" in text


def test_a_node_that_pods_avoid_is_named_until_they_do_not() -> None:
    losses = [
        {"node": "gpu-7", "count": 2, "lastTime": moment(60)},
        {"node": "gpu-8", "count": 1, "lastTime": moment(60)},
        {"node": "gpu-9", "count": 2, "lastTime": moment(3601)},
    ]
    text = shown(overview(body(READY, state="Running", nodeLosses=losses)), 80)
    assert "Avoided nodes\n  node gpu-7 lost this job 2 times: its pods avoid it until 04:03 UTC\n" in text
    assert "gpu-8" not in text
    assert "gpu-9" not in text
    assert "gpu-7" not in shown(
        overview(body(condition(Condition.COMPLETE, "True", "JobFinished"), state="Succeeded", nodeLosses=losses)), 80
    )


def test_the_same_words_are_counted_and_the_newest_comes_last() -> None:
    old = Event("Warning", "BackOff", "pulling", "digits-worker-0", 3, NOW - timedelta(seconds=9))
    new = Event("Warning", "BackOff", "pulling", "digits-worker-0", 2, NOW)
    other = Event("Normal", "PodsCreated", "created", "digits", 1, NOW - timedelta(seconds=5))
    explanations = [(event.reason, event.count) for event in aggregated([new, other, old])]
    assert explanations == [("PodsCreated", 1), ("BackOff", 5)]


def test_a_change_is_one_line_without_a_terminal() -> None:
    assert change_line(running()) == "Running  2/2  step 1200/5000 (24%), epoch 2, 12.3k examples/s, ETA 5m10s"
    assert change_line(waiting()) == "Starting  0/2"


def test_a_change_says_what_is_in_the_way_and_why_the_job_restarts() -> None:
    blocked = condition(Condition.PODS_READY, "False", "Unschedulable", "0 of 2 pods are ready; worker-1:\n0/3 nodes")
    what = overview(body(blocked, state="Starting", ready="0/2", reason="Unschedulable"))
    assert change_line(what) == "Starting  0/2  Unschedulable: 0 of 2 pods are ready; worker-1: 0/3 nodes"
    restarting = condition(Condition.RESTARTING, "True", "ReplicaLost", "attempt 2: worker-1 is gone")
    waits = condition(Condition.PODS_READY, "False", "WaitingForPods", "0 of 2 pods are ready")
    what = overview(body(restarting, waits, state="Restarting", ready="0/2", reason="WaitingForPods"))
    assert change_line(what) == "Restarting  0/2  WaitingForPods  attempt 2: worker-1 is gone"


# -- why -------------------------------------------------------------------------------------------------------


def explanations(what: Overview) -> list[tuple[str, str, str]]:
    return [(why.reason, why.words, why.remedy) for why in reasons(what)]


def test_a_job_that_nobody_has_seen_points_at_the_doctor() -> None:
    (why,) = reasons(overview(body()))
    assert why.words == "no operator has seen the job"
    assert why.commands == (("dtj", "doctor"),)


def test_a_job_of_another_controller_is_left_to_it() -> None:
    found = body()
    found["spec"]["managedBy"] = "example.com/other"  # type: ignore[index,call-overload]
    assert reasons(overview(found))[0].words == "managedBy leaves the job to example.com/other"


def test_a_suspended_job_names_who_suspended_it_and_when() -> None:
    found = body(condition(Condition.SUSPENDED, "True", Reason.SUSPENDED), state="Suspended")
    metadata = object_at(found, "metadata")
    field: JsonObject = {"f:spec": {"f:runPolicy": {"f:suspend": {}}}}
    metadata["managedFields"] = [
        {"manager": "kubectl-create", "time": moment(100), "fieldsV1": field},
        {"manager": "dtj", "time": "2026-01-02T03:04:00Z", "fieldsV1": field},
        {"manager": "dtj-operator", "time": moment(1), "fieldsV1": {"f:status": {}}},
    ]
    (why,) = reasons(overview(found))
    assert why.words == "runPolicy.suspend is true, set by dtj at 2026-01-02 03:04 UTC"
    assert why.commands == (("dtj", "resume", "digits"),)
    assert suspended_by({}) is None


def test_a_queued_job_repeats_the_words_of_its_queue() -> None:
    words = "Kueue: couldn't assign flavors"
    found = body(condition(Condition.SUSPENDED, "True", Reason.QUEUED, words), state="Suspended")
    found["spec"]["runPolicy"] = {"scheduling": {"queue": "team-a"}}  # type: ignore[index,call-overload]
    assert explanations(overview(found)) == [
        ("Queued", "Kueue: couldn't assign flavors (queue team-a)", "wait, or ask the owner of the quota")
    ]


def test_a_quota_is_distinguished_from_other_refusals() -> None:
    words = 'digits-worker-0: pods "digits-worker-0" is forbidden: exceeded quota: gpus'
    found = body(condition(Condition.PODS_READY, "False", Reason.POD_CREATION_FAILED, words), state="Starting")
    (why,) = reasons(overview(found))
    assert "have the quota raised" in why.remedy
    assert why.commands == (("kubectl", "describe", "resourcequota"),)


def test_blockers_that_the_condition_does_not_name_are_added() -> None:
    found = waiting()
    image: JsonObject = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    pods = [
        job_pod("worker-0", phase="Pending", node="", unschedulable=NO_NODE),
        job_pod("worker-1", phase="Pending", state=image),
    ]
    assert [why.reason for why in reasons(overview(found.body, *pods))] == ["Unschedulable", "ImagePullFailed"]


def test_a_node_that_is_not_ready_is_a_reason() -> None:
    found = body(condition(Condition.PODS_READY, "False", Reason.WAITING_FOR_PODS, "1 of 2"), state="Running")
    node: JsonObject = {
        "metadata": {"name": "node-1"},
        "status": {"conditions": [{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting"}]},
    }
    lost = job_pod("worker-0", state={"running": {}}, phase="Running", node="node-1")
    words = [why.words for why in reasons(overview(found, lost, nodes=[node]))]
    assert words[0] == "node node-1 is not ready, with worker-0 on it: Kubelet stopped posting"


@pytest.mark.parametrize("reason", sorted({*blockers.REASONS, Reason.POD_CREATION_FAILED, Reason.NAME_TAKEN}))
def test_every_reason_that_waits_for_a_person_has_a_remedy(reason: Reason) -> None:
    found = body(condition(Condition.PODS_READY, "False", reason, "words"), state="Starting")
    assert reasons(overview(found))[0].remedy


def with_collector(replica: str, *, phase: str = "Running", native: bool = False) -> JobPod:
    """The pod of a replica, whose container ``collector`` ends again and again."""
    found = pod_body(replica, phase=phase)
    collector: JsonObject = {
        "name": "collector",
        "restartCount": 7,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"exitCode": 1}},
    }
    status, spec = object_at(found, "status"), object_at(found, "spec")
    if native:
        spec["initContainers"] = [{"name": "collector", "restartPolicy": "Always"}]
        status["initContainerStatuses"] = [collector]
    else:
        main: JsonObject = {"name": "trainer", "ready": True, "state": {"running": {}}}
        spec["containers"] = [{"name": "trainer"}, {"name": "collector"}]
        status.update(conditions=[{"type": "Ready", "status": "False"}], containerStatuses=[main, collector])
    return JobPod.of(pod_from_object(found), DTJ)


COLLECTOR = "worker-1: container collector ends again and again (exit 1, 7 restarts)"
ITS_LOG = ("dtj", "logs", "digits", "--role", "worker", "--index", "1", "--container", "collector")


def test_a_container_that_keeps_a_pod_from_starting_is_named_once_with_the_command_that_shows_its_log() -> None:
    ready = condition(
        Condition.PODS_READY, "False", Reason.CONTAINER_FAILED, f"1 of 2 pods are ready; digits-{COLLECTOR}"
    )
    pods = job_pod("worker-0"), with_collector("worker-1", phase="Pending", native=True)
    found = reasons(overview(body(ready, state="Starting", ready="1/2"), *pods))
    assert [(each.reason, each.words, each.commands[0]) for each in found] == [("ContainerFailed", COLLECTOR, ITS_LOG)]


def test_a_container_that_fails_beside_the_training_is_named_while_the_job_runs() -> None:
    job = overview(body(READY, state="Running", ready="2/2"), job_pod("worker-0"), with_collector("worker-1"))
    assert [(each.words, each.commands[0]) for each in reasons(job)] == [(COLLECTOR, ITS_LOG)]
    screen = shown(job, 120)
    assert f"What fails beside it\n  ContainerFailed: {COLLECTOR}" in screen
    assert "worker-1  Running" in screen


def test_the_restarts_of_a_pod_of_kubeflows_operator_are_those_by_its_kubelet() -> None:
    found = pod_body("worker-1")
    restarted: JsonObject = {"name": "trainer", "state": {"running": {}}, "restartCount": 2}
    object_at(found, "status")["containerStatuses"] = [restarted]
    screen = shown(overview(body(READY, state="Running", ready="1/1"), JobPod.of(pod_from_object(found), DTJ)), 80)
    assert re.search(r"worker-1 +Running +node-1 +2 ", screen)


def test_the_log_of_a_container_that_waits_for_its_next_run_can_be_read() -> None:
    assert with_collector("worker-1").record.has_begun("collector")
