"""A real API server refuses bad pods: at apply in the words of `dtj validate`, or when it is asked for the pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from bad_pods import REFUSED_AS_PODS, REFUSED_AT_APPLY, REFUSED_BY_US, TAKEN
from builders import manifest
from dtj.api.job import Job
from dtj.api.json import JsonObject
from dtj.api.validation import validate
from dtj.client import AsyncClient
from dtj.client.checks import manifests_of
from dtj.client.server_check import ServerCheck, check_on_server
from support.job_world import JobWorld
from support.server_answers import wrong_answers
from testbed import ApiError, ControlPlane

Answer = Callable[[JsonObject], str]
"""What a server says of a pod's ``spec``; empty if it takes it."""


def _answer(cluster: ControlPlane, path: str, body: JsonObject) -> str:
    try:
        cluster.api.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", body)
    except ApiError as error:
        # Go writes the quotation marks inside of a message as JSON does.
        return str(error).replace('\\"', '"')
    return ""


@pytest.fixture
def of_pods(cluster: ControlPlane, namespace: str) -> Answer:
    """The API of pods."""

    def ask(spec: JsonObject) -> str:
        pod: JsonObject = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        return _answer(cluster, f"/api/v1/namespaces/{namespace}/pods", pod)

    return ask


@pytest.fixture
def of_jobs(cluster: ControlPlane, namespace: str) -> Answer:
    """The API of jobs, which has the CRD."""

    def ask(spec: JsonObject) -> str:
        return _answer(cluster, JobWorld(cluster, namespace).path(), manifest(template={"spec": spec}))

    return ask


def offline(spec: JsonObject) -> list[str]:
    """The words of the offline check, without the help that it adds."""
    return [violation.message.partition("; ")[0] for violation in validate(manifest(template={"spec": spec}))]


def test_what_the_schema_and_the_rules_refuse_is_refused_at_apply_in_the_same_words(of_jobs: Answer) -> None:
    cases = {case: (spec, offline(spec)) for case, spec in {**REFUSED_AT_APPLY, **REFUSED_BY_US}.items()}
    assert wrong_answers(of_jobs, cases) == ""


def test_what_is_refused_at_apply_is_refused_as_a_pod(of_pods: Answer) -> None:
    assert [case for case, spec in REFUSED_AT_APPLY.items() if not of_pods(spec)] == []


def test_what_only_the_api_of_pods_refuses_is_taken_at_apply_and_found_by_the_dry_run(
    cluster: ControlPlane, namespace: str, of_jobs: Answer
) -> None:
    answers = asyncio.run(_checks(cluster, namespace, REFUSED_AS_PODS))
    assert {case: answer for case, spec in REFUSED_AS_PODS.items() if (answer := of_jobs(spec))} == {}
    where = {case: {line.partition(": ")[0] for line in found.problems} for case, found in answers.items()}
    assert [case for case, fields in where.items() if not fields] == []
    # The API server names a field of its own at times, which no template has.
    strange = {field for fields in where.values() for field in fields}
    assert {field for field in strange if not field.startswith(("spec.template.", "pods of worker"))} == set()


async def _checks(cluster: ControlPlane, namespace: str, cases: Mapping[str, JsonObject]) -> dict[str, ServerCheck]:
    async with await AsyncClient.connect(kubeconfig=str(cluster.kubeconfig)) as client:
        (known,) = manifests_of(manifest())
        found = {}
        for case, spec in cases.items():
            body = manifest(template={"spec": spec})
            job = Job.from_object(body)
            assert job.spec is not None, case
            asked = replace(known, body=body, job=job, spec=job.spec)
            found[case] = await check_on_server(client.gateway, asked, namespace=namespace)
        return found


def test_what_the_api_of_pods_takes_is_taken(of_pods: Answer, of_jobs: Answer) -> None:
    for server in (of_pods, of_jobs):
        assert {case: answer for case, spec in TAKEN.items() if (answer := server(spec))} == {}
