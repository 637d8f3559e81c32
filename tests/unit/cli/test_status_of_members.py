"""What ``dtj status`` shows of an elastic job whose members come, go and wait; the planner drives the job."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import timedelta

from dtj.api.names import Condition, Reason
from dtj.api.status import Progress
from dtj.cli.status.show import status_view
from dtj.client.overview import Overview, Part
from dtj.client.pods import JobPod, owned
from dtj.core.observed import CreationRefusal
from dtj.kube.records import PodRecord
from support.elastic_world import ElasticWorld, elastic, trains
from support.screens import seen


def shown(world: ElasticWorld) -> list[str]:
    pods = (JobPod(PodRecord(), pod) for pod in world.pods.values())
    mine = Part(owned(pods, world.job))
    found = Overview(
        job=world.job, at=world.now, pods=mine, events=Part(), claims=Part(), nodes=Part(), body=world.job.raw_spec
    )
    return [line.strip() for line in seen(status_view(found, width=120, typed=shlex.join), width=120).splitlines()]


def section(world: ElasticWorld, title: str) -> list[str]:
    """The lines of a section; none if it is not there."""
    lines = shown(world)
    after = lines[lines.index(title) + 1 :] if title in lines else [""]
    return after[: after.index("")]


def waiting(world: ElasticWorld) -> list[str]:
    return section(world, "Members that wait")


def rows(world: ElasticWorld) -> dict[str, list[str]]:
    """The words of each pod's row."""
    return {line.split()[0]: line.split()[1:] for line in section(world, "Replicas")[1:]}


def test_a_job_whose_replicas_all_train_says_nothing_of_members() -> None:
    lines = shown(trains(elastic(2)))
    assert "Members that wait" not in lines
    assert not any(line.startswith("members ") for line in lines)


def test_a_worker_that_is_added_waits_for_its_pod_then_imports_and_then_joins() -> None:
    world = trains(elastic(2))
    world.becomes(elastic(3))
    assert waiting(world) == ["worker-2 waits until its pod is ready"]
    world.block("worker-2", Reason.UNSCHEDULABLE, "0/3 nodes are available")
    assert waiting(world) == ["worker-2 waits for its pod: 0/3 nodes are available"]
    world.pods["digits-worker-2"] = replace(world.pods["digits-worker-2"], blocker=None)
    world.all_run()
    assert waiting(world) == ["worker-2 waits until it has imported its program, and then joins within 10 s"]
    assert [row[0] for row in rows(world).values()] == ["Running", "Running", "Waiting"]
    world.import_all()
    assert waiting(world) == []
    assert "members    worker 0-2 of 3 replicas (generation 1)" in shown(world)


def test_a_lost_worker_is_waited_for_until_a_moment_that_is_named_and_then_given_up() -> None:
    world = trains(elastic(2))
    lost_at = world.now
    world.loses("worker-1")
    world.finish_deletions()
    world.settle()
    (line,) = waiting(world)
    until = lost_at + timedelta(seconds=30)
    assert line == f"worker-1 is not ready; the others go on without it at {until:%H:%M:%S} UTC"
    name = "digits-worker-1-r1"
    world.refusal = CreationRefusal(name, "Forbidden", "exceeded quota: few", world.now)
    world.wait(31)
    del world.pods[name]  # which was refused
    assert "members    worker 0 of 2 replicas (generation 1)" in shown(world)
    assert waiting(world) == ["worker-1 waits for its pod: exceeded quota: few"]


def test_a_lost_worker_that_cannot_be_given_up_is_waited_for_and_the_reason_is_named() -> None:
    world = trains(elastic(2, least=2))
    world.loses("worker-1")
    world.finish_deletions()
    world.wait(120)
    assert waiting(world) == [
        "worker-1 is not ready; the others wait for it, since fewer than minReplicas would be left"
    ]


def test_of_two_lost_workers_the_first_is_given_up_if_enough_are_left_without_it_alone() -> None:
    world = trains(elastic(3, least=2))
    world.loses("worker-1")
    world.wait(10)
    world.loses("worker-2")
    first, second = waiting(world)
    assert first.startswith("worker-1 is not ready; the others go on without it at ")
    assert second == "worker-2 is not ready; the others wait for it, since fewer than minReplicas would be left"


def test_lost_workers_are_named_in_their_order() -> None:
    world = trains(elastic(8))
    for index in range(1, 7):
        world.loses(f"worker-{index}")
    assert [line.split()[0] for line in waiting(world)] == [f"worker-{index}" for index in range(1, 7)]


def test_the_step_is_that_of_the_first_member_if_worker_0_was_given_up() -> None:
    world = trains(elastic(2))
    world.loses("worker-0")
    world.finish_deletions()
    world.wait(31)
    world.all_run()
    progress = Progress(step=120, world=1)
    world.job = replace(world.job, status=world.job.status.model_copy(update={"progress": progress}))
    assert rows(world)["worker-0-r1"][0] == "Waiting"
    assert {name for name, row in rows(world).items() if "120" in row} == {"worker-1"}


def test_before_the_launchers_first_answer_a_new_worker_waits_for_that() -> None:
    world = trains(elastic(2), launched=False)
    world.pods = {name: replace(pod, ip="10.0.0.1") for name, pod in world.pods.items()}
    world.becomes(elastic(3))
    assert world.is_true(Condition.PODS_READY)
    assert waiting(world) == ["worker-2 waits for the first answer of the launcher; after 60 s all start again"]
