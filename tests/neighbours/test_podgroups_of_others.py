"""The real scheduler of the scheduler plugins, and the real CRD of Volcano, whose programs cannot be built here."""

from __future__ import annotations

from typing import ClassVar

import pytest

from builders import priority_class
from dtj.api.json import JsonObject, dig
from support.gang_schedulers import COSCHEDULING, VOLCANO, VOLCANO_CRDS, Groups
from support.job_world import JobWorld
from support.slots import Slots, submit_eight_for_six_slots
from testbed import ControlPlane, runs
from testbed.scheduler_plugins import SchedulerPlugins

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(scope="session")
def scheduler_plugins(cluster: ControlPlane) -> SchedulerPlugins:
    """The scheduler, one for the run."""
    scheduler = SchedulerPlugins(cluster)
    with runs.launching():
        if not scheduler.running():
            scheduler.install()
            scheduler.start()
    return scheduler


@pytest.mark.usefixtures("scheduler_plugins")
class TestCoscheduling:
    SCHEDULING: ClassVar[JsonObject] = {"gang": "Coscheduling", "timeoutSeconds": 5}

    def test_of_eight_pods_that_fit_only_as_six_none_starts(self, world: JobWorld, slots: Slots) -> None:
        submit_eight_for_six_slots(world, slots, self.SCHEDULING)
        assert world.job().status.gang == "Coscheduling"
        assert dig(Groups(world, COSCHEDULING, "podgroups").await_one(), "spec", "minMember") == 8


class TestVolcano:
    def test_its_crd_takes_every_field_of_our_pod_group(self, world: JobWorld, slots: Slots) -> None:
        """A field that the schema does not know would be dropped, and a wrong value refused."""
        world.plane.install_crds(VOLCANO_CRDS, server_side=True)
        name = f"urgent-{world.namespace}"
        world.apply(priority_class(name))
        scheduling = {"gang": "Volcano", "queue": "team-a", "minAvailable": 3, "priorityClassName": name}
        world.begin(roles={"worker": 4}, template=slots.template, runPolicy={"scheduling": scheduling})
        spec = dig(Groups(world, VOLCANO, "podgroups").await_one(), "spec")
        assert isinstance(spec, dict)
        assert (spec["minMember"], spec["queue"], spec["priorityClassName"]) == (3, "team-a", name)
        assert dig(spec, "minResources", "example.com/slot") == "3"
        pod = world.pods()["digits-worker-0"]
        assert dig(pod, "spec", "schedulerName") == "volcano"
        assert dig(pod, "metadata", "annotations", "scheduling.k8s.io/group-name") == "digits"
