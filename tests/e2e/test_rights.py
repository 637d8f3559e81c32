"""What the operator asked of the API server in the whole run, against what its roles allow."""

from __future__ import annotations

import pytest

from builders import CLAIM_TEMPLATE
from dtj.api.json import JsonObject
from dtj.api.names import Annotation
from support.chart import Granted, granted, operator_rules
from support.cluster_jobs import ClusterJobs, tiny
from support.installation import Installation
from support.waiting import eventually
from testbed import NodeCluster
from testbed.processes import wait_until

pytestmark = pytest.mark.e2e

OBJECTS_OF_OTHERS: dict[str, JsonObject] = {
    "a": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}},
    "b": {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "b-worker-0"},
        "spec": {"containers": [{"name": "a", "image": "localhost/tiny:1"}]},
    },
    "g": {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "g"},
        "spec": {"podGroups": [{"name": "a", "policy": {"basic": {}}}]},
    },
    "n": {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "n"},
        "spec": {"podSelector": {"matchLabels": {"app": "another"}}},
    },
    "c": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c-checkpoint"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    },
}
"""By the name of a job that wants this name too."""


def test_objects_of_others_that_have_a_jobs_names_are_left_alone(jobs: ClusterJobs) -> None:
    for job, other in OBJECTS_OF_OTHERS.items():
        jobs.submit(other)
        policy = {"scheduling": {"gang": "Native"}} if job == "g" else {}
        storage = {"claimTemplate": CLAIM_TEMPLATE}
        jobs.submit(tiny(job, "sleep 60", roles={"worker": 1}, checkpoint=storage, runPolicy=policy))

    def is_reported() -> None:
        reasons = {job: jobs.job(job).get("status", {}).get("reason") for job in OBJECTS_OF_OTHERS}
        assert set(reasons.values()) == {"NameTaken"}, reasons

    eventually(is_reported)


def test_what_happens_twice_is_counted_and_not_repeated(jobs: ClusterJobs) -> None:
    jobs.submit(tiny("pauses", "trap 'exit 42' TERM; sleep 300 & wait", roles={"worker": 2}))
    for times in (1, 2):
        jobs.await_condition("pauses", "PodsReady")
        jobs.suspend("pauses", suspend=True)
        jobs.await_condition("pauses", "Suspended")
        wait_until(lambda: jobs.pods() == {}, what="the end of the pods")

        def counted(expected: int = times) -> None:
            events = jobs.events("Suspended")
            assert [event.get("series", {}).get("count", 1) for event in events] == [expected]

        eventually(counted)
        jobs.suspend("pauses", suspend=False)


def test_a_jobs_network_policy_that_is_not_as_it_should_be_is_brought_up_to_date(jobs: ClusterJobs) -> None:
    jobs.submit(tiny("closed", "sleep 300", roles={"worker": 1}))
    jobs.await_condition("closed", "PodsReady")
    path = "{.metadata.annotations." + Annotation.POLICY_DIGEST.replace(".", r"\.") + "}"

    def digest() -> str:
        asked = ("get", "networkpolicy", "closed", "-n", jobs.namespace, "-o", f"jsonpath={path}")
        return jobs.cluster.kubectl(*asked).stdout

    before = digest()
    assert before
    changed = f"{Annotation.POLICY_DIGEST}=x"
    jobs.cluster.kubectl("annotate", "networkpolicy", "closed", "-n", jobs.namespace, changed, "--overwrite")

    def restored() -> None:
        assert digest() == before

    eventually(restored)


def test_a_volume_that_cannot_be_mounted_is_said_in_the_words_of_the_kubelets_event(jobs: ClusterJobs) -> None:
    absent: JsonObject = {"volume": {"secret": {"secretName": "absent"}}}
    jobs.submit(tiny("unmounted", "sleep 300", roles={"worker": 1}, checkpoint=absent))

    def is_said() -> None:
        conditions = jobs.job("unmounted")["status"].get("conditions", [])
        ready = next((c for c in conditions if c["type"] == "PodsReady"), {"reason": "none yet"})
        assert ready["reason"] == "PodStartFailed", ready
        assert "unmounted-worker-0: " in ready["message"]
        assert ready["message"].endswith("(FailedMount)")

    eventually(is_said)


@pytest.mark.judges_the_run
def test_the_operator_used_each_right_that_it_has_and_asked_for_no_other(
    request: pytest.FixtureRequest, operator: Installation, node_testbed: NodeCluster
) -> None:
    calls = [call for call in node_testbed.audit.calls(since=operator.mark, user=operator.user) if call.resource]
    used = {
        Granted(call.group, f"{call.resource}/{call.subresource}" if call.subresource else call.resource, call.verb)
        for call in calls
    }
    allowed = {right for rules in operator_rules(operator.objects()).values() for right in granted(rules)}
    assert {str(right) for right in used - allowed} == set()
    if request.config.getoption("keyword") or any(".py" in argument for argument in request.config.args):
        pytest.skip("a part of the run does not use every right")
    not_served = {right for right in allowed if (right.group, right.resource) == ("scheduling.k8s.io", "podgroups")}
    assert {str(right) for right in allowed - used - not_served} == set()
