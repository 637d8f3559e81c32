"""What the chart renders and refuses where the operator runs TFJobs of Kubeflow."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dtj.api.json import JsonObject, dig, text
from dtj.api.tfjob.crd import custom_resource_definition
from dtj.kube.rbac import FOR_TFJOBS
from support.chart import (
    ALL_OF_TFJOBS,
    CHART,
    RELEASE,
    Granted,
    Helm,
    HelmError,
    arguments,
    granted,
    listed,
    of_kind,
    operator_rules,
)
from support.kubeflow import training_operator
from testbed import ControlPlane

# The tools are built by the first test that needs them.
pytestmark = pytest.mark.timeout(1200)

NAMESPACED: JsonObject = {"namespaces": ["team-a", "team-b"]}
TFJOBS: JsonObject = {"tfjob": {"enabled": True}}


def test_without_them_nothing_is_rendered_for_them(helm: Helm) -> None:
    assert "tfjob" not in helm.render({"crds": {"enabled": False}}).lower()


def test_the_crd_is_that_of_the_project_and_outlives_the_chart_unless_a_value_says_otherwise(helm: Helm) -> None:
    def crds(**crd: bool) -> list[JsonObject]:
        values: JsonObject = {"crds": {"enabled": False}, "tfjob": {"enabled": True, "crd": {**crd}}}
        return of_kind(helm.objects(values), "CustomResourceDefinition")

    (kept,) = crds()
    assert kept["spec"] == custom_resource_definition()["spec"]
    assert dig(kept, "metadata", "annotations") == {"helm.sh/resource-policy": "keep"}
    (going,) = crds(keep=False)
    assert dig(going, "metadata", "annotations", "helm.sh/resource-policy") is None
    assert crds(enabled=False) == []


def test_the_policy_is_bound_where_the_operator_runs_jobs(helm: Helm) -> None:
    (policy,) = of_kind(helm.objects(TFJOBS), "ValidatingAdmissionPolicy")
    (everywhere,) = of_kind(helm.objects(TFJOBS), "ValidatingAdmissionPolicyBinding")
    (some,) = of_kind(helm.objects({**NAMESPACED, **TFJOBS}), "ValidatingAdmissionPolicyBinding")
    assert dig(everywhere, "spec", "policyName") == dig(policy, "metadata", "name") == "dtj-system-dtj-tfjob"
    assert dig(everywhere, "spec", "matchResources") is None
    expressions = dig(some, "spec", "matchResources", "namespaceSelector", "matchExpressions")
    assert expressions == [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}]


def test_the_operator_is_told_what_the_values_say(helm: Helm) -> None:
    assert [word for word in arguments(helm.objects()) if "tfjob" in word] == []
    assert [word for word in arguments(helm.objects({"tfjob": ALL_OF_TFJOBS})) if "tfjob" in word] == [
        "--tfjobs",
        "--tfjob-clean-pod-policy=Running",
        "--tfjob-gang-scheduler=Volcano",
        "--tfjob-cluster-domain=cluster.local",
        "--tfjob-queues",
    ]


def test_users_get_their_rights_through_the_roles_of_kubernetes_and_of_kubeflow(helm: Helm) -> None:
    def roles(values: JsonObject) -> dict[str, set[str]]:
        bodies = {text(dig(body, "metadata", "name")): body for body in of_kind(helm.objects(values), "ClusterRole")}
        return {name: _aggregates_to(body) for name, body in bodies.items() if "tfjob" in name}

    assert roles(TFJOBS) == {
        "dtj-system-dtj-tfjob-view": {"view", "edit", "admin", "kubeflow-view", "kubeflow-edit", "kubeflow-admin"},
        "dtj-system-dtj-tfjob-edit": {"edit", "admin", "kubeflow-edit", "kubeflow-admin"},
    }
    assert roles({**TFJOBS, "rbac": {"userRoles": False}}) == {}


@pytest.mark.parametrize(
    ("refused", "changes"),
    [
        (True, {}),
        (True, {"args": ["--enable-scheme=pytorchjob", "--enable-scheme=TFJob"]}),
        (True, {"args": ["--enable-scheme", "tfjob"]}),
        (True, {"image": "registry.example/mirror:1", "labels": {"control-plane": "kubeflow-training-operator"}}),
        (False, {"args": ["--enable-scheme=pytorchjob", "--enable-scheme=mpijob"]}),
        (False, {"command": ["/manager", "-enable-scheme=pytorchjob"]}),
        (False, {"replicas": 0}),
        (False, {"image": "kubeflow/trainer-controller-manager:v2"}),
    ],
    ids=str,
)
def test_it_is_not_installed_beside_an_operator_that_serves_tfjobs(
    helm: Helm, cluster: ControlPlane, namespace: str, refused: bool, changes: dict[str, Any]
) -> None:
    here = replace(helm, kubeconfig=cluster.kubeconfig)
    # CRDs that are there already belong to no release.
    values: JsonObject = {"crds": {"enabled": False}, "tfjob": {"enabled": True, "crd": {"enabled": False}}}
    cluster.apply(training_operator(namespace, **changes))
    try:
        render = partial(here.run, "template", RELEASE, str(CHART), "--dry-run=server", values=values)
        if not refused:
            assert "--tfjobs" in render()
            return
        with pytest.raises(HelmError) as error:
            render()
        words = f"training-operator in namespace {namespace} still serves TFJobs: start it with --enable-scheme for"
        assert f"{words} its other kinds" in str(error.value)
    finally:
        cluster.kubectl("delete", "deployment", "training-operator", "-n", namespace)


def test_it_has_rights_to_tfjobs_where_it_runs_them(helm: Helm) -> None:
    rules = operator_rules(helm.objects({**NAMESPACED, **TFJOBS}))
    for namespace in ("team-a", "team-b"):
        more = granted(rules[namespace]) - granted(operator_rules(helm.objects(NAMESPACED))[namespace])
        assert more == listed(FOR_TFJOBS)
    finalizers = Granted("kubeflow.org", "tfjobs/finalizers", "update")
    assert finalizers in granted(
        operator_rules(helm.objects({**NAMESPACED, **TFJOBS, "rbac": {"blockOwnerDeletion": True}}))["team-a"]
    )


def _aggregates_to(role: JsonObject) -> set[str]:
    labels = dig(role, "metadata", "labels")
    assert isinstance(labels, dict)
    return {label.partition("aggregate-to-")[2] for label in labels if "aggregate-to-" in label}
