"""What an API server has against the objects of a job is told with the fields of its manifest."""

from __future__ import annotations

import asyncio

import pytest

from bad_pods import pod
from builders import CLAIM_TEMPLATE, manifest
from dtj.api.json import JsonObject, dig
from dtj.client.checks import manifests_of
from dtj.client.server_check import ServerCheck, check_on_server
from dtj.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, Unavailable
from dtj.kube.gateway import CLAIMS, JOBS, PODS, Resource
from support.fake_gateway import FakeGateway

WORKER, CHIEF = "digits-worker-0", "digits-chief-0"


def check(body: JsonObject, *answers: tuple[Resource, ApiError, str]) -> tuple[ServerCheck, FakeGateway]:
    """What is found if the next calls for objects with these names have these answers."""
    gateway = FakeGateway()
    for resource, error, name in answers:
        gateway.fail("create", resource, error, name=name)
    (job,) = manifests_of(body)
    return asyncio.run(check_on_server(gateway, job, namespace="default")), gateway


def told(body: JsonObject, *causes: str, name: str = WORKER, resource: Resource = PODS) -> list[str]:
    """The fields of the manifest that stand for those of an object."""
    error = Invalid("it is invalid", status=422, causes=tuple(f"{cause}: wrong" for cause in causes))
    return [line.removesuffix(": wrong") for line in check(body, (resource, error, name))[0].problems]


def test_the_job_a_pod_of_each_role_and_all_that_they_share_are_asked_for_and_nothing_is_created() -> None:
    body = manifest(
        roles={"chief": 1, "worker": 3}, checkpoint={"claimTemplate": CLAIM_TEMPLATE}, tensorBoard={"image": "t"}
    )
    found, gateway = check(body)
    assert found == ServerCheck()
    assert sorted(map(str, gateway.calls)) == [
        "create distributedtrainingjobs digits",
        "create persistentvolumeclaims digits-checkpoint",
        "create pods digits-chief-0",
        "create pods digits-tensorboard",
        "create pods digits-worker-0",
        "create services digits",
    ]
    assert all(call.dry_run and dig(call.body, "metadata", "ownerReferences") is None for call in gateway.calls)


def test_a_field_of_a_pod_is_told_as_that_of_its_template() -> None:
    sidecars = {"containers": [{"name": "b", "image": "x"}, {"name": "trainer", "image": "x", "env": [{"name": "A"}]}]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**sidecars, "volumes": [{"name": "v"}]}}
    causes = (
        "metadata.labels[a]",
        "spec.dnsConfig",
        "spec.containers[0].resources.limits[nvidia.com/gpu]",
        "spec.containers[1].env[0].valueFrom",
        "spec.volumes[0].nfs.path",
    )
    assert told(manifest(template=template), *causes) == [f"spec.template.{cause}" for cause in causes]
    role = manifest(replicaSpecs={"worker": {"template": template}})
    assert told(role, *causes) == [f"spec.replicaSpecs[worker].template.{cause}" for cause in causes]


def test_what_a_role_sets_is_told_as_a_field_of_its_pods() -> None:
    role: JsonObject = {"resources": {"limits": {"cpu": 1}}, "env": [{"name": "B", "value": "1"}]}
    template = {"spec": pod({"env": [{"name": "A", "value": "1"}]})}
    fields = ("spec.containers[0].resources.limits[cpu]", "spec.containers[0].env[1].name")
    body = manifest(replicaSpecs={"worker": role}, template=template)
    assert told(body, *fields) == [f"pods of worker: {field}" for field in fields]
    assert told(body, "spec.containers[0].env[0].name") == ["spec.template.spec.containers[0].env[0].name"]


def test_a_field_of_the_claim_is_told_as_that_of_its_template() -> None:
    claim = manifest(checkpoint={"claimTemplate": CLAIM_TEMPLATE})
    assert told(claim, "spec.selector", name="digits-checkpoint", resource=CLAIMS) == [
        "spec.checkpoint.claimTemplate.spec.selector"
    ]


def test_what_the_operator_made_is_told_as_the_field_of_the_pods() -> None:
    fields = ("spec.hostname", "spec.containers[0].env[0].value")
    assert told(manifest(), *fields) == [f"pods of worker: {field}" for field in fields]


def test_a_mistake_that_all_roles_share_is_one_line() -> None:
    error = Invalid("it is invalid", status=422, causes=("spec.nodeName: wrong",))
    body = manifest(roles={"chief": 1, "worker": 1}, template={"spec": {**pod(), "nodeName": "a"}})
    found, _ = check(body, (PODS, error, WORKER), (PODS, error, CHIEF))
    assert found == ServerCheck(problems=("spec.template.spec.nodeName: wrong",))


def test_what_an_older_crd_does_not_know_is_a_problem_and_a_name_that_is_taken_none() -> None:
    older = Invalid('strict decoding error: unknown field "spec.fromTheFuture"', status=400)
    found, _ = check(manifest(), (JOBS, older, "digits"), (PODS, AlreadyExists("there"), WORKER))
    assert found == ServerCheck(problems=(older.message,))


def test_quotas_are_refusals_and_what_may_not_be_asked_is_unchecked() -> None:
    quota, right = "exceeded quota: gpus", 'pods is forbidden: User "a" cannot create resource "pods" in API group ""'
    body = manifest(roles={"chief": 1, "worker": 1})
    found, _ = check(body, (PODS, Forbidden(quota), WORKER), (PODS, Forbidden(right), CHIEF))
    assert found == ServerCheck(refusals=(f"pods of worker: {quota}",), unchecked=(right,))


def test_pods_are_made_to_fit_a_restricted_namespace_before_they_are_a_problem() -> None:
    words = 'pods "digits-worker-0" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'
    refusal = (PODS, Forbidden(words), WORKER)
    assert check(manifest(), refusal)[0] == ServerCheck()
    found, gateway = check(manifest(), refusal, refusal)
    assert found == ServerCheck(problems=(f"pods of worker: {words}",))
    drops = [
        dig(call.body, "spec", "containers", 0, "securityContext", "capabilities", "drop") for call in gateway.calls
    ]
    assert [drop for drop in drops if drop] == [["ALL"]]


def test_a_server_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Unavailable):
        check(manifest(), (PODS, Unavailable("down"), WORKER))
