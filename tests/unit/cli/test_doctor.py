"""What ``dtj doctor`` makes of what it found."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import NOW
from dtj import __version__
from dtj.api.crd import custom_resource_definition
from dtj.api.json import JsonObject, dig, object_at
from dtj.cli.doctor.checks import OLDEST_KUBERNETES, findings
from dtj.cli.doctor.findings import Finding, Verdict, report
from dtj.client.installation import OF_A_PERSON, Answered, Installation, LeaseSeen, Operator
from dtj.client.kubeflow import Kubeflow
from dtj.client.overview import Part
from dtj.core.admission.scheduler_choice import APIS
from dtj.kube.rbac import FOR_GANGS, FOR_KUEUE
from support.kubeflow import training_operator
from support.screens import seen

CHART = Path(__file__).resolve().parents[3] / "charts" / "dtj" / "Chart.yaml"
KUEUE = Part(tuple(api for api in APIS if api.gang == "Kueue"))


def operator(
    *args: str, name: str = "dtj", ready: int = 2, renewed: float = 1, profiles: str = "", denied: str = ""
) -> Operator:
    """One with two pods, whose lease was renewed so many seconds ago, and which is denied what has this path."""
    labels: JsonObject = {"app.kubernetes.io/version": __version__}
    container: JsonObject = {"name": "operator", "args": ["--lease-namespace=dtj-system", "--lease-name=dtj", *args]}
    deployment: JsonObject = {
        "metadata": {"name": name, "namespace": "dtj-system", "labels": labels},
        "spec": {"replicas": 2, "template": {"spec": {"serviceAccountName": "dtj", "containers": [container]}}},
        "status": {"readyReplicas": ready},
    }
    lease = LeaseSeen("dtj-0", NOW - timedelta(seconds=renewed), moved=False)
    found = Operator(deployment, Part((lease,)), profiles=Part((profiles,) if profiles else ()))
    rights = (*found.rules, *FOR_KUEUE, *(right for rights in FOR_GANGS.values() for right in rights))
    return replace(found, rights=Part(tuple(Answered(each, each.path != denied, each.verbs[0]) for each in rights)))


def node(resource: str = "", labels: JsonObject | None = None) -> JsonObject:
    return {
        "metadata": {"name": "a", "labels": labels or {}},
        "status": {"allocatable": {resource: "4"} if resource else {}},
    }


def installation(*operators: Operator, **changes: object) -> Installation:
    """One in which nothing is wrong."""
    healthy = Installation(
        server="https://api:6443",
        namespace="team-a",
        at=NOW,
        version="v1.33.1",
        served=True,
        crd=Part((custom_resource_definition(),)),
        operators=Part(operators or (operator(),)),
        rights=Part(tuple(Answered(right, allowed=True) for right in OF_A_PERSON)),
        nodes=Part((node(),)),
        gangs=Part(),
        unknown_gangs=(),
        refusal=Part(),
    )
    return replace(healthy, **changes)  # type: ignore[arg-type]


def wrong(found: Installation) -> list[str]:
    """What the doctor says of all that is not well: verdict, title, words and remedy."""
    return [
        f"{finding.verdict} {finding.title}: {finding.words}" + (f"; do: {finding.remedy}" if finding.remedy else "")
        for finding in findings(found)
        if finding.verdict is not Verdict.OK
    ]


def leased(**lease: object) -> Operator:
    """An operator whose lease was seen so."""
    seen_so = LeaseSeen("dtj-0", **{"renewed_at": NOW, "moved": False, **lease})  # type: ignore[arg-type]
    return replace(operator(), lease=Part((seen_so,)))


def profiled(profiles: str, **changes: object) -> Installation:
    """An operator with accelerator profiles of its own."""
    return installation(operator(profiles=profiles), **changes)


def refused(*verbs: str) -> Installation:
    """A person who may not do this to jobs and what belongs to them."""
    rights = (Answered(right, right.verbs[0] not in verbs, right.verbs[0]) for right in OF_A_PERSON)
    return installation(rights=Part(tuple(rights)))


def crd_with(**spec: JsonObject) -> JsonObject:
    """Our CRD, in whose schema of the spec these fields are changed."""
    crd = copy.deepcopy(custom_resource_definition())
    fields = dig(crd, "spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec", "properties")
    assert isinstance(fields, dict)
    for name, change in spec.items():
        fields[name] = {**object_at(fields, name), **change}
    return crd


H200 = "- {name: h200, resource: nvidia.com/gpu, nodeSelector: {gpu: h200}}"
UNLIKE_OURS = f"warn CRD: its schema of v1alpha1 differs from that of dtj {__version__}"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            "fail cluster: https://api:6443 answers: Kubernetes v1.29.4-gke.1; 1.30",
            installation(version="v1.29.4-gke.1"),
        ),
        (
            "fail CRD: DistributedTrainingJob is unknown to the cluster; do: helm upgrade --install dtj charts/dtj, or",
            installation(served=False, crd=Part(unread="not found"), refusal=Part()),
        ),
        (UNLIKE_OURS, installation(crd=Part((crd_with(description={"type": "string"}),)))),
        (UNLIKE_OURS, installation(crd=Part(({"spec": {"versions": [{"name": "v2"}]}},)))),
        ("fail operator: dtj-system/dtj: 0 of 2 pods are ready", installation(operator(ready=0))),
        ("warn operator: dtj-system/dtj: 1 of 2 pods are ready", installation(operator(ready=1))),
        ("fail operator: this cluster has no Deployment of an operator", installation(operators=Part())),
        (
            "fail operator: namespace elsewhere has no Deployment of an operator; do: give --operator-namespace",
            installation(operators=Part(), operator_namespace="elsewhere"),
        ),
        (
            "fail operator: no operator runs the jobs of team-a: dtj-system/dtj runs the jobs of team-b, team-c",
            installation(operator("--namespace=team-b", "--namespace=team-c")),
        ),
        (
            "fail operator: dtj-system/dtj and dtj-system/other all run the jobs of namespace team-a",
            installation(operator(), operator(name="other")),
        ),
        (
            "fail leader: dtj-0 holds the lease of dtj-system/dtj, renewed 5m00s ago: no operator is working",
            installation(operator(renewed=300)),
        ),
        (
            "warn leader: the API server answers calls of dtj-0 with 429 (Too Many Requests): it makes fewer of them; "
            "do: give its service account a FlowSchema",
            installation(leased(throttled=True)),
        ),
        (
            "fail operator's rights: dtj-system/dtj may not list persistentvolumeclaims (for checkpoint.claimTemplate)",
            installation(operator(denied="persistentvolumeclaims")),
        ),
        (
            "fail operator's rights: dtj-system/dtj may not get networkpolicies (to let nobody but a job's own pods",
            installation(operator("--network-policies={}", denied="networkpolicies")),
        ),
        (
            "warn your rights: in namespace team-a you may not create distributedtrainingjobs (to submit them)",
            refused("create"),
        ),
        (
            "fail your rights: in namespace team-a you may not get distributedtrainingjobs (to see jobs), create",
            refused("get", "create"),
        ),
        (
            "warn gang schedulers: the cluster has Kueue (kueue.x-k8s.io/v1beta2), but dtj-system/dtj lacks the "
            "permission to use it; do: add Kueue to gangSchedulers of its chart",
            installation(operator(denied="workloads"), gangs=KUEUE),
        ),
        (
            f"warn gang schedulers: the cluster serves kueue.x-k8s.io/v2, which dtj {__version__} does not know; do: "
            "upgrade what is older",
            installation(unknown_gangs=("kueue.x-k8s.io/v2",)),
        ),
        ("warn accelerators: profile h200 matches no node", profiled(H200)),
        ("fail accelerators: accelerator profiles of dtj-system/dtj: profiles[0].name: ", profiled("- {nme: h200}")),
        (
            "warn accelerators: profile gke-nvidia-l4: 1 node with its labels, but no nvidia.com/gpu on any; do: ",
            installation(nodes=Part((node(labels={"cloud.google.com/gke-accelerator": "nvidia-l4"}),))),
        ),
        (
            "fail submitting: a small job is refused: a webhook denied it",
            installation(refusal=Part(("a webhook denied it",))),
        ),
        (
            "warn gang schedulers: dtj-system/dtj may not get resourceflavors (to send pods where Kueue admitted them "
            "to; without it none starts); do: bind a ClusterRole with get on resourceflavors",
            installation(operator(denied="resourceflavors"), gangs=KUEUE),
        ),
    ],
)
def test_what_is_not_well_is_one_line_with_what_to_do(line: str, found: Installation) -> None:
    (said,) = wrong(found)
    assert said.startswith(line)
    assert "; do: " in said or said.startswith("not checked ")


@pytest.mark.parametrize(
    "found",
    [
        installation(),
        installation(crd=Part((crd_with(strategy={"description": "other words"}),))),
        installation(leased(renewed_at=NOW - timedelta(days=1), moved=True)),
        installation(gangs=KUEUE),
        profiled(H200, nodes=Part((node("nvidia.com/gpu", {"gpu": "h200"}),))),
    ],
    ids=[
        "healthy",
        "a CRD described otherwise",
        "a lease that changes",
        "Kueue that may be used",
        "nodes of a profile",
    ],
)
def test_what_is_well_has_nothing_to_fix(found: Installation) -> None:
    assert wrong(found) == []


def test_what_cannot_be_asked_is_not_checked_and_not_a_failure() -> None:
    blind = {"crd", "operators", "nodes", "gangs", "refusal"}
    lines = wrong(installation(**{part: Part(unread=f"{part} is forbidden") for part in blind}))
    assert len(lines) == len(blind)
    assert all(line.startswith("not checked ") for line in lines)
    unseen = replace(operator(), rights=Part(unread="rights are forbidden"))
    assert wrong(installation(unseen, gangs=KUEUE))[1].startswith("not checked gang schedulers: the cluster has Kueue ")


def test_a_lease_in_the_namespace_that_the_kubelet_fills_in_is_looked_for_beside_the_operator() -> None:
    container: JsonObject = {"args": ["--lease-namespace=$(POD_NAMESPACE)", "--lease-name=dtj"]}
    spec: JsonObject = {"template": {"spec": {"containers": [container]}}}
    assert Operator({"metadata": {"namespace": "operators"}, "spec": spec}).lease_key == ("operators", "dtj")


def test_the_oldest_kubernetes_is_that_of_the_chart() -> None:
    wanted = yaml.safe_load(CHART.read_text())["kubeVersion"]
    assert wanted == ">=" + ".".join(map(str, OLDEST_KUBERNETES)) + ".0-0"


@pytest.mark.parametrize("width", [50, 80])
def test_the_report_fits_the_terminal_and_counts(width: int) -> None:
    found = findings(installation(operator(ready=0), nodes=Part(unread="nodes is forbidden")))
    lines = seen(*report(found, wrapped=True), width=width).splitlines()
    assert all(len(line) <= width for line in lines)
    assert lines[-1].strip() == "7 ok, 1 fail, 1 not checked"
    assert any(line.startswith("not checked  accelerators: nodes is forbidden") for line in lines)


def test_without_a_terminal_no_line_is_broken() -> None:
    long = Finding(Verdict.FAIL, "nobody " * 30, "look " * 30, title="leader")
    first, second, last = seen(*report([long], wrapped=False), width=40, soft_wrap=True).splitlines()
    assert first.startswith("fail         leader: nobody nobody")
    assert second.startswith("             do: look look")
    assert last == "1 fail"


OTHER_KINDS = training_operator(args=["--enable-scheme=pytorchjob", "--enable-scheme=mpijob"])


def webhook(name: str = "validator.tfjob.training-operator.kubeflow.org", **changes: object) -> JsonObject:
    service: JsonObject = {"name": "training-operator", "namespace": "kubeflow", "path": "/validate"}
    entry: JsonObject = {"name": name, "failurePolicy": "Fail", "clientConfig": {"service": service}, **changes}  # type: ignore[dict-item]
    return {"metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": [entry]}


def with_tfjobs(**changes: Any) -> Installation:
    """One with an operator that runs TFJobs, that is well but for ``changes``."""
    well: dict[str, Any] = {
        "keeps_record": Part((True,)),
        "deployments": Part((OTHER_KINDS,)),
        "webhooks": Part((webhook("validator.pytorchjob.training-operator.kubeflow.org"),)),
    }
    return installation(operator("--tfjobs"), kubeflow=Kubeflow(**{**well, **changes}))


def test_nothing_is_said_of_tfjobs_where_no_operator_runs_them() -> None:
    assert [finding for finding in findings(installation()) if finding.title == "TFJobs"] == []
    assert not operator().runs_tfjobs
    assert operator("--tfjobs").runs_tfjobs


def test_tfjobs_that_can_run_have_nothing_to_fix() -> None:
    assert [finding.words for finding in findings(with_tfjobs()) if finding.title == "TFJobs"] == [
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
def test_what_keeps_tfjobs_from_running_or_may_not_be_read_is_named(changes: dict[str, Any], line: str) -> None:
    assert wrong(with_tfjobs(**changes)) == [line]


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
def test_a_training_operator_that_serves_tfjobs_too_is_found(changes: dict[str, Any]) -> None:
    assert wrong(with_tfjobs(deployments=Part((training_operator(**changes),)), webhooks=Part((webhook(),)))) == [
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
def test_a_training_operator_that_does_not_is_no_matter(changes: dict[str, Any]) -> None:
    assert wrong(with_tfjobs(deployments=Part((training_operator(**changes),)))) == []


@pytest.mark.parametrize(
    "deployments", [(), (OTHER_KINDS,), (training_operator("elsewhere"),)], ids=["none", "other kinds", "elsewhere"]
)
def test_a_webhook_that_nobody_answers_is_to_be_removed(deployments: tuple[JsonObject, ...]) -> None:
    assert wrong(with_tfjobs(deployments=Part(deployments), webhooks=Part((webhook(),))))[-1] == (
        "fail TFJobs: the webhook validator.tfjob.training-operator.kubeflow.org refuses each TFJob: no "
        "training-operator answers it; do: remove its entry: kubectl edit validatingwebhookconfiguration "
        "validator.training-operator.kubeflow.org"
    )


def test_a_webhook_that_is_asked_in_vain_without_harm_is_no_matter() -> None:
    assert wrong(with_tfjobs(webhooks=Part((webhook(failurePolicy="Ignore"),)))) == []
