"""``runPolicy.onOutOfMemory`` for pods whose scheduler is told what they request: they get what it was told."""

from __future__ import annotations

import pytest

from builders import job
from dtj.api.json import JsonObject, dig
from dtj.core.observed import GangApi, Phase
from support.gang_worlds import COSCHEDULING, KUEUE, VOLCANO, admit
from world import World, live

TEMPLATE: JsonObject = {"spec": {"containers": [{"name": "trainer", "resources": {"limits": {"memory": "1Gi"}}}]}}


def story_of(api: GangApi, *, most: str = "4Gi", **fields: object) -> World:
    """A job of three workers that run."""
    queue = {"queue": "team-a"} if api.gang == "Kueue" else {}
    policy: JsonObject = {
        "backoffLimit": 9,
        "scheduling": {"gang": str(api.gang), **queue},
        "onOutOfMemory": {"increasePercent": 100, "maxMemory": most},
    }
    story = World(job(template=TEMPLATE, runPolicy=policy, **{"roles": {"worker": 3}, **fields}), installed=(api,))  # type: ignore[arg-type]
    story.settle()
    start(story)
    return story


def start(story: World) -> None:
    if story.gang is not None and story.the_gang.api.gang == "Kueue":
        admit(story)
    story.start()


def run_out_of_memory(story: World, pod: str = "digits-worker-0") -> None:
    (name,) = (each for each in live(story) if each.startswith(pod))
    story.set_pod(name.removeprefix("digits-"), Phase.FAILED, exit_code=137, reason="OOMKilled")
    for _ in range(3):
        story.settle()
        story.advance(61)
        story.finish_deletions()
    story.settle()


def of_pods(story: World) -> set[object]:
    running = [name for name in live(story) if not story.pods[name].main_container_ended]
    return {dig(story.manifests[name], "spec", "containers", 0, "resources", "limits", "memory") for name in running}


def asked_for(story: World) -> object:
    spec = story.gang_manifests[-1]["spec"]
    of_one = dig(spec, "podSets", 0, "template", "spec", "containers", 0, "resources", "limits", "memory")
    return of_one or dig(spec, "minResources", "memory")


def test_a_job_of_kueue_waits_in_its_queue_for_the_memory_that_it_needs_now() -> None:
    story = story_of(KUEUE)
    run_out_of_memory(story)
    assert (story.job.status.state, story.job.status.reason) == ("Suspended", "Queued")
    assert not live(story)
    assert asked_for(story) == "2048Mi"
    start(story)
    assert of_pods(story) == {"2048Mi"}
    assert story.job.status.restarts.out_of_memory == 1


def test_a_worker_that_would_come_back_alone_waits_for_its_memory_too() -> None:
    story = story_of(KUEUE, strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    run_out_of_memory(story, "digits-worker-1")
    assert not live(story)
    sets = {each["name"]: each for each in story.gang_manifests[-1]["spec"]["podSets"]}  # type: ignore[index, call-overload, union-attr]
    limits = {
        name: dig(each, "template", "spec", "containers", 0, "resources", "limits", "memory")
        for name, each in sets.items()
    }
    assert limits == {"chief": "1Gi", "worker": "2048Mi", "ps": "1Gi"}


def test_at_the_most_memory_the_job_is_not_queued_again() -> None:
    story = story_of(KUEUE, most="2Gi")
    run_out_of_memory(story)
    start(story)
    made = len(story.gang_manifests)
    run_out_of_memory(story)
    start(story)
    assert of_pods(story) == {"2048Mi"}
    assert len(story.gang_manifests) == made


@pytest.mark.parametrize("api", [VOLCANO, COSCHEDULING], ids=["Volcano", "Coscheduling"])
def test_a_gang_scheduler_is_told_what_the_pods_of_the_next_attempt_request(api: GangApi) -> None:
    story = story_of(api)
    assert asked_for(story) == "3221225472"
    run_out_of_memory(story)
    assert of_pods(story) == {"2048Mi"}
    assert asked_for(story) == "6442450944"


def test_who_has_more_than_the_most_keeps_it() -> None:
    story = story_of(VOLCANO, most="512Mi")
    run_out_of_memory(story)
    assert of_pods(story) == {"1Gi"}
