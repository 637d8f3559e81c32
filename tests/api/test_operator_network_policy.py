"""The NetworkPolicy of each job, with a real API server, which refuses it now and then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dtj.api.json import dig
from dtj.api.names import Reason
from support.full_life import live_through_network_policies
from support.job_world import JobWorld
from support.operator_process import OperatorProcess, set_rights
from support.waiting import eventually

pytestmark = pytest.mark.api

ACCESS = '{"statusFrom": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "dtj-operator"}}}]}'


@pytest.fixture
def operator(world: JobWorld, tmp_path: Path) -> Iterator[OperatorProcess]:
    """An operator that gives each job a policy."""
    arguments = (f"--network-policies={ACCESS}",)
    with OperatorProcess.serving(world.plane, [world.namespace], *arguments, log=tmp_path / "operator.log") as process:
        yield process
        print(process.log.read_text())


def test_it_comes_before_the_pods_is_kept_as_it_should_be_and_goes_with_the_job(
    world: JobWorld, operator: OperatorProcess
) -> None:
    live_through_network_policies(world)


def test_no_pod_is_created_as_long_as_the_policy_is_refused_and_the_status_says_so(
    world: JobWorld, operator: OperatorProcess
) -> None:
    set_rights(world.plane, world.namespace, without="create networkpolicies")
    try:
        world.submit()

        def is_reported() -> None:
            ready = world.job().status.condition("PodsReady")  # type: ignore[arg-type]
            assert ready is not None
            assert ready.reason == Reason.POD_CREATION_FAILED
            assert 'cannot create resource "networkpolicies"' in ready.message

        eventually(is_reported)
        assert world.pods() == {}
    finally:
        set_rights(world.plane, world.namespace)
    world.await_pods(["worker-0", "worker-1"])
    labels = dig(world.pods()["digits-worker-0"], "metadata", "labels")
    assert isinstance(labels, dict)
    selector = world.plane.kubectl(
        "get", "networkpolicy", "digits", "-n", world.namespace, "-o", "jsonpath={.spec.podSelector.matchLabels.*}"
    ).stdout
    assert selector in labels.values()
