"""Jobs that a backup tool has created again: new UIDs, and objects without owners (docs/operations.md)."""

from dataclasses import replace

from builders import CLAIM_TEMPLATE, job
from dtj.api.names import Reason
from dtj.core.actions import Create, CreatePod, Kind
from world import World, live, running


def restored(before: World, *, status: bool) -> World:
    """The job of this world in another cluster, with its status or without, and without any of its objects."""
    stored = before.job if status else replace(before.job, status=job().status)
    return World(replace(stored, uid="restored"), now=before.now)


def test_a_running_job_with_its_status_goes_on_as_a_new_attempt_that_no_error_pays_for() -> None:
    world = restored(running(), status=True)
    world.settle()
    world.wait(30)
    assert world.job.status.attempt == 2
    assert world.job.status.restarts.user == 0
    assert world.job.status.restarts.disruption == 1
    assert len(live(world)) == 2


def test_a_claim_that_came_back_is_used_as_a_volume_but_not_as_the_jobs_own_claim() -> None:
    own = World(job(checkpoint={"claimTemplate": CLAIM_TEMPLATE})).settle()
    assert own.claim is not None
    orphan = replace(own.claim, owner_uid="")

    template = World(replace(own.job, uid="restored", status=job().status), claim=orphan)
    template.wait(60)
    assert template.job.status.reason == Reason.NAME_TAKEN

    volume = {"volume": {"persistentVolumeClaim": {"claimName": orphan.name}}, "path": "/dtj/checkpoint"}
    as_volume = World(job(checkpoint=volume), claim=orphan).settle()
    assert as_volume.taken(CreatePod)
    assert as_volume.taken(Create, Kind.CLAIM) == []
