"""Pods in namespaces that enforce a Pod Security Standard, by a real API server's admission."""

from __future__ import annotations

import pytest

from dtj.api.json import JsonObject, dig, items_of
from dtj.api.names import Condition, Reason
from support.job_world import JobWorld
from support.operator_process import OperatorProcess
from support.refusals import refuses_pods
from support.waiting import eventually


@pytest.fixture
def restricted(world: JobWorld) -> JobWorld:
    """A namespace that enforces the standard "restricted"."""
    world.plane.kubectl("label", "namespace", world.namespace, "pod-security.kubernetes.io/enforce=restricted")
    eventually(lambda: refuses_pods(world))
    return world


def assert_restricted(pod: JsonObject) -> None:
    assert dig(pod, "spec", "securityContext", "runAsNonRoot") is True
    assert dig(pod, "spec", "containers", 0, "securityContext", "capabilities") == {"drop": ["ALL"]}


def test_a_job_runs_where_the_restricted_standard_is_enforced(restricted: JobWorld, operator: OperatorProcess) -> None:
    world = restricted
    gpus = {"profile": "nvidia", "count": 2}
    world.begin(strategy="ParameterServer", roles={"chief": 1, "worker": 1, "ps": 1}, accelerator=gpus)
    for pod in world.pods().values():
        assert_restricted(pod)
    shared = {"name": "dtj-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}
    assert [shared in items_of(dig(pod, "spec", "volumes")) for _, pod in sorted(world.pods().items())] == [
        True,
        False,
        True,  # chief, ps, worker
    ]
    assert not world.job().status.is_true(Condition.INVALID)
    assert world.events(Reason.POD_CREATION_FAILED) == []
