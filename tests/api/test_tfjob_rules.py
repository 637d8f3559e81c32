"""A real API server takes TFJobs as Kubeflow's CRD does, and refuses by the chart's policy what the operator does."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from pydantic import JsonValue

from bad_tfjobs import ACCEPTED, REFUSED, container, role, tfjob
from dtj.api.job import MAX_SPEC_BYTES
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.tfjob.crd import custom_resource_definition
from dtj.api.validation import validate
from support.chart import CHART
from support.server_answers import apply, wrong_answers
from support.tfjob_policy import LINES, guarding
from support.waiting import eventually
from testbed import ControlPlane

STATUS = "/apis/kubeflow.org/v1/namespaces/{}/tfjobs/{}/status"
RUNNING: JsonObject = {"startTime": "2026-01-02T03:04:05Z"}
ENDED: JsonObject = {**RUNNING, "completionTime": "2026-01-02T03:05:05Z"}
OTHER: JsonObject = {"spec": {"containers": [container(image="example/mnist:2")]}}


def set_status(cluster: ControlPlane, namespace: str, status: JsonObject, name: str = "mnist") -> None:
    path, patch = STATUS.format(namespace, name), {"status": status}
    cluster.api.request("PATCH", path, patch)


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
    assert apply(served, namespace, tfjob("before", Chief=role(2))) == ""
    with guarding(served, namespace):
        yield namespace


def test_a_broken_rule_is_refused_with_the_line_of_the_operator(served: ControlPlane, guarded: str) -> None:
    assert wrong_answers(partial(apply, served, guarded), LINES) == ""


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


def test_a_job_that_failed_its_validation_is_corrected_without_a_suspension(served: ControlPlane, guarded: str) -> None:
    name = "mnist-corrected"
    failed: JsonObject = {"type": "Failed", "status": "True", "reason": "TFJobFailedValidation"}
    assert apply(served, guarded, tfjob(name)) == ""
    set_status(served, guarded, {"conditions": [failed]}, name)
    assert apply(served, guarded, tfjob(name, Worker={"template": OTHER})) == ""
    set_status(served, guarded, {"conditions": [{**failed, "status": "False"}]}, name)
    assert "suspend the job first" in apply(served, guarded, tfjob(name))
    served.kubectl("delete", "tfjob", name, "-n", guarded)


def test_the_largest_job_that_the_operator_reads_is_within_what_the_api_server_computes(
    served: ControlPlane, guarded: str
) -> None:
    many: list[JsonValue] = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(900)]
    ports: list[JsonValue] = [{"containerPort": number} for number in range(1, 20)]
    roles = {each: role(1, container(env=many, ports=ports)) for each in ("Chief", "Worker", "PS", "Evaluator")}
    assert 200_000 < len(json.dumps(roles)) < MAX_SPEC_BYTES
    path = f"/apis/kubeflow.org/v1/namespaces/{guarded}/tfjobs"
    made = served.api.request("POST", path, tfjob("mnist-large", run_policy={"suspend": True}, **roles))
    object_at(object_at(made, "spec"), "runPolicy")["suspend"] = False
    served.api.request("PUT", f"{path}/mnist-large", made)
    served.kubectl("delete", "tfjob", "mnist-large", "-n", guarded)


def test_more_replicas_and_roles_are_no_change_of_pods(served: ControlPlane, guarded: str) -> None:
    assert apply(served, guarded, tfjob("mnist-more")) == ""
    assert apply(served, guarded, tfjob("mnist-more", Worker=role(3), Evaluator=role())) == ""


def test_a_job_stays_with_its_controller(served: ControlPlane, guarded: str) -> None:
    name, line = "mnist-managed", "spec.runPolicy.managedBy: cannot be changed: delete the job and create it again"
    assert apply(served, guarded, tfjob(name)) == ""
    assert line in apply(served, guarded, tfjob(name, run_policy={"managedBy": "kueue.x-k8s.io/multikueue"}))


def test_a_job_that_was_there_before_the_policy_can_be_labelled_and_deleted(served: ControlPlane, guarded: str) -> None:
    served.kubectl("label", "tfjob", "before", "a=b", "-n", guarded)
    assert REFUSED["two chiefs"][1] in apply(served, guarded, tfjob("before", Chief=role(2), Worker=role()))
    served.kubectl("delete", "tfjob", "before", "-n", guarded)


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


@pytest.mark.parametrize("quantity", ["lots", "8GB", "", "1e999999999", [1]])
def test_a_quantity_that_is_none_is_refused_as_by_the_offline_check(
    served: ControlPlane, namespace: str, quantity: JsonValue
) -> None:
    body = tfjob(Worker=role(1, container(resources={"limits": {"cpu": quantity}})))
    (line,) = map(str, validate(body))
    assert line.startswith("spec.tfReplicaSpecs.Worker.template.spec.containers[0].resources.limits.cpu: ")
    assert line.partition(": ")[2] in apply(served, namespace, body)


def test_so_is_one_of_the_resources_of_a_gang(served: ControlPlane, namespace: str) -> None:
    answer = apply(served, namespace, tfjob(run_policy={"schedulingPolicy": {"minResources": {"cpu": "lots"}}}))
    assert 'spec.runPolicy.schedulingPolicy.minResources.cpu: Invalid value: "lots"' in answer


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
