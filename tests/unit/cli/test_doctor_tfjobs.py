"""What ``dtj doctor`` says of TFJobs of Kubeflow."""

from __future__ import annotations

from typing import Any

import pytest

from dtj.api.json import JsonObject
from dtj.cli.doctor.checks import findings
from dtj.client.installation import Installation
from dtj.client.kubeflow import Kubeflow
from dtj.client.overview import Part
from support.installations import installation, operator, wrong
from support.kubeflow import training_operator

OTHER_KINDS = training_operator(args=["--enable-scheme=pytorchjob", "--enable-scheme=mpijob"])


def webhook(name: str = "validator.tfjob.training-operator.kubeflow.org", **changes: object) -> JsonObject:
    service: JsonObject = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate"}
    entry: JsonObject = {"name": name, "failurePolicy": "Fail", "clientConfig": {"service": service}, **changes}  # type: ignore[dict-item]
    return {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": [entry]}


def cluster(**changes: Any) -> Installation:
    """One with an operator that runs TFJobs, that is well but for ``changes``."""
    well: dict[str, Any] = {
        "keeps_record": Part((True,)),
        "deployments": Part((OTHER_KINDS,)),
        "webhooks": Part((webhook("validator.pytorchjob.training-operator.kubeflow.org"),)),
    }
    return installation(operator("--tfjobs"), kubeflow=Kubeflow(**{**well, **changes}))


def test_nothing_is_said_where_no_operator_runs_them() -> None:
    assert [finding for finding in findings(installation()) if finding.title == "TFJobs"] == []
    assert not operator().runs_tfjobs
    assert operator("--tfjobs").runs_tfjobs


def test_a_cluster_that_is_well_has_nothing_to_fix() -> None:
    assert [finding.words for finding in findings(cluster()) if finding.title == "TFJobs"] == [
        "the CRD tfjobs.kubeflow.org has a place for the operator's record",
        "no training-operator serves TFJobs",
    ]


REPLACED = "; do: helm upgrade with tfjob.crd.enabled=true and --take-ownership"
UNREAD: Any = Part(unread="it is forbidden")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"keeps_record": Part()}, f"fail TFJobs: there is no CRD tfjobs.kubeflow.org{REPLACED}"),
        (
            {"keeps_record": Part((False,))},
            f"fail TFJobs: the CRD tfjobs.kubeflow.org drops status.dtj: the operator runs no TFJob{REPLACED}",
        ),
        ({"keeps_record": UNREAD}, "not checked TFJobs: it is forbidden"),
        ({"deployments": UNREAD}, "not checked TFJobs: whether a training-operator serves TFJobs: it is forbidden"),
        ({"webhooks": UNREAD}, "not checked TFJobs: whether a webhook refuses TFJobs: it is forbidden"),
    ],
    ids=["no CRD", "a CRD that drops the record", "a CRD unread", "Deployments unread", "webhooks unread"],
)
def test_what_the_operator_cannot_work_with_or_may_not_be_read_is_named(changes: dict[str, Any], line: str) -> None:
    assert wrong(cluster(**changes)) == [line]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"args": ["--enable-scheme=pytorchjob", "--enable-scheme=TFJob"]},
        {"command": ["/manager", "-enable-scheme", "tfjob"]},
        {"image": "registry.example/mirror:1", "labels": {"control-plane": "kubeflow-training-operator"}},
    ],
    ids=str,
)
def test_a_training_operator_that_serves_them_too_is_found(changes: dict[str, Any]) -> None:
    assert wrong(cluster(deployments=Part((training_operator(**changes),)), webhooks=Part((webhook(),)))) == [
        "fail TFJobs: training-operator in namespace kubeflow still serves TFJobs: both make the pods of each; do: "
        "start it with --enable-scheme for its other kinds, or scale it to 0"
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"args": ["--enable-scheme=pytorchjob"]},
        {"args": ["-enable-scheme", "xgboostjob"]},
        {"replicas": 0},
        {"image": "kubeflow/trainer-controller-manager:v2"},
    ],
    ids=str,
)
def test_one_that_does_not_is_no_matter(changes: dict[str, Any]) -> None:
    assert wrong(cluster(deployments=Part((training_operator(**changes),)))) == []


@pytest.mark.parametrize(
    "deployments", [(), (OTHER_KINDS,), (training_operator("elsewhere"),)], ids=["none", "other kinds", "elsewhere"]
)
def test_a_webhook_that_nobody_answers_is_to_be_removed(deployments: tuple[JsonObject, ...]) -> None:
    assert wrong(cluster(deployments=Part(deployments), webhooks=Part((webhook(),))))[-1] == (
        "fail TFJobs: the webhook validator.tfjob.training-operator.kubeflow.org refuses each TFJob: no "
        "training-operator answers it; do: remove its entry: kubectl edit validatingwebhookconfiguration "
        "validator.training-operator.kubeflow.org"
    )


def test_a_webhook_that_is_asked_in_vain_without_harm_is_no_matter() -> None:
    assert wrong(cluster(webhooks=Part((webhook(failurePolicy="Ignore"),)))) == []
