"""A real API server refuses what `dtj validate` refuses, in the same words."""

from __future__ import annotations

import json

import pytest

from bad_manifests import RULE_BREAKERS, SCHEMA_BREAKERS
from builders import manifest
from dtj.api.json import JsonObject
from dtj.api.validation import validate
from testbed import ControlPlane

pytestmark = pytest.mark.api


TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "other"}]}}


def apply(cluster: ControlPlane, namespace: str, body: JsonObject) -> str:
    """What `kubectl apply` says: empty where it takes the manifest.

    A null is sent by server-side apply: client-side apply drops it before any server can see it.
    """
    text = json.dumps(body)
    how = ["--server-side"] if "null" in text else []
    done = cluster.kubectl("apply", *how, "--namespace", namespace, "--filename", "-", stdin=text, check=False)
    return "" if done.returncode == 0 else done.stderr


def test_a_broken_rule_is_refused_with_the_message_of_the_offline_check(cluster: ControlPlane, namespace: str) -> None:
    wrong = {}
    for case, body in RULE_BREAKERS.items():
        said = apply(cluster, namespace, body)
        missing = [v.message for v in validate(body) if v.message not in said or v.field not in said]
        if missing or not said:
            wrong[case] = {"missing": missing, "said": said or "accepted"}
    assert not wrong, json.dumps(wrong, indent=1)


def test_wrong_types_and_ranges_are_refused_with_the_message_of_the_offline_check(
    cluster: ControlPlane, namespace: str
) -> None:
    wrong = {}
    for case, body in SCHEMA_BREAKERS.items():
        said = apply(cluster, namespace, body)
        missing = [v.message.partition("; did you mean")[0] for v in validate(body)]
        missing = [message for message in missing if message not in said]
        if missing or not said:
            wrong[case] = {"missing": missing, "said": said or "accepted"}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("strategy", {"strategy": "OneDevice"}),
        ("port", {"port": 3333}),
        ("replicaSpecs[worker].restartPolicy", {"replicaSpecs": {"worker": {"replicas": 1, "restartPolicy": "Never"}}}),
        ("elastic", {"elastic": {"maxReplicas": 4}}),
        ("checkpoint", {"checkpoint": {"path": "/c"}}),
        ("runPolicy.cleanPodPolicy", {"runPolicy": {"cleanPodPolicy": "All"}}),
        ("runPolicy.backoffLimit", {"runPolicy": {"backoffLimit": 9}}),
        ("runPolicy.managedBy", {"runPolicy": {"managedBy": "example.com/other"}}),
    ],
)
def test_a_field_that_is_fixed_cannot_be_changed(
    cluster: ControlPlane, namespace: str, field: str, change: dict[str, object]
) -> None:
    assert apply(cluster, namespace, manifest(roles={"worker": 1})) == ""
    said = apply(cluster, namespace, manifest(**{"roles": {"worker": 1}, **change}))  # type: ignore[arg-type]
    assert f"spec.{field}" in said
    assert f"{field.rpartition('.')[2]} cannot be changed: delete the job and create it anew" in said


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("template cannot be changed", {"template": TEMPLATE}),
        ("accelerator cannot be changed", {"accelerator": {"profile": "nvidia-l4"}}),
        ("args of a role cannot be changed", {"replicaSpecs": {"worker": {"replicas": 1, "args": ["--epochs=9"]}}}),
        ("template of a role cannot be changed", {"replicaSpecs": {"worker": {"replicas": 1, "template": TEMPLATE}}}),
    ],
)
def test_what_makes_pods_can_be_changed_while_a_job_is_suspended_alone(
    cluster: ControlPlane, namespace: str, said: str, change: dict[str, object]
) -> None:
    running, suspended = {"suspend": False}, {"suspend": True}
    before: dict[str, object] = {"roles": {"worker": 1}}
    assert apply(cluster, namespace, manifest(**before, runPolicy=running)) == ""  # type: ignore[arg-type]
    assert said in apply(cluster, namespace, manifest(**{**before, **change}, runPolicy=running))  # type: ignore[arg-type]
    assert apply(cluster, namespace, manifest(**before, runPolicy=suspended)) == ""  # type: ignore[arg-type]
    assert apply(cluster, namespace, manifest(**{**before, **change}, runPolicy=running)) == ""  # type: ignore[arg-type]


def test_roles_cannot_come_and_go(cluster: ControlPlane, namespace: str) -> None:
    assert apply(cluster, namespace, manifest(roles={"worker": 1})) == ""
    more = apply(cluster, namespace, manifest(roles={"worker": 1, "evaluator": 1}))
    other = apply(cluster, namespace, manifest(roles={"chief": 1}))
    assert "roles cannot be added or removed: delete the job and create it anew" in more
    assert "roles cannot be added or removed: delete the job and create it anew" in other


class TestScale:
    """`kubectl scale`, which is an update of the scale subresource, goes through the same rules."""

    @staticmethod
    def scale(cluster: ControlPlane, namespace: str, replicas: int) -> str:
        done = cluster.kubectl("scale", "-n", namespace, "dtj/digits", f"--replicas={replicas}", check=False)
        return "" if done.returncode == 0 else done.stderr

    def test_workers_of_an_elastic_job_are_scaled_within_its_bounds(
        self, cluster: ControlPlane, namespace: str
    ) -> None:
        body = manifest(roles={"chief": 1, "worker": 2}, elastic={"minReplicas": 2, "maxReplicas": 4})
        assert apply(cluster, namespace, body) == ""
        assert self.scale(cluster, namespace, 4) == ""
        for beyond in (1, 5):
            said = self.scale(cluster, namespace, beyond)
            assert "worker.replicas must be from elastic.minReplicas to elastic.maxReplicas" in said
        shown = cluster.kubectl(
            "get", "-n", namespace, "dtj/digits", "-o", "jsonpath={.spec.replicaSpecs.worker.replicas}"
        )
        assert shown.stdout == "4"

    def test_applying_an_elastic_job_anew_scales_it_too(self, cluster: ControlPlane, namespace: str) -> None:
        elastic = {"maxReplicas": 4}
        assert apply(cluster, namespace, manifest(roles={"worker": 2}, elastic=elastic)) == ""
        assert apply(cluster, namespace, manifest(roles={"worker": 3}, elastic=elastic)) == ""

    def test_other_jobs_and_other_roles_keep_their_numbers(self, cluster: ControlPlane, namespace: str) -> None:
        assert apply(cluster, namespace, manifest(roles={"worker": 2})) == ""
        assert "only the workers of a job with elastic can be scaled" in self.scale(cluster, namespace, 3)
        servers = {"name": "servers", "strategy": "ParameterServer", "elastic": {"maxReplicas": 4}}
        assert apply(cluster, namespace, manifest(**servers, roles={"chief": 1, "worker": 2, "ps": 1})) == ""  # type: ignore[arg-type]
        said = apply(cluster, namespace, manifest(**servers, roles={"chief": 1, "worker": 2, "ps": 2}))  # type: ignore[arg-type]
        assert "only the workers of a job with elastic can be scaled" in said


def test_applying_the_same_manifest_again_changes_nothing(cluster: ControlPlane, namespace: str) -> None:
    body = manifest(roles={"worker": 1})
    path = f"/apis/training.dtj.dev/v1alpha1/namespaces/{namespace}/distributedtrainingjobs/digits"
    assert apply(cluster, namespace, body) == ""
    before = cluster.api.request("GET", path)
    assert apply(cluster, namespace, body) == ""
    assert cluster.api.request("GET", path)["metadata"] == before["metadata"]


def test_fields_of_newer_servers_survive_in_the_pod_template(cluster: ControlPlane, namespace: str) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "fieldOfTomorrow": {"a": 1}}}
    done = cluster.kubectl(
        "apply", "-n", namespace, "--validate=ignore", "-f", "-", stdin=json.dumps(manifest(template=template))
    )
    assert done.returncode == 0
    path = f"/apis/training.dtj.dev/v1alpha1/namespaces/{namespace}/distributedtrainingjobs/digits"
    assert cluster.api.request("GET", path)["spec"]["template"]["spec"]["fieldOfTomorrow"] == {"a": 1}
