"""The gateway to a real API server: what the engine's promises rest on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from dtj.api.json import JsonObject, dig
from dtj.api.names import Label
from dtj.kube import client
from dtj.kube.client import KubeGateway
from dtj.kube.config import ConnectionSource
from dtj.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Gone, Invalid, NotFound, Unavailable
from dtj.kube.gateway import JOBS, PODS, Discovery, Resource, WatchEvent
from dtj.kube.records import decode_pod
from patience import PATIENCE_SECONDS
from support.job_world import JobWorld
from support.kubeconfigs import copied
from testbed import ControlPlane

NODES_OF_NOBODY = Resource("nobody.example/v1", "Node", "nodes")


@pytest_asyncio.fixture
async def gateway(cluster: ControlPlane) -> AsyncIterator[KubeGateway]:
    connected = await KubeGateway.connect(ConnectionSource(kubeconfig=str(cluster.kubeconfig)))
    yield connected
    await connected.close()


def pod(name: str, **spec: object) -> JsonObject:
    return {
        "metadata": {"name": name, "labels": {Label.JOB_NAME: "digits"}},
        "spec": {"containers": [{"name": "trainer", "image": "example/trainer:1"}], **spec},  # type: ignore[dict-item]
    }


async def test_a_list_of_many_pages_is_whole(
    gateway: KubeGateway, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PAGE_SIZE", 2)
    names = [f"pod-{number}" for number in range(5)]
    for name in names:
        await gateway.create(PODS, namespace=namespace, body=pod(name))
    await gateway.create(PODS, namespace=namespace, body={**pod("unlabelled"), "metadata": {"name": "unlabelled"}})
    listing = await gateway.list(PODS, namespace=namespace, selector=Label.JOB_NAME)
    assert [decode_pod(item).metadata.name for item in listing.items] == names
    assert listing.resource_version.isdecimal()


async def test_a_watch_reports_what_happens_after_the_list(gateway: KubeGateway, namespace: str) -> None:
    before = await gateway.list(PODS, namespace=namespace)
    created = await gateway.create(PODS, namespace=namespace, body=pod("a"))
    uid = str(dig(created, "metadata", "uid"))
    await gateway.delete(PODS, namespace=namespace, name="a", uid=uid)
    events = gateway.watch(PODS, namespace=namespace, resource_version=before.resource_version)
    seen: list[WatchEvent] = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for event in events:
            seen.append(event)
            if event.type == "DELETED":
                break
    assert seen[0].type == "ADDED"
    assert {decode_pod(event.object).metadata.uid for event in seen} == {uid}


async def test_a_dry_run_is_strict_and_creates_nothing(gateway: KubeGateway, namespace: str) -> None:
    await gateway.create(PODS, namespace=namespace, body=pod("a"), dry_run=True)
    with pytest.raises(Invalid, match="unknown field"):
        await gateway.create(PODS, namespace=namespace, body=pod("a", nodeSelecter={}), dry_run=True)
    with pytest.raises(NotFound):
        await gateway.get(PODS, namespace=namespace, name="a")


async def test_field_errors_come_one_by_one(gateway: KubeGateway, namespace: str) -> None:
    broken = pod("a", restartPolicy="Sometimes", dnsPolicy="Sometimes")
    with pytest.raises(Invalid) as caught:
        await gateway.create(PODS, namespace=namespace, body=broken, dry_run=True)
    fields = {cause.partition(":")[0] for cause in caught.value.causes}
    assert {"spec.restartPolicy", "spec.dnsPolicy"} <= fields
    assert caught.value.status == 422


async def test_a_name_that_is_taken_and_a_version_that_is_old_are_distinguished(
    gateway: KubeGateway, world: JobWorld
) -> None:
    namespace = world.namespace
    created = await gateway.create(PODS, namespace=namespace, body=pod("a"))
    with pytest.raises(AlreadyExists):
        await gateway.create(PODS, namespace=namespace, body=pod("a"))
    world.submit()
    old: JsonObject = {"metadata": {"resourceVersion": "1"}, "status": {"state": "Running"}}
    with pytest.raises(Conflict):
        await gateway.patch(JOBS, namespace=namespace, name="digits", patch=old, subresource="status")
    with pytest.raises(Conflict):
        await gateway.delete(PODS, namespace=namespace, name="a", uid="00000000-0000-0000-0000-000000000000")
    await gateway.delete(PODS, namespace=namespace, name="a", uid=str(dig(created, "metadata", "uid")))


async def test_nothing_is_changed_or_deleted_that_is_not_what_was_seen(gateway: KubeGateway, world: JobWorld) -> None:
    """By the UID in a patch, and by the resource version in a deletion."""
    namespace = world.namespace
    created = await gateway.create(PODS, namespace=namespace, body=pod("a", schedulerName="nobody"))
    uid = str(dig(created, "metadata", "uid"))
    another = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Conflict):
        await gateway.patch(PODS, namespace=namespace, name="a", patch=_labelled("theirs", uid=another))
    patched = await gateway.patch(PODS, namespace=namespace, name="a", patch=_labelled("ours", uid=uid))
    assert dig(patched, "metadata", "labels", "is") == "ours"
    old, new = (str(dig(body, "metadata", "resourceVersion")) for body in (created, patched))
    with pytest.raises(Conflict):
        await gateway.delete(PODS, namespace=namespace, name="a", uid=uid, resource_version=old)
    await gateway.delete(PODS, namespace=namespace, name="a", uid=uid, resource_version=new)


def _labelled(value: str, *, uid: str) -> JsonObject:
    return {"metadata": {"uid": uid, "labels": {"is": value}}}


async def test_a_status_patch_removes_what_is_null_and_gives_the_object_back(
    gateway: KubeGateway, world: JobWorld
) -> None:
    world.submit()
    for status in ({"state": "Starting", "ready": "0/2"}, {"state": "Running", "ready": None}):
        written = await gateway.patch_job_status(
            JOBS, namespace=world.namespace, name="digits", patch={"status": dict(status)}
        )
    given_back = json.loads(bytes(written.status))
    assert dig(given_back, "state") == "Running"
    assert not dig(given_back, "ready")


@pytest.mark.parametrize("verb", ["list", "watch"])
async def test_a_token_that_is_renewed_in_its_file_is_taken_up(
    cluster: ControlPlane, namespace: str, tmp_path: Path, verb: str
) -> None:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    token = cluster.api.request("POST", f"{account}/token", {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    kubeconfig = copied(cluster.kubeconfig, tmp_path, user={"tokenFile": str(tmp_path / "token")})
    (tmp_path / "token").write_text("expired")
    gateway = await KubeGateway.connect(ConnectionSource(kubeconfig=str(kubeconfig)))
    try:
        (tmp_path / "token").write_text(token)
        if verb == "watch":
            with pytest.raises(ApiError, match="Unauthorized"):
                await anext(gateway.watch(PODS, namespace=namespace, resource_version="0"))
            with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:default"):
                await anext(gateway.watch(PODS, namespace=namespace, resource_version="0"))
        with pytest.raises(Forbidden, match=f"system:serviceaccount:{namespace}:default"):
            await gateway.list(PODS, namespace=namespace)
    finally:
        await gateway.close()


async def test_discovery_knows_what_is_served(gateway: KubeGateway) -> None:
    another_version = Resource("training.dtj.dev/v9", JOBS.kind, JOBS.plural)
    nothings = Resource(JOBS.api_version, "Nothing", "nothings")
    discovery = await gateway.discover([NODES_OF_NOBODY, JOBS, another_version, nothings])
    assert discovery == Discovery(served=(JOBS,), versions=(JOBS.api_version,))


async def test_every_call_is_observed_with_its_outcome(cluster: ControlPlane, namespace: str) -> None:
    seen: list[tuple[str, str, int]] = []
    gateway = await KubeGateway.connect(
        ConnectionSource(kubeconfig=str(cluster.kubeconfig)),
        observe=lambda verb, resource, status, seconds: seen.append((verb, resource.plural, status)),
    )
    try:
        await gateway.create(PODS, namespace=namespace, body=pod("a"))
        with pytest.raises(NotFound):
            await gateway.get(PODS, namespace=namespace, name="b")
    finally:
        await gateway.close()
    assert seen == [("create", "pods", 201), ("get", "pods", 404)]


class TestAServerThatBreaks:
    async def test_a_watch_from_a_version_that_is_forgotten_is_gone(self, own_control_plane: ControlPlane) -> None:
        gateway = await KubeGateway.connect(ConnectionSource(kubeconfig=str(own_control_plane.kubeconfig)))
        try:
            listing = await gateway.list(PODS, namespace=None)
            own_control_plane.expire_watches()
            with pytest.raises(Gone):
                await anext(gateway.watch(PODS, namespace=None, resource_version=listing.resource_version))
        finally:
            await gateway.close()

    async def test_it_never_says_that_a_crd_is_missing_while_it_starts(self, own_control_plane: ControlPlane) -> None:
        gateway = await KubeGateway.connect(ConnectionSource(kubeconfig=str(own_control_plane.kubeconfig)))
        answers = []
        try:
            starting = asyncio.create_task(asyncio.to_thread(own_control_plane.restart_apiserver))
            while not starting.done():
                with suppress(ApiError):
                    answers.append((await gateway.discover([JOBS])).served)
            await starting
            answers.append((await gateway.discover([JOBS])).served)
        finally:
            await gateway.close()
        assert {*answers} == {(JOBS,)}

    async def test_a_call_that_gets_no_answer_is_unavailable(self, own_control_plane: ControlPlane) -> None:
        gateway = await KubeGateway.connect(ConnectionSource(kubeconfig=str(own_control_plane.kubeconfig)))
        try:
            listing = await gateway.list(PODS, namespace=None)
            with own_control_plane.outage():
                with pytest.raises(Unavailable, match=own_control_plane.url):
                    await gateway.list(PODS, namespace=None)
                with pytest.raises(Unavailable):
                    await anext(gateway.watch(PODS, namespace=None, resource_version=listing.resource_version))
            await gateway.list(PODS, namespace=None)
        finally:
            await gateway.close()
