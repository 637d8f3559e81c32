"""The tf.data service of a job: its pods, how they are found, and that nobody's life depends on theirs."""

from __future__ import annotations

from builders import job, spec_of
from dtj.api.names import Condition
from dtj.core.observed import Phase
from dtj.core.replicas import replicas
from dtj.local.ports import local_network
from support.pod_environment import environment_of
from world import World, live, running

ROLES = {"worker": 2, "dispatcher": 1, "data-worker": 2}


class TestWhatPodsAreTold:
    def test_its_pods_get_the_address_under_which_they_are_reached(self) -> None:
        world = running(roles={**ROLES, "evaluator": 1})
        given = {
            name: (environment_of(made).get("DTJ_HOST"), environment_of(made).get("DTJ_DATA_SERVICE_PORT"))
            for name, made in world.manifests.items()
        }
        assert given["digits-data-worker-1"] == ("data-worker-1.digits.default.svc", "2222")
        assert given["digits-dispatcher-0"] == ("dispatcher-0.digits.default.svc", "2222")
        assert given["digits-worker-0"] == given["digits-evaluator-0"] == (None, None)

    def test_on_one_machine_each_has_a_port_of_its_own(self) -> None:
        owner = job(roles=ROLES)
        with local_network(spec_of(owner)) as network:
            addresses = {
                network.address(namespace="n", job="j", role=each.role, index=each.index, port=2222)
                for each in replicas(spec_of(owner))
            }
        assert len(addresses) == 5

    def test_a_job_without_one_keeps_the_address_that_the_user_gave(self) -> None:
        variables = [{"name": "TF_DATA_SERVICE_ADDRESS", "value": "elsewhere:5050"}]
        trainer = {"name": "trainer", "image": "x", "env": variables}
        world = World(job(template={"spec": {"containers": [trainer]}})).settle()
        assert environment_of(world.manifests["digits-worker-0"])["TF_DATA_SERVICE_ADDRESS"] == "elsewhere:5050"


class TestItsLife:
    def test_the_jobs_success_does_not_wait_for_it_and_stops_it(self) -> None:
        world = running(roles=ROLES)
        world.set_pod("worker-0", Phase.SUCCEEDED)
        world.settle_deletions()
        assert {name for name in live(world) if not world.pods[name].main_container_ended} == set()
        assert world.is_true(Condition.COMPLETE)
