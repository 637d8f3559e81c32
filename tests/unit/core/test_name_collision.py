"""Objects of others that have the names of ours: they are reported, and never touched."""

from __future__ import annotations

from dataclasses import replace

from builders import job, pod
from dtj.api.names import Reason
from dtj.core.actions import DeletePod, RequeueAfter
from dtj.core.observed import Child
from world import World, running


class TestForeignObjects:
    def test_a_new_job_waits_in_silence_for_the_names_of_its_predecessor(self) -> None:
        owner = job()
        world = World(owner)
        predecessor = pod(owner, "worker-0", owner_uid="the-job-of-this-name-before")
        world.pods[predecessor.name] = predecessor
        world.advance(1)
        assert world.step() == (RequeueAfter(9.0),)
        del world.pods[predecessor.name]
        world.settle()
        assert len(world.pods) == 2

    def test_a_pod_of_another_owner_is_never_touched_and_is_shown(self) -> None:
        owner = job()
        world = World(owner)
        foreign = pod(owner, "worker-0", owner_uid="somebody-else")
        world.pods[foreign.name] = foreign
        world.wait(11)
        assert world.pods == {foreign.name: foreign}
        assert not world.taken(DeletePod)
        assert world.job.status.reason == Reason.NAME_TAKEN
        assert 'pod "digits-worker-0"' in world.events[-1].message

    def test_a_service_of_another_owner_is_never_touched_and_is_shown(self) -> None:
        world = World(job())
        world.service = Child("default", "digits", uid="s", owner_uid="")
        world.wait(11)
        assert not world.pods
        assert 'service "digits"' in world.events[-1].message

    def test_a_pod_with_our_labels_and_another_name_is_ignored(self) -> None:
        owner = job()
        world = running()
        world.pods["x"] = replace(pod(owner, "worker-7", owner_uid="another"), name="x")
        assert world.step() == ()
