"""The quota of a job is that of the pods which it would get by now: a profile changes, and a template unseen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, dig
from dtj.api.kueue import TOPOLOGY_UNCONSTRAINED
from dtj.api.profiles import Profile
from dtj.core.observed import Flavor, Phase
from support.gang_worlds import KUEUE, QUEUED, admit
from world import World, live

GPU = Profile(name="pool", resource="example.com/gpu")
OTHERS = {
    "another resource": Profile(name="pool", resource="example.com/other"),
    "other nodes": Profile(name="pool", resource="example.com/gpu", node_selector={"pool": "new"}),
    "a taint": Profile(name="pool", resource="example.com/gpu", tolerations=({"key": "pool", "operator": "Exists"},)),
}


def means(story: World, profile: Profile) -> None:
    """Have the profile of the job mean this in the operator's configuration."""
    story.platform = replace(story.platform, profiles={"pool": profile})
    story.settle()


def queued(**more: object) -> World:
    accelerator = {"profile": "pool", "count": 1}
    made = job(**{"roles": {"worker": 3}, "runPolicy": QUEUED, "accelerator": accelerator, **more})  # type: ignore[arg-type]
    story = World(made, installed=(KUEUE,), known_flavors={"spot": Flavor({"kind": "spot"})})
    means(story, GPU)
    return story


def running(**more: object) -> World:
    story = queued(**more)
    admit(story, cpu="spot")
    return story.start()


def asked(story: World) -> JsonObject:
    """The pods of the latest Workload."""
    found = dig(story.gang_manifests[-1], "spec", "podSets", 0, "template", "spec")
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("admitted", [False, True], ids=["queued", "admitted"])
@pytest.mark.parametrize("profile", OTHERS.values(), ids=OTHERS)
def test_a_job_without_pods_asks_for_those_of_its_changed_profile(profile: Profile, *, admitted: bool) -> None:
    story = queued()
    story.platform = replace(story.platform, profiles={"pool": profile})
    if admitted:
        admit(story, cpu="spot")
    story.settle()
    assert not live(story), "Kueue admitted others"
    assert len(story.gang_manifests) == 2
    assert dig(asked(story), "containers", 0, "resources", "requests", profile.resource) == 1
    assert dig(asked(story), "nodeSelector") == profile.node_selector
    admit(story, cpu="spot")
    story.settle()
    assert len(live(story)) == 3


def test_a_job_that_runs_goes_on_and_its_next_attempt_waits_for_other_quota() -> None:
    story = running()
    means(story, OTHERS["another resource"])
    assert len(live(story)) == 3
    assert len(story.gang_manifests) == 1
    story.loses("worker-1")
    story.settle_deletions()
    story.wait(60)
    assert not live(story)
    assert len(story.gang_manifests) == 2
    admit(story, cpu="spot")
    story.settle()
    assert len(live(story)) == 3


@pytest.mark.parametrize("lost", ["failed", "drained", "gone"])
def test_no_pod_comes_back_alone_without_the_quota_that_it_needs_by_now(lost: str) -> None:
    story = running(roles={"chief": 1, "worker": 2, "ps": 1}, strategy="ParameterServer")
    means(story, OTHERS["another resource"])
    assert len(live(story)) == 4
    match lost:
        case "failed":
            story.sees("worker-1", Phase.FAILED, exit_code=137)
        case "drained":
            story.loses("worker-1")
        case "gone":
            story.remove("worker-1")
    story.settle_deletions()
    story.wait(60)
    assert not live(story)
    assert any(event.message.startswith("the Workload asks for other pods") for event in story.events)
    assert len(story.gang_manifests) == 2
    admit(story, cpu="spot")
    story.start()
    first = live(story)
    again = next(name for name in first if "worker-1" in name).removeprefix("digits-")
    story.sees(again, Phase.FAILED, exit_code=137)
    story.advance(60)
    story.start()
    assert first <= live(story), "with that quota, it comes back alone"
    assert len(live(story) - first) == 1
    assert len(story.gang_manifests) == 2


def test_a_job_whose_first_pods_were_made_before_the_change_gets_no_others_beside_them() -> None:
    story = queued()
    admit(story, cpu="spot")
    while len(story.pods) < 3:
        story.step()
    story.pods.popitem()
    means(story, OTHERS["another resource"])
    story.settle_deletions()
    assert not live(story)
    assert len(story.gang_manifests) == 2


TRAINER: JsonObject = {"name": "trainer", "image": "example/trainer:1"}
TEMPLATES: dict[str, JsonObject] = {
    "requests": {"spec": {"containers": [{**TRAINER, "resources": {"requests": {"cpu": "4"}}}]}},
    "affinity": {"spec": {"containers": [TRAINER], "affinity": {"nodeAffinity": {}}}},
    "topology": {"metadata": {"annotations": {TOPOLOGY_UNCONSTRAINED: "true"}}, "spec": {"containers": [TRAINER]}},
    "image": {"spec": {"containers": [{**TRAINER, "image": "example/trainer:2"}]}},
}


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_that_was_replaced_unseen_is_asked_for_if_kueue_reads_what_changed(template: str) -> None:
    story = queued()
    accelerator = {"profile": "pool", "count": 1}
    changed = job(roles={"worker": 3}, runPolicy=QUEUED, accelerator=accelerator, template=TEMPLATES[template])
    story.becomes(changed)
    assert len(story.gang_manifests) == (1 if template == "image" else 2)


def test_the_workload_of_an_earlier_operator_is_kept() -> None:
    story = queued()
    story.gang = replace(story.the_gang, pods="")
    means(story, OTHERS["another resource"])
    assert len(story.gang_manifests) == 1
