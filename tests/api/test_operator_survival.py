"""What the operator survives: being killed, an API server that restarts, objects that vanish unseen, no CRD."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj.api import names
from support.job_world import JobWorld
from support.operator_process import OperatorProcess
from support.waiting import eventually_true
from testbed import ControlPlane


@pytest.fixture(scope="class")
def broken_world(own_control_plane: ControlPlane) -> JobWorld:
    return JobWorld.new(own_control_plane)


@pytest.fixture(scope="class")
def lasting_operator(broken_world: JobWorld, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    plane, namespace = broken_world.plane, broken_world.namespace
    with OperatorProcess.serving(plane, [namespace], "--relist-seconds=5", log=log) as operator:
        yield operator
        assert operator.running, operator.log.read_text()


class TestAKilledOperator:
    """On the shared cluster: nothing of the cluster is broken here."""

    def test_completes_what_it_had_begun_to_create(self, world: JobWorld, operator: OperatorProcess) -> None:
        world.submit(roles={"worker": 30})
        eventually_true(lambda: len(world.pods()) >= 3)
        operator.kill()
        operator.start()
        world.await_pods([f"worker-{index}" for index in range(30)])
        assert len(set(world.uids().values())) == 30
        operator.await_serving()  # it may have been killed after the last pod, and not be up yet


class TestAClusterThatBreaks:
    """On a control plane of their own, one after the other, with one operator that is never restarted."""

    def test_a_pod_that_vanished_during_an_outage_without_a_word_is_missed(
        self, broken_world: JobWorld, lasting_operator: OperatorProcess
    ) -> None:
        world = broken_world
        world.run("ghostly")
        with world.plane.outage() as etcd:
            etcd.delete(f"/registry/pods/{world.namespace}/ghostly-worker-1")
            etcd.forget_history()
        world.await_pods(["worker-0-r1", "worker-1-r1"], "ghostly")
        assert lasting_operator.running

    def test_an_api_server_that_restarts_is_waited_for_and_work_goes_on(
        self, broken_world: JobWorld, lasting_operator: OperatorProcess
    ) -> None:
        world = broken_world
        world.begin("patient")
        before = world.uids("patient")
        world.plane.restart_apiserver()
        world.run_pods("patient")
        world.await_state("Running", "patient")
        world.begin("newcomer")
        assert world.uids("patient") == before
        assert lasting_operator.running


class TestAnEmptyCluster:
    """The operator may be there before anything that it needs."""

    def test_the_operator_waits_for_the_crd_and_starts_with_it(
        self, own_control_plane: ControlPlane, tmp_path: Path
    ) -> None:
        plane = own_control_plane
        crd = f"{names.PLURAL}.{names.GROUP}"
        plane.kubectl("delete", "crd", crd, "--wait")
        world = JobWorld.new(plane)
        with OperatorProcess.serving(plane, [world.namespace], log=tmp_path / "operator.log") as operator:
            operator.await_line(f"CustomResourceDefinition {crd} is not installed: kubectl apply -f crds/")
            plane.install_crds()
            world.begin()
