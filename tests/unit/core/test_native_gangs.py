"""Kubernetes' own PodGroups: what they say, and what becomes of a job whose group is disrupted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import job
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Reason
from dtj.core.actions import Create, Delete, Update
from dtj.core.observed import GangApi, Phase
from dtj.core.status import format_time
from support.gang_worlds import NATIVE, VOLCANO, world
from world import World


def spec_of(story: World) -> JsonObject:
    """What the newest PodGroup says."""
    found = story.gang_manifests[-1]["spec"]
    assert isinstance(found, dict)
    return found


def running(api: GangApi, **arguments: object) -> World:
    """A job whose pods all run."""
    story = World(job(runPolicy={"scheduling": {}}, **arguments), installed=(api,))  # type: ignore[arg-type]
    story.start()
    return story


def scale(story: World, workers: int) -> None:
    scaled = job(roles={"worker": workers}, elastic={"maxReplicas": 5}, runPolicy={"scheduling": {}})
    story.becomes(scaled)
    story.settle_deletions()


def test_replicas_of_parameter_servers_are_disrupted_alone() -> None:
    """Those of a collective are together: tests/unit/core/test_gang.py has the whole PodGroup."""
    servers = running(NATIVE, strategy="ParameterServer", roles={"chief": 1, "worker": 2, "ps": 1})
    assert spec_of(servers)["disruptionMode"] == {"single": {}}


class TestAJobThatGrows:
    def test_raises_the_count_of_its_group(self) -> None:
        story = running(NATIVE, roles={"worker": 3}, elastic={"maxReplicas": 5})
        scale(story, 5)
        assert dig(spec_of(story), "schedulingPolicy", "gang", "minCount") == 5
        assert dig(spec_of(story), "disruptionMode") == {"all": {}}
        assert (len(story.taken(Create, GangApi)), len(story.taken(Update, GangApi))) == (1, 1)
        assert story.taken(Delete, GangApi) == []
        assert len([pod for pod in story.pods.values() if pod.attempt == 2]) == 5

    def test_gets_another_group_if_the_count_cannot_be_changed(self) -> None:
        story = running(VOLCANO, roles={"worker": 3}, elastic={"maxReplicas": 5})
        scale(story, 5)
        assert (len(story.taken(Create, GangApi)), len(story.taken(Delete, GangApi))) == (2, 1)

    def test_waits_for_the_end_of_a_group_that_is_being_deleted(self) -> None:
        """Kubernetes keeps a PodGroup until its pods are gone."""
        story = world(NATIVE).settle()
        story.pods.clear()
        story.gang = replace(story.the_gang, terminating=True)
        story.wait(60)
        assert not story.pods
        story.gang = None
        story.settle()
        assert len(story.pods) == 3


class TestADisruptedGroup:
    def disrupt(self, story: World, status: str = "True") -> None:
        condition: JsonObject = {
            "type": "DisruptionTarget",
            "status": status,
            "reason": "PreemptionByScheduler",
            "lastTransitionTime": format_time(story.now),
        }
        story.gang = replace(story.the_gang, status={"conditions": [condition]})

    @pytest.mark.parametrize(("status", "charged"), [("True", "disruption"), ("False", "failure")])
    def test_the_end_of_its_pods_is_a_disruption(self, status: str, charged: str) -> None:
        story = running(NATIVE, roles={"worker": 3})
        self.disrupt(story, status)
        story.sees("worker-1", Phase.FAILED, exit_code=3)
        story.wait(10)
        restarts = story.job.status.restarts
        assert (restarts.disruption, restarts.user) == ((1, 0) if charged == "disruption" else (0, 1))


class TestAnOlderCluster:
    def test_is_told_what_to_use_there(self) -> None:
        story = world(VOLCANO, gang="Native").settle()
        condition = story.condition(Condition.INVALID)
        assert condition.reason == Reason.GANG_UNAVAILABLE
        assert condition.message == (
            "runPolicy.scheduling: this cluster serves no API of Native that the operator knows "
            "(scheduling.k8s.io/v1beta1): upgrade Kubernetes to 1.37 and enable it there, or set gang to Volcano, "
            "Coscheduling or Kueue (found: Volcano)"
        )
