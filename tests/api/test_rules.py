"""A real API server refuses what `dtj validate` refuses, in the same words."""

from __future__ import annotations

import json
from functools import partial

import pytest

from bad_manifests import RULE_BREAKERS, SCHEMA_BREAKERS
from bad_pods import resources
from builders import manifest
from dtj.api.json import JsonObject
from dtj.api.validation import validate
from support.job_world import JobWorld
from support.server_answers import apply, wrong_answers
from testbed import ApiError, ControlPlane

TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "other"}]}}


def test_a_broken_rule_is_refused_with_the_message_of_the_offline_check(cluster: ControlPlane, namespace: str) -> None:
    cases = {
        case: (body, [words for v in validate(body) for words in (v.field, v.message)])
        for case, body in RULE_BREAKERS.items()
    }
    assert wrong_answers(partial(apply, cluster, namespace), cases) == ""


def test_wrong_types_and_ranges_are_refused_with_the_message_of_the_offline_check(
    cluster: ControlPlane, namespace: str
) -> None:
    cases = {
        case: (body, [v.message.partition("; ")[0] for v in validate(body)]) for case, body in SCHEMA_BREAKERS.items()
    }
    assert wrong_answers(partial(apply, cluster, namespace), cases) == ""


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
        ("managedBy", {"managedBy": "example.com/other"}),
    ],
)
def test_a_field_that_is_fixed_cannot_be_changed(
    cluster: ControlPlane, namespace: str, field: str, change: dict[str, object]
) -> None:
    assert apply(cluster, namespace, manifest(roles={"worker": 1})) == ""
    answer = apply(cluster, namespace, manifest(**{"roles": {"worker": 1}, **change}))  # type: ignore[arg-type]
    assert f"spec.{field}" in answer
    assert f"{field.rpartition('.')[2]} cannot be changed: delete the job and create it again" in answer


@pytest.mark.parametrize(
    ("answer", "change"),
    [
        ("template cannot be changed", {"template": TEMPLATE}),
        ("accelerator cannot be changed", {"accelerator": {"profile": "nvidia-l4"}}),
        ("communication cannot be changed", {"communication": "Ring"}),
        ("args of a role cannot be changed", {"replicaSpecs": {"worker": {"replicas": 1, "args": ["--epochs=9"]}}}),
        ("template of a role cannot be changed", {"replicaSpecs": {"worker": {"replicas": 1, "template": TEMPLATE}}}),
    ],
)
def test_what_makes_pods_can_be_changed_while_a_job_is_suspended_alone(
    cluster: ControlPlane, namespace: str, answer: str, change: dict[str, object]
) -> None:
    running, suspended = {"suspend": False}, {"suspend": True}
    before: dict[str, object] = {"roles": {"worker": 1}}
    assert apply(cluster, namespace, manifest(**before, runPolicy=running)) == ""  # type: ignore[arg-type]
    assert answer in apply(cluster, namespace, manifest(**{**before, **change}, runPolicy=running))  # type: ignore[arg-type]
    assert apply(cluster, namespace, manifest(**before, runPolicy=suspended)) == ""  # type: ignore[arg-type]
    assert apply(cluster, namespace, manifest(**{**before, **change}, runPolicy=running)) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"template": TEMPLATE},
        {"accelerator": {"profile": "nvidia-l4"}},
        {"replicaSpecs": {"worker": {"replicas": 1, "args": ["--epochs=9"]}}},
    ],
)
def test_what_makes_pods_can_be_corrected_in_a_job_that_has_none_because_it_is_wrong(
    cluster: ControlPlane, namespace: str, change: dict[str, object]
) -> None:
    job, before = JobWorld(cluster, namespace), manifest(roles={"worker": 1})
    assert apply(cluster, namespace, before) == ""
    wrong: JsonObject = {
        "type": "Invalid",
        "status": "True",
        "reason": "TemplateRejected",
        "message": "no",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    job.patch({"status": {"conditions": [wrong], "startTime": "2026-01-02T03:04:05Z"}}, subresource="status")
    corrected = manifest(**{"roles": {"worker": 1}, **change})  # type: ignore[arg-type]
    assert "cannot be changed while the job runs" in apply(cluster, namespace, corrected)
    job.patch({"status": {"startTime": None}}, subresource="status")
    assert apply(cluster, namespace, corrected) == ""


def test_what_makes_pods_cannot_be_changed_before_a_suspended_job_has_stopped(
    cluster: ControlPlane, namespace: str
) -> None:
    """The operator may be away, or late: it would find the job resumed, with another template and the same pods."""
    job = JobWorld(cluster, namespace)
    before: dict[str, object] = {"strategy": "ParameterServer", "roles": {"worker": 2, "ps": 1}}
    other_role = {"worker": {"replicas": 2, "args": ["--epochs=9"]}, "ps": {"replicas": 1}}
    changes: list[dict[str, object]] = [
        {"template": TEMPLATE},
        {"accelerator": {"profile": "nvidia-l4"}},
        {"replicaSpecs": other_role},
    ]
    assert apply(cluster, namespace, manifest(**before)) == ""  # type: ignore[arg-type]
    job.patch({"status": {"startTime": "2026-01-02T03:04:05Z"}}, subresource="status")
    assert apply(cluster, namespace, manifest(**before, runPolicy={"suspend": True})) == ""  # type: ignore[arg-type]
    for change in changes:
        for suspend in (True, False):
            changed = manifest(**{**before, **change}, runPolicy={"suspend": suspend})  # type: ignore[arg-type]
            answer = apply(cluster, namespace, changed)
            assert "before the job has stopped: wait until the condition Suspended is True, then change them" in answer
    job.patch({"status": {"startTime": None}}, subresource="status")
    for change in changes:
        changed = manifest(**{**before, **change}, runPolicy={"suspend": True})  # type: ignore[arg-type]
        assert apply(cluster, namespace, changed) == ""


@pytest.mark.parametrize("suspend", [False, True])
@pytest.mark.parametrize(
    "change", [{"template": TEMPLATE}, {"replicaSpecs": {"worker": {"replicas": 1, "args": ["--epochs=9"]}}}]
)
def test_a_job_that_has_ended_is_to_be_created_again_and_not_to_be_suspended(
    cluster: ControlPlane, namespace: str, suspend: bool, change: dict[str, object]
) -> None:
    before: dict[str, object] = {"roles": {"worker": 1}}
    assert apply(cluster, namespace, manifest(**before)) == ""  # type: ignore[arg-type]
    ended: JsonObject = {"startTime": "2026-01-02T03:04:05Z", "completionTime": "2026-01-02T03:05:05Z"}
    JobWorld(cluster, namespace).patch({"status": ended}, subresource="status")
    run_policy = {"suspend": suspend}
    assert apply(cluster, namespace, manifest(**before, runPolicy=run_policy)) == ""  # type: ignore[arg-type]
    answer = apply(cluster, namespace, manifest(**{**before, **change}, runPolicy=run_policy))  # type: ignore[arg-type]
    assert "the job has ended: delete it and create it again" in answer
    assert "suspend the job first" not in answer
    assert "the condition Suspended" not in answer


@pytest.mark.parametrize("quantity", ["8", 8, 0.5, "500m", "1.5Gi", ".5Gi", "5.", "+5", "1e3", "1E-3", "12E", " 8Gi "])
def test_what_kubernetes_takes_for_a_quantity_is_taken(
    cluster: ControlPlane, namespace: str, quantity: str | float
) -> None:
    """By this CRD, and by the pods' own API, in a dry run."""
    spec = resources({"memory": quantity})
    assert validate(manifest(template={"spec": spec})) == ()
    assert apply(cluster, namespace, manifest(template={"spec": spec})) == ""
    JobWorld(cluster, namespace).create("pods?dryRun=All", {"metadata": {"name": "a"}, "spec": spec})


@pytest.mark.parametrize("quantity", ["8 gigs", "8GB", "1K", "1e", "1e3.5", "0x8", "--8", "-8", "8ki"])
def test_what_kubernetes_does_not_take_for_a_quantity_is_refused(
    cluster: ControlPlane, namespace: str, quantity: str
) -> None:
    spec = resources({"memory": quantity})
    assert "in body should match" in apply(cluster, namespace, manifest(template={"spec": spec}))
    with pytest.raises(ApiError):
        JobWorld(cluster, namespace).create("pods?dryRun=All", {"metadata": {"name": "a"}, "spec": spec})


def test_a_whole_number_written_with_a_point_is_an_integer_to_kubectl(cluster: ControlPlane, namespace: str) -> None:
    """It sends 2. An API server that gets 2.0 refuses it, so that our client must not send that."""
    body = manifest(replicaSpecs={"worker": {"replicas": 2.0}})
    assert '"replicas": 2.0' in json.dumps(body)
    assert apply(cluster, namespace, body) == ""


def test_roles_cannot_come_and_go(cluster: ControlPlane, namespace: str) -> None:
    assert apply(cluster, namespace, manifest(roles={"worker": 1})) == ""
    more = apply(cluster, namespace, manifest(roles={"worker": 1, "evaluator": 1}))
    other = apply(cluster, namespace, manifest(roles={"chief": 1}))
    assert "roles cannot be added or removed: delete the job and create it again" in more
    assert "roles cannot be added or removed: delete the job and create it again" in other


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
            answer = self.scale(cluster, namespace, beyond)
            assert "worker.replicas must be from elastic.minReplicas to elastic.maxReplicas" in answer
        shown = cluster.kubectl(
            "get", "-n", namespace, "dtj/digits", "-o", "jsonpath={.spec.replicaSpecs.worker.replicas}"
        )
        assert shown.stdout == "4"

    def test_applying_an_elastic_job_again_scales_it_too(self, cluster: ControlPlane, namespace: str) -> None:
        elastic = {"maxReplicas": 4}
        assert apply(cluster, namespace, manifest(roles={"worker": 2}, elastic=elastic)) == ""
        assert apply(cluster, namespace, manifest(roles={"worker": 3}, elastic=elastic)) == ""

    def test_other_jobs_and_other_roles_keep_their_numbers(self, cluster: ControlPlane, namespace: str) -> None:
        assert apply(cluster, namespace, manifest(roles={"worker": 2})) == ""
        assert "only the workers of an elastic job can be scaled" in self.scale(cluster, namespace, 3)
        servers = {"name": "servers", "strategy": "ParameterServer", "elastic": {"maxReplicas": 4}}
        assert apply(cluster, namespace, manifest(**servers, roles={"chief": 1, "worker": 2, "ps": 1})) == ""  # type: ignore[arg-type]
        answer = apply(cluster, namespace, manifest(**servers, roles={"chief": 1, "worker": 2, "ps": 2}))  # type: ignore[arg-type]
        assert "only the workers of an elastic job can be scaled" in answer


def test_applying_the_same_manifest_again_changes_nothing(cluster: ControlPlane, namespace: str) -> None:
    body = manifest(roles={"worker": 1})
    world = JobWorld(cluster, namespace)
    assert apply(cluster, namespace, body) == ""
    before = world.body()
    assert apply(cluster, namespace, body) == ""
    assert world.body()["metadata"] == before["metadata"]


def test_a_field_of_a_pod_that_the_crd_does_not_know_is_named_and_never_stored(
    cluster: ControlPlane, namespace: str
) -> None:
    template = {"spec": {"containers": [{"name": "trainer", "image": "x"}], "fieldOfTomorrow": {"a": 1}}}
    body = manifest(template=template)
    assert 'unknown field "spec.template.spec.fieldOfTomorrow"' in apply(cluster, namespace, body)
    cluster.kubectl("apply", "-n", namespace, "--validate=ignore", "-f", "-", stdin=json.dumps(body))
    assert "fieldOfTomorrow" not in json.dumps(JobWorld(cluster, namespace).body()["spec"])
