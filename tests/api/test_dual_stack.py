"""A cluster with two families of addresses: the names of a job resolve to one address each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from dtj.api.json import dig
from dtj.api.names import Label
from support.job_world import JobWorld
from testbed import ControlPlane
from testbed.versions import USUAL

pytestmark = pytest.mark.usefixtures("operator")

NETWORKS = {"IPv4": "10.96.0.0/16", "IPv6": "fd00:10:96::/112"}


@pytest.fixture(scope="module", params=NETWORKS)
def first_family(request: pytest.FixtureRequest) -> str:
    """The family that the cluster prefers."""
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(first_family: str) -> Iterator[ControlPlane]:
    """In place of the shared cluster: one with two families."""

    class DualStack(ControlPlane):
        service_networks = ",".join(sorted(NETWORKS.values(), key=lambda network: network != NETWORKS[first_family]))

    name = f"dual-{first_family.lower()}-{os.getpid()}-{uuid.uuid4().hex[:6]}"
    plane = DualStack.launch(name, owner=os.getpid(), binaries=USUAL.paths())
    try:
        plane.install_crds()
        yield plane
    finally:
        plane.stop()


def test_the_service_of_a_job_has_the_family_that_the_cluster_prefers(world: JobWorld, first_family: str) -> None:
    world.begin(roles={"worker": 2})
    (service,) = world.services().values()
    assert dig(service, "spec", "ipFamilyPolicy") == "SingleStack"
    assert dig(service, "spec", "ipFamilies") == [first_family]


def test_a_second_family_that_somebody_adds_stays_when_the_job_starts_again(world: JobWorld, first_family: str) -> None:
    world.begin(roles={"worker": 2})
    patch = '{"spec":{"ipFamilyPolicy":"RequireDualStack"}}'
    world.plane.kubectl("patch", "-n", world.namespace, "service/digits", "--type=merge", "-p", patch)
    for index in (0, 1):
        world.run_pod(f"digits-worker-{index}")
    world.end_pod("digits-worker-1", exit_code=3)
    world.await_pods(["worker-0-r1", "worker-1", "worker-1-r1"])
    (service,) = world.services().values()
    assert dig(service, "spec", "selector", Label.ATTEMPT) == "2"
    families = dig(service, "spec", "ipFamilies")
    assert isinstance(families, list)
    assert (families[0], len(families)) == (first_family, 2)
