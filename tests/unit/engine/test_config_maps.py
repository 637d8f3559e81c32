"""The ConfigMap with the addresses of a large job: no informer shows it, so that its owner is read before it counts."""

from __future__ import annotations

import pytest

from dtj.api.job import Job
from dtj.api.json import JsonObject, object_at
from dtj.core.actions import Create, Delete, Kind, Plan
from dtj.core.observed import Observed
from dtj.kube.errors import Forbidden
from dtj.kube.gateway import CONFIG_MAPS, Resource
from support.engine_harness import harnessed, once
from support.fake_gateway import FakeGateway
from support.virtual_time import settled, virtual_time

QUOTA = Forbidden('configmaps "addresses" is forbidden: exceeded quota', status=403, reason="Forbidden")


def addresses(job: Job, **more: object) -> JsonObject:
    metadata: JsonObject = {"name": "addresses", "ownerReferences": [job.owner_reference()]}
    return {"metadata": {**metadata, **more}, "data": {"cluster": "{}"}}  # type: ignore[dict-item]


def makes_addresses(observed: Observed) -> Plan:
    return (Create(Kind.CONFIG_MAP, addresses(observed.job)),)


@virtual_time
async def test_a_config_map_of_the_job_that_is_there_is_the_one_that_was_wanted() -> None:
    async with harnessed(makes_addresses) as harness:
        await harness.take()
        await harness.look_again()
        assert (harness.seen[-1].refusal, harness.seen[-1].obstacle) == (None, "")
        assert harness.writes() == ["create configmaps addresses"] * 2


@virtual_time
@pytest.mark.parametrize(
    "theirs", [{"ownerReferences": []}, {"data": {"cluster": "another"}}], ids=["owner", "content"]
)
async def test_a_config_map_of_somebody_else_in_place_of_the_jobs_is_reported(theirs: JsonObject) -> None:
    async with harnessed(makes_addresses) as harness:
        job = harness.submit()
        body = addresses(job)
        harness.gateway.put(CONFIG_MAPS, {"metadata": {**object_at(body, "metadata"), **theirs}, "data": {}, **theirs})
        await settled()
        refusal = harness.seen[-1].refusal
        assert refusal is not None
        assert refusal.message == 'ConfigMap "addresses" exists and is not the one of this job: delete it'


@virtual_time
async def test_a_config_map_that_is_refused_is_reported() -> None:
    gateway = FakeGateway()
    gateway.fail("create", CONFIG_MAPS, QUOTA)
    async with harnessed(makes_addresses, gateway=gateway) as harness:
        await harness.take()
        refusal = harness.seen[-1].refusal
        assert refusal is not None
        assert (refusal.name, refusal.message) == ("addresses", QUOTA.message)


@virtual_time
@pytest.mark.parametrize(
    ("theirs", "left"), [({}, []), ({"ownerReferences": []}, ["addresses"])], ids=["its own", "another's"]
)
async def test_a_config_map_is_deleted_by_its_uid_if_the_job_owns_it(theirs: JsonObject, left: list[str]) -> None:
    async with harnessed(once((Delete(Kind.CONFIG_MAP, "addresses"),))) as harness:
        job = harness.submit()
        harness.gateway.put(CONFIG_MAPS, addresses(job, **theirs))
        await settled()
        assert harness.gateway.names(CONFIG_MAPS) == left


@virtual_time
async def test_a_config_map_made_anew_by_somebody_else_since_it_was_read_stays() -> None:
    class _Replaced(FakeGateway):
        async def get(self, resource: Resource, *, namespace: str | None, name: str) -> JsonObject:
            found = await super().get(resource, namespace=namespace, name=name)
            self.put(resource, {"metadata": {"name": name, "uid": "another"}})
            return found

    async with harnessed(once((Delete(Kind.CONFIG_MAP, "addresses"),)), gateway=_Replaced()) as harness:
        harness.gateway.put(CONFIG_MAPS, addresses(harness.submit()))
        await settled()
        assert harness.gateway.names(CONFIG_MAPS) == ["addresses"]
