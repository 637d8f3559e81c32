"""The NetworkPolicy of a job: what it lets in, when it comes and goes, and that no pod is there without it."""

from __future__ import annotations

import asyncio
import re

import pytest

from builders import CLAIM_TEMPLATE, NOW, job
from dtj.api.json import JsonObject, dig
from dtj.api.names import Condition, Label, Reason
from dtj.app.settings import job_access
from dtj.core.actions import PatchStatus, Plan
from dtj.core.observed import Observed, Phase
from dtj.core.planner import plan
from dtj.core.platform import JobAccess, Platform
from dtj.core.policies.network_policy import network_policy
from dtj.kube.errors import Forbidden
from dtj.kube.gateway import NETWORK_POLICIES, PODS
from support.engine_harness import harnessed
from support.fake_gateway import FakeGateway
from support.planned import called
from support.virtual_time import virtual_time
from world import World, running

OPERATOR: JsonObject = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "dtj-operator"}}}
ACCESS = JobAccess(status=(OPERATOR,))
ON = Platform(job_access=ACCESS)
BOARD: JsonObject = {"claimTemplate": CLAIM_TEMPLATE}


def world(*, platform: Platform = ON, **spec: object) -> World:
    return World(job(**spec), platform=platform)  # type: ignore[arg-type]


def all_running(**spec: object) -> World:
    """A job whose replicas run, and TensorBoard where it has one."""
    return running(world(**spec), seconds=0).all_run()  # type: ignore[arg-type]


class TestWhatItLetsIn:
    def test_the_jobs_own_pods_on_all_ports_and_the_operator_on_the_status_port_alone(self) -> None:
        digits = job()
        policy = network_policy(digits, ACCESS)
        assert policy["spec"] == {
            "podSelector": {"matchLabels": {Label.JOB_UID: digits.uid}},
            "policyTypes": ["Ingress"],
            "ingress": [
                {"from": [{"podSelector": {"matchLabels": {Label.JOB_UID: digits.uid}}}]},
                {"from": [OPERATOR], "ports": [{"protocol": "TCP", "port": 2223}]},
            ],
        }
        assert dig(policy, "metadata", "ownerReferences", 0, "uid") == digits.uid

    def test_nobody_named_is_nobody_let_in(self) -> None:
        """An empty list in a NetworkPolicy stands for everybody."""
        ingress = dig(network_policy(job(), JobAccess()), "spec", "ingress")
        assert isinstance(ingress, list)
        assert len(ingress) == 1
        assert all(rule["from"] for rule in ingress)  # type: ignore[index, call-overload]


class TestWhenItIsThere:
    def test_one_that_somebody_deletes_comes_back(self) -> None:
        there = all_running()
        there.network_policy = None
        there.settle()
        assert there.network_policy is not None

    def test_one_of_other_settings_is_brought_up_to_date_and_nothing_restarts(self) -> None:
        there = all_running()
        before, pods = there.network_policy, dict(there.pods)
        there.platform = Platform(job_access=JobAccess(status=(OPERATOR,), tensorboard=(OPERATOR,)))
        there.history.clear()
        there.settle()
        done = [called(action) for action in there.history if not isinstance(action, PatchStatus)]
        assert done == ["Update NetworkPolicy"]
        assert there.network_policy != before
        assert there.pods == pods

    def test_it_stays_as_long_as_pods_are_left_running(self) -> None:
        there = all_running(roles={"chief": 1, "worker": 1}, runPolicy={"cleanPodPolicy": "None"})
        there.sees("chief-0", Phase.SUCCEEDED, exit_code=0)
        assert there.job.status.state == "Succeeded"
        assert there.network_policy is not None
        there.sees("worker-0", Phase.SUCCEEDED, exit_code=0)
        assert there.network_policy is None

    def test_it_stays_as_long_as_tensorboard_does(self) -> None:
        there = all_running(roles={"worker": 1}, checkpoint=BOARD, tensorBoard={"ttlSeconds": 60})
        there.sees("worker-0", Phase.SUCCEEDED, exit_code=0)
        assert there.job.status.state == "Succeeded"
        assert there.network_policy is not None
        there.remove("tensorboard")  # evicted: it comes back, and must not come back to an open port
        there.settle()
        assert there.network_policy is not None
        there.advance(61)
        there.settle_deletions()
        assert there.network_policy is None


def planner(observed: Observed) -> Plan:
    return plan(observed, NOW)


COMPLETED: JsonObject = {
    "phase": "Succeeded",
    "containerStatuses": [
        {"name": "trainer", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-02T03:04:05Z"}}}
    ],
}
REFUSED = Forbidden('networkpolicies.networking.k8s.io "digits" is forbidden: no right', status=403, reason="Forbidden")


@virtual_time
async def test_without_it_no_pod_is_created_and_the_status_says_why_and_it_goes_with_the_last_pod() -> None:
    gateway = FakeGateway()
    gateway.fail("create", NETWORK_POLICIES, REFUSED, times=1000)
    async with harnessed(planner, gateway=gateway, platform=ON) as harness:
        submitted = harness.submit()
        await asyncio.sleep(100.0)
        assert gateway.names(PODS) == []
        stored = harness.engine.state.jobs.get(submitted.key)
        assert stored is not None
        ready = stored.job().status.condition(Condition.PODS_READY)
        assert ready is not None
        assert (ready.reason, ready.message) == (Reason.POD_CREATION_FAILED, f"digits: {REFUSED.message}")
        gateway.heal()
        await asyncio.sleep(100.0)
        assert gateway.names(NETWORK_POLICIES) == ["digits"]
        assert len(gateway.names(PODS)) == 2
        for name in gateway.names(PODS):
            gateway.put(PODS, {**gateway.body(PODS, name), "status": COMPLETED})
        await asyncio.sleep(100.0)
        assert gateway.names(NETWORK_POLICIES) == []


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("{", "is not valid JSON: "),
        ("[]", "must be a JSON object with statusFrom and tensorBoardFrom"),
        ('{"from": []}', "from: unknown field; the fields are statusFrom and tensorBoardFrom"),
        ('{"statusFrom": {}}', "statusFrom: must be a list of NetworkPolicy peers"),
        ('{"statusFrom": [{}]}', "statusFrom[0]: must be an object with podSelector, namespaceSelector, ipBlock"),
        ('{"tensorBoardFrom": [{"pods": {}}]}', "tensorBoardFrom[0]: must be an object with podSelector"),
        ('{"tensorBoardFrom": [{"podSelector": null}]}', "tensorBoardFrom[0]: must be an object with podSelector"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_in_one_line(given: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)) as error:
        job_access(given)
    assert "\n" not in str(error.value)


def test_the_setting_becomes_who_may_connect() -> None:
    assert job_access("{}") == JobAccess()
    assert job_access('{"statusFrom": [{"podSelector": {}}]}') == JobAccess(status=({"podSelector": {}},))
