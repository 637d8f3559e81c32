"""Objects of others that have the names of ours: they are reported, and never touched."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import CLAIM_TEMPLATE, NOW, edited, job, pod
from dtj.api.names import Reason
from dtj.core.actions import RequeueAfter
from dtj.core.observed import Child, GangObject, GangsFound, Phase
from dtj.core.platform import JobAccess, Platform
from support.gang_worlds import VOLCANO
from world import World, running

FOREIGN = {
    'pod "digits-worker-0"': "pods",
    'service "digits"': "service",
    'networkpolicy "digits"': "network_policy",
    'persistentvolumeclaim "digits-checkpoint"': "claim",
    'podgroup "digits"': "gang",
}


def a_job() -> World:
    """A job that needs an object of each kind."""
    made = job(checkpoint={"claimTemplate": CLAIM_TEMPLATE}, runPolicy={"scheduling": {}})
    return World(made, platform=Platform(job_access=JobAccess()), gangs=GangsFound((VOLCANO,), NOW))


def put(world: World, kind: str, name: str = "worker-0") -> object:
    """Somebody else's object is there, in the place of ours."""
    theirs: object = Child("default", "digits-checkpoint" if kind == "claim" else "digits", "theirs", "somebody")
    if kind == "pods":
        foreign = pod(world.job, name, owner_uid="somebody")
        theirs = {**world.pods, foreign.name: foreign}
    elif kind == "gang":
        theirs = GangObject("default", "digits", "theirs", "somebody", VOLCANO)
    setattr(world, kind, theirs)
    return theirs


@pytest.mark.parametrize(("name", "kind"), FOREIGN.items(), ids=FOREIGN.values())
def test_a_new_job_waits_for_its_names_in_silence_at_first_and_then_says_which_is_taken(name: str, kind: str) -> None:
    world = a_job()
    before = getattr(world, kind)
    theirs = put(world, kind)
    world.advance(1)
    assert world.step() == (RequeueAfter(9.0),), "the objects of a predecessor may be about to go"
    world.wait(10)
    assert getattr(world, kind) == theirs
    assert world.job.status.reason == Reason.NAME_TAKEN
    assert world.events[-1].message == (
        f"{name} already exists and is not owned by this job: delete it, or give this job another name"
    )
    assert {each.owner_uid for each in world.pods.values()} <= {"somebody"}
    setattr(world, kind, before)
    world.settle()
    assert len(world.pods) == 2


@pytest.mark.parametrize("kind", FOREIGN.values())
@pytest.mark.parametrize("ends", [True, False], ids=["ends", "is suspended"])
def test_what_others_own_stays_when_the_job(kind: str, *, ends: bool) -> None:
    world = running(a_job())
    if ends:
        world.sees("worker-0", Phase.SUCCEEDED)
        world.settle_deletions()
        assert world.job.status.terminal
    else:
        world.job = edited(world.job, suspend=True)
    put(world, kind, "worker-9")
    world.settle_deletions()
    there = getattr(world, kind)
    assert "somebody" in {each.owner_uid for each in (there.values() if kind == "pods" else [there])}


def test_a_pod_with_our_labels_and_another_name_is_ignored() -> None:
    world = running()
    world.pods["x"] = replace(pod(world.job, "worker-7", owner_uid="another"), name="x")
    assert world.step() == ()


def test_a_group_of_our_name_is_nobodys_business_where_the_job_wants_none() -> None:
    alone = World(job())
    put(alone, "gang")
    alone.wait(60)
    assert len(alone.pods) == 2
