"""What ``dtj doctor`` says of TFJobs of Kubeflow."""

from __future__ import annotations

from typing import Any

import pytest

from dtj.api.json import JsonObject
from dtj.cli.doctor.checks import findings
from dtj.cli.doctor.findings import Finding, Verdict
from dtj.client.kubeflow import Kubeflow
from dtj.client.overview import Part
from support.installations import installation, operator
from support.kubeflow import training_operator

OTHER_KINDS = training_operator(args=["--enable-scheme=pytorchjob", "--enable-scheme=mpijob"])


def webhook(name: str = "validator.tfjob.training-operator.kubeflow.org", **changes: object) -> JsonObject:
    service: JsonObject = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate"}
    entry: JsonObject = {"name": name, "failurePolicy": "Fail", "clientConfig": {"service": service}, **changes}  # type: ignore[dict-item]
    return {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": [entry]}


def said(**changes: Any) -> list[Finding]:
    """What is said of TFJobs in a cluster that is well but for ``changes``."""
    well: dict[str, Any] = {
        "keeps_record": Part((True,)),
        "deployments": Part((OTHER_KINDS,)),
        "webhooks": Part((webhook("validator.pytorchjob.training-operator.kubeflow.org"),)),
    }
    found = findings(installation(operator("--tfjobs"), kubeflow=Kubeflow(**{**well, **changes})))
    return [finding for finding in found if finding.title == "TFJobs"]


def bad(**changes: Any) -> Finding:
    (finding,) = (each for each in said(**changes) if each.verdict is not Verdict.OK)
    return finding


def test_nothing_is_said_where_no_operator_runs_them() -> None:
    assert [finding for finding in findings(installation()) if finding.title == "TFJobs"] == []
    assert not operator().runs_tfjobs
    assert operator("--tfjobs").runs_tfjobs


def test_a_cluster_that_is_well_has_nothing_to_fix() -> None:
    assert [(finding.verdict, finding.words) for finding in said()] == [
        (Verdict.OK, "the CRD tfjobs.kubeflow.org has a place for the operator's record"),
        (Verdict.OK, "no training-operator serves TFJobs"),
    ]


def test_a_crd_that_is_missing_or_drops_the_record_is_replaced_by_helm() -> None:
    missing, dropping = bad(keeps_record=Part()), bad(keeps_record=Part((False,)))
    assert (missing.verdict, missing.words) == (Verdict.FAIL, "there is no CRD tfjobs.kubeflow.org")
    assert dropping.words == "the CRD tfjobs.kubeflow.org drops status.dtj: the operator runs no TFJob"
    assert missing.remedy == dropping.remedy == "helm upgrade with tfjob.crd.enabled=true and --take-ownership"


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
    finding = bad(deployments=Part((training_operator(**changes),)), webhooks=Part((webhook(),)))
    assert finding.verdict is Verdict.FAIL
    assert finding.words == "training-operator in namespace kubeflow still serves TFJobs: both make the pods of each"
    assert finding.remedy == "start it with --enable-scheme for its other kinds, or scale it to 0"


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
    assert [finding.verdict for finding in said(deployments=Part((training_operator(**changes),)))] == [
        Verdict.OK,
        Verdict.OK,
    ]


@pytest.mark.parametrize(
    "deployments", [(), (OTHER_KINDS,), (training_operator("elsewhere"),)], ids=["none", "other kinds", "elsewhere"]
)
def test_a_webhook_that_nobody_answers_is_to_be_removed(deployments: tuple[JsonObject, ...]) -> None:
    found = said(deployments=Part(deployments), webhooks=Part((webhook(),)))
    (finding,) = (each for each in found if "webhook" in each.words)
    assert finding.words == (
        "the webhook validator.tfjob.training-operator.kubeflow.org refuses each TFJob: no training-operator answers it"
    )
    assert finding.remedy == (
        "remove its entry: kubectl edit validatingwebhookconfiguration validator.training-operator.kubeflow.org"
    )


def test_a_webhook_that_is_asked_in_vain_without_harm_is_no_matter() -> None:
    assert {finding.verdict for finding in said(webhooks=Part((webhook(failurePolicy="Ignore"),)))} == {Verdict.OK}


def test_what_may_not_be_read_is_not_checked() -> None:
    for changes in ("keeps_record", "deployments", "webhooks"):
        finding = bad(**{changes: Part(unread="it is forbidden")})
        assert finding.verdict is Verdict.UNKNOWN
        assert "it is forbidden" in finding.words
