"""Jobs that name no queue, in a namespace that has Kueue's default LocalQueue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import NOW, job
from dtj.api.json import JsonObject, object_at
from dtj.api.names import Condition, Reason
from dtj.api.spec import Gang
from dtj.api.status import JobStatus
from dtj.core.actions import Create, LookForGangs, PatchStatus, ReadDefaultQueue
from dtj.core.observed import GangApi, GangsFound, Observed
from dtj.core.planner import plan
from dtj.core.platform import Platform
from support.gang_worlds import KUEUE, VOLCANO, admit, evict
from world import World


def world(*, scheduling: JsonObject | None = None, **more: object) -> World:
    """A job that names no queue, in a namespace that has the default queue."""
    policy = {"scheduling": scheduling} if scheduling is not None else {}
    made = job(roles={"worker": 3}, runPolicy=policy)
    return World(made, **{"installed": (KUEUE,), "has_default_queue": True, **more}).settle()  # type: ignore[arg-type]


def queue_of_workload(story: World) -> object:
    spec = object_at(story.gang_manifests[-1], "spec")
    return spec["queueName"]


def message_of(story: World) -> str:
    condition = story.condition(Condition.INVALID)
    assert condition.reason == Reason.GANG_UNAVAILABLE
    return condition.message


@pytest.mark.parametrize(
    "scheduling", [{"gang": "None"}, {"gang": "Volcano"}, {"gang": "Auto", "queue": "team-a"}], ids=str
)
def test_nobody_asks_for_a_job_that_says_how_it_is_scheduled(scheduling: JsonObject) -> None:
    story = world(installed=(KUEUE, VOLCANO), scheduling=scheduling)
    assert not story.taken(ReadDefaultQueue)
    assert not story.job.status.queue


def test_a_job_with_spares_is_refused_in_the_default_queue() -> None:
    made = job(roles={"worker": 2}, elastic={"maxReplicas": 2, "spares": 1})
    story = World(made, installed=(KUEUE,), has_default_queue=True).settle()
    assert not story.pods
    assert story.condition(Condition.INVALID).message == (
        "spec.elastic: spares wait only in a MultiWorkerMirrored job without runPolicy.scheduling, queue, topology and "
        "restartScope Job: set spares to 0, or change these"
    )


@pytest.mark.parametrize("seconds", [61, -3600], ids=["in a minute", "after the clock was set back"])
def test_kueue_without_any_queue_says_what_to_do_and_starts_once_there_is_one(seconds: int) -> None:
    story = world(has_default_queue=False, scheduling={"gang": "Kueue"})
    assert not story.pods
    assert message_of(story) == (
        "runPolicy.scheduling: Kueue needs a LocalQueue: set queue, or create the LocalQueue default in the namespace "
        "default"
    )
    story.has_default_queue = True
    story.wait(seconds)
    assert queue_of_workload(story) == "default"


def test_while_kueue_fails_only_jobs_that_have_a_queue_wait_for_it() -> None:
    without = world(has_default_queue=False, failing={Gang.KUEUE: "webhook is down"})
    assert len(without.pods) == 3
    story = world(failing={Gang.KUEUE: "webhook is down"})
    assert not story.pods
    assert message_of(story).startswith("runPolicy.scheduling: the API of Kueue fails (webhook is down): repair it")
    story.failing = {}
    story.wait(61)
    assert queue_of_workload(story) == "default"


@pytest.mark.parametrize("gangs", [None, GangsFound((KUEUE,), NOW)], ids=["schedulers", "queue"])
def test_a_question_that_keeps_failing_is_said_in_the_status(gangs: GangsFound | None) -> None:
    asking = Observed(job=job(), platform=Platform(), gangs=gangs, obstacle="conversion webhook failed")
    write, question = plan(asking, NOW)
    assert isinstance(write, PatchStatus)
    assert isinstance(question, LookForGangs | ReadDefaultQueue)
    assert (write.status.state, write.status.reason) == ("Pending", Reason.API_CALL_FAILED)


def test_a_queue_that_comes_or_goes_later_changes_nothing() -> None:
    alone = world(has_default_queue=False)
    alone.run_all()
    alone.has_default_queue = True
    alone.wait(600)
    assert alone.gang is None
    assert not alone.job.status.queue

    queued = world()
    admit(queued)
    queued.settle()
    queued.has_default_queue = False
    queued.operator_restarts()
    queued.wait(600)
    assert queued.job.status.queue == "default"
    assert queued.gang is not None
    assert len(queued.taken(ReadDefaultQueue)) == 1


def test_a_status_that_was_lost_is_written_again_from_the_workload() -> None:
    story = world()
    story.has_default_queue = False
    story.job = replace(story.job, status=JobStatus())
    story.operator_restarts()
    story.settle()
    assert story.job.status.queue == "default"
    assert len(story.taken(Create, GangApi)) == 1
    assert not story.pods


def test_an_operator_that_may_not_ask_says_which_right_it_lacks() -> None:
    story = world(has_default_queue=False, queue_denied='localqueues "default" is forbidden')
    assert not story.pods
    assert message_of(story) == (
        "runPolicy.scheduling: the operator may not ask whether the namespace default has a LocalQueue default: grant "
        'it get on localqueues of kueue.x-k8s.io, or set queue (localqueues "default" is forbidden)'
    )


def begun() -> World:
    """A job in the default queue whose pods all run."""
    story = world()
    admit(story)
    story.start()
    return story


def lose_queue(story: World) -> None:
    """The stored status is edited or restored, and another operator takes over."""
    story.job = replace(story.job, status=story.job.status.model_copy(update={"queue": ""}))
    story.operator_restarts()


def test_a_job_that_runs_obeys_kueue_when_its_status_has_lost_the_queue() -> None:
    story = begun()
    lose_queue(story)
    evict(story, "Preempted")
    story.settle()
    assert not story.pods, "the quota is not the job's any more"
    story.wait(120)
    assert not story.pods
    admit(story)
    story.settle()
    assert len(story.pods) == 3


def test_no_pod_starts_outside_of_kueue_when_the_workload_is_gone_too() -> None:
    story = begun()
    evict(story, "Preempted")
    lose_queue(story)
    story.gang = None
    story.settle()
    story.wait(120)
    assert not story.pods
    assert queue_of_workload(story) == "default"
