"""A real API server takes TFJobs as Kubeflow's CRD does, and refuses by the chart's policy what the operator does."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

from bad_tfjobs import ACCEPTED, REFUSED, container, role, tfjob
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.tfjob.crd import custom_resource_definition
from support.chart import CHART
from support.waiting import eventually
from testbed import ControlPlane

STATUS = "/apis/kubeflow.org/v1/namespaces/{}/tfjobs/{}/status"
RUNNING: JsonObject = {"startTime": "2026-01-02T03:04:05Z"}
ENDED: JsonObject = {**RUNNING, "completionTime": "2026-01-02T03:05:05Z"}
OTHER: JsonObject = {"spec": {"containers": [container(image="example/mnist:2")]}}


def apply(cluster: ControlPlane, namespace: str, body: JsonObject) -> str:
    """What `kubectl apply` says: empty where it takes the manifest. A null is sent by server-side apply alone."""
    text = json.dumps(body)
    how = ["--server-side", "--force-conflicts"] if "null" in text else []
    done = cluster.kubectl("apply", *how, "--namespace", namespace, "--filename", "-", stdin=text, check=False)
    return "" if done.returncode == 0 else done.stderr


def set_status(cluster: ControlPlane, namespace: str, status: JsonObject, name: str = "mnist") -> None:
    path, patch = STATUS.format(namespace, name), {"status": status}
    cluster.api.request("PATCH", path, patch, content_type="application/merge-patch+json")


@pytest.fixture(scope="module")
def served(cluster: ControlPlane) -> ControlPlane:
    """With the CRD, which stays: other tests of the run may use it, too."""
    cluster.apply(custom_resource_definition())
    eventually(lambda: _is_served(cluster))
    return cluster


def _is_served(cluster: ControlPlane) -> None:
    assert cluster.kubectl("get", "tfjobs", check=False).returncode == 0


@pytest.fixture(scope="module")
def guarded(served: ControlPlane) -> Iterator[str]:
    """A namespace in which the policy is bound, and a job that was there before and that it would refuse."""
    namespace = served.new_namespace()
    assert apply(served, namespace, REFUSED["two chiefs"][0]) == ""
    policy = yaml.safe_load((CHART / "files" / "tfjob-policy.yaml").read_text())
    policy["metadata"] = {"name": namespace}
    binding: JsonObject = {
        "apiVersion": policy["apiVersion"],
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},
        },
    }
    served.apply(policy, binding)
    refused = tfjob("refused", spec={"successPolicy": "no"})
    eventually(lambda: _is_refused(served, namespace, refused))
    yield namespace
    served.kubectl("delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", namespace)


def _is_refused(cluster: ControlPlane, namespace: str, body: JsonObject) -> None:
    assert "denied request" in apply(cluster, namespace, body)


def test_a_broken_rule_is_refused_with_the_line_of_the_operator(served: ControlPlane, guarded: str) -> None:
    said = {case: apply(served, guarded, body) for case, (body, _) in REFUSED.items() if case != "two chiefs"}
    wrong = {case: answer or "accepted" for case, answer in said.items() if REFUSED[case][1] not in answer}
    assert not wrong, json.dumps(wrong, indent=1)


def test_what_kubeflow_runs_to_its_end_as_written_is_accepted(served: ControlPlane, guarded: str) -> None:
    for number, body in enumerate(ACCEPTED.values()):
        if dig(body, "metadata", "name") == "mnist":
            body = {**body, "metadata": {"name": f"mnist-{number}"}}
        assert apply(served, guarded, body) == ""


@pytest.mark.parametrize("status", [{}, RUNNING], ids=["not yet seen", "running"])
@pytest.mark.parametrize(
    ("line", "before", "after"),
    [
        ("spec.tfReplicaSpecs.Worker.template: cannot be changed while", {}, {"Worker": {"template": OTHER}}),
        ("spec.tfReplicaSpecs: PS cannot be removed while", {"Worker": role(), "PS": role()}, {"Worker": role()}),
        ("spec.successPolicy: cannot be changed while", {}, {"spec": {"successPolicy": "AllWorkers"}}),
    ],
)
def test_what_makes_the_pods_is_changed_while_the_job_is_suspended_alone(
    served: ControlPlane, guarded: str, status: JsonObject, line: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    name = "mnist-changed"
    job, changed = partial(tfjob, name, **before), partial(tfjob, name, **after)
    running: JsonObject = {"suspend": False}
    suspended: JsonObject = {"suspend": True}
    assert apply(served, guarded, job(run_policy=running)) == ""
    set_status(served, guarded, status, name)
    try:
        answer = apply(served, guarded, changed(run_policy=running))
        assert f"{line} the job runs: suspend the job first, or delete it and create it again" in answer
        # Kueue stops and starts a job with one patch of suspend and templates.
        assert apply(served, guarded, changed(run_policy=suspended)) == ""
        assert apply(served, guarded, job(run_policy=suspended)) == ""
        assert apply(served, guarded, changed(run_policy=running)) == ""
        set_status(served, guarded, ENDED, name)
        assert apply(served, guarded, job(run_policy=running)) == ""
    finally:
        served.kubectl("delete", "tfjob", name, "-n", guarded)


def test_more_replicas_and_roles_are_no_change_of_pods(served: ControlPlane, guarded: str) -> None:
    assert apply(served, guarded, tfjob("mnist-more")) == ""
    assert apply(served, guarded, tfjob("mnist-more", Worker=role(3), Evaluator=role())) == ""


def test_a_job_stays_with_its_controller(served: ControlPlane, guarded: str) -> None:
    name, line = "mnist-managed", "spec.runPolicy.managedBy: cannot be changed: delete the job and create it again"
    assert apply(served, guarded, tfjob(name)) == ""
    assert line in apply(served, guarded, tfjob(name, run_policy={"managedBy": "kueue.x-k8s.io/multikueue"}))


def test_a_job_that_was_there_before_the_policy_can_be_labelled_and_deleted(served: ControlPlane, guarded: str) -> None:
    served.kubectl("label", "tfjob", "mnist", "a=b", "-n", guarded)
    assert REFUSED["two chiefs"][1] in apply(served, guarded, tfjob(Chief=role(2), Worker=role()))
    served.kubectl("delete", "tfjob", "mnist", "-n", guarded)


# -- the CRD alone -----------------------------------------------------------------------------------------------


def test_the_crd_takes_what_only_a_pod_or_the_policy_would_refuse(served: ControlPlane, namespace: str) -> None:
    """As Kubeflow's does, where kubectl asks the API server to refuse fields that it does not know."""
    many = [{"name": f"V{number}", "value": "1"} for number in range(300)]
    main = container(
        env=many,
        imagePullPolicy="Sometimes",
        resources={"limits": {"memory": "-1Gi", "cpu": 2}},
        ports=[{"containerPort": 70000, "protocol": "tcp"}, {"containerPort": 70000}],
        securityContext={"runAsUser": -1},
        lifecycle={"preStop": {}},
    )
    template: JsonObject = {
        "metadata": {"name": "x", "namespace": "y", "labels": {"a": "b"}, "finalizers": ["c"]},
        "spec": {
            "containers": [main],
            "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
            "restartPolicy": "Sometimes",
            "volumes": [{"name": "v", "secret": {}, "configMap": {"defaultMode": 4096}}],
        },
    }
    body = tfjob(Worker={"replicas": -1, "restartPolicy": "", "template": template}, anything={})
    assert apply(served, namespace, body) == ""
    stored = json.loads(served.kubectl("get", "tfjob", "mnist", "-n", namespace, "-o", "json").stdout)
    expected = copy.deepcopy(object_at(body, "spec"))
    worker = dig(expected, "tfReplicaSpecs", "Worker", "template", "spec", "containers", 0, "ports", 1)
    assert isinstance(worker, dict)
    worker["protocol"] = "TCP"
    assert stored["spec"] == expected


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("spec.tfReplicaSpecs.Worker.replica", tfjob(Worker=role(replica=1))),
        ("spec.tfReplicaSpecs.Worker.template.spec.container", tfjob(Worker={"template": {"spec": {"container": []}}})),
        ("spec.runPolicy.backofLimit", tfjob(run_policy={"backofLimit": 1})),
    ],
)
def test_a_field_that_nobody_knows_is_refused(
    served: ControlPlane, namespace: str, field: str, body: JsonObject
) -> None:
    assert f'unknown field "{field}"' in apply(served, namespace, body)


def test_the_operators_record_is_kept_and_shown(served: ControlPlane, namespace: str) -> None:
    assert apply(served, namespace, tfjob()) == ""
    record: JsonObject = {"ready": "2/2", "restarts": {"total": 3}, "progress": {"step": 5, "text": "50 %"}}
    conditions: JsonObject = {
        "conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "True"}]
    }
    set_status(served, namespace, {**conditions, "dtj": record})
    shown = served.kubectl("get", "tfjobs", "-n", namespace, "-o", "wide").stdout.splitlines()
    assert shown[0].split() == ["NAME", "STATE", "AGE", "READY", "RESTARTS", "PROGRESS"]
    assert shown[1].split()[1] == "Running"
    assert shown[1].split()[3:] == ["2/2", "3", "50", "%"]


def test_a_queue_is_not_changed(served: ControlPlane, namespace: str) -> None:
    assert apply(served, namespace, tfjob(run_policy={"schedulingPolicy": {"queue": "a"}})) == ""
    answer = apply(served, namespace, tfjob(run_policy={"schedulingPolicy": {"queue": "b"}}))
    assert "spec.runPolicy.schedulingPolicy.queue is immutable" in answer


def test_the_crd_fits_into_what_kubectl_apply_can_carry() -> None:
    assert (CHART / "files" / "tfjob-crd.yaml").stat().st_size < 250_000
    assert "description" not in {*_keywords(custom_resource_definition())}


def _keywords(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "properties":
                for field in item.values():
                    yield from _keywords(field)
            else:
                yield key
                yield from _keywords(item)
