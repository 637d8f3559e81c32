"""The Python client against a real API server, with the operator at work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from builders import manifest
from dtj.api.json import dig, object_at, objects
from dtj.api.names import Condition
from dtj.client import (
    AlreadyExists,
    ApiError,
    AsyncClient,
    Client,
    Forbidden,
    InvalidManifest,
    InvalidRequest,
    JobGone,
    NotFound,
)
from dtj.client.checks import manifests_of
from patience import PATIENCE_SECONDS
from support.job_world import JobWorld
from support.waiting import eventually_true
from testbed import ControlPlane

ELASTIC = {"maxReplicas": 4}


@pytest.fixture
def client(world: JobWorld) -> Iterator[Client]:
    with Client(namespace=world.namespace, kubeconfig=str(world.plane.kubeconfig)) as client:
        yield client


@pytest.fixture
async def aio(world: JobWorld) -> AsyncIterator[AsyncClient]:
    async with await AsyncClient.connect(
        namespace=world.namespace, kubeconfig=str(world.plane.kubeconfig)
    ) as connected:
        yield connected


def as_user(world: JobWorld, user: str) -> Client:
    return Client(namespace=world.namespace, kubeconfig=str(world.plane.kubeconfig_for(user)))


@pytest.mark.usefixtures("operator")
def test_a_job_is_submitted_scaled_stopped_resumed_and_deleted(world: JobWorld, client: Client) -> None:
    submitted = client.submit(manifest(elastic=ELASTIC))
    assert (submitted.name, submitted.namespace) == ("digits", world.namespace)
    world.await_pods(["worker-0", "worker-1"])
    world.run_pods()
    ready = client.wait("digits", "ready", timeout=PATIENCE_SECONDS)
    assert ready.uid == submitted.uid
    assert [pod.name for pod in client.pods(ready)] == ["digits-worker-0", "digits-worker-1"]
    eventually_true(lambda: "PodsCreated" in {event.reason for event in client.events(ready)})

    client.scale("digits", 3)
    world.await_pods(["worker-0-r1", "worker-1-r1", "worker-2-r1"])
    stopped = client.stop("digits", timeout=PATIENCE_SECONDS)
    assert stopped.status.state == "Suspended"
    assert client.pods(stopped) == ()
    assert client.stop("digits", timeout=PATIENCE_SECONDS).generation == stopped.generation, (
        "nothing is changed a second time"
    )

    client.resume("digits")
    world.await_pods(["worker-0-r2", "worker-1-r2", "worker-2-r2"])
    world.run_pods()
    client.wait("digits", "ready", timeout=PATIENCE_SECONDS)
    world.end_pod("digits-worker-0-r2", exit_code=0)
    assert client.wait("digits", timeout=PATIENCE_SECONDS).status.is_true(Condition.COMPLETE)
    for act in (client.suspend, client.resume):
        with pytest.raises(InvalidRequest, match=r"has ended \(Succeeded\)"):
            act("digits")
    assert [job.name for job in client.list()] == ["digits"]

    client.delete("digits", wait=True, timeout=PATIENCE_SECONDS)
    assert world.pods() == {}
    assert client.list() == ()


def test_who_owns_the_fields_that_a_person_sets_is_not_the_operator(world: JobWorld, client: Client) -> None:
    client.submit(manifest())
    client.suspend("digits")
    owners = objects(dig(world.body(), "metadata", "managedFields"))
    assert {owner["manager"] for owner in owners} == {"dtj"}


def test_several_jobs_are_submitted_in_order_and_one_at_a_time_only_where_there_is_one(
    client: Client, tmp_path: Path
) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("\n---\n".join(_yaml(name) for name in ("b", "a")))
    with pytest.raises(InvalidManifest, match="holds 2 jobs, not one: use submit_all"):
        client.submit(file)
    assert [job.name for job in client.submit_all(file)] == ["b", "a"]
    assert [job.name for job in client.list()] == ["a", "b"]


def test_what_cannot_be_done_is_reported_by_typed_errors_and_changes_nothing(world: JobWorld, client: Client) -> None:
    with pytest.raises(InvalidManifest, match=r"^the manifest: digits: spec\.port: "):
        client.submit(manifest(port=0))
    assert world.jobs() == []
    client.submit(manifest())
    with pytest.raises(AlreadyExists):
        client.submit(manifest())
    with pytest.raises(InvalidRequest, match=r"^digits: .*only the workers of an elastic job can be scaled"):
        client.scale("digits", 3)
    with pytest.raises(NotFound):
        client.suspend("none")
    client.submit(manifest("elastic", elastic=ELASTIC))
    with pytest.raises(InvalidRequest, match=r"^elastic: .*must be from elastic\.minReplicas to elastic\.maxReplicas"):
        client.scale("elastic", 5)
    assert world.job().generation == 1
    with as_user(world, "nobody") as nobody, pytest.raises(Forbidden, match='User "nobody" cannot list resource'):
        nobody.list()


def test_a_field_that_the_clusters_crd_does_not_know_is_an_error(world: JobWorld, client: Client) -> None:
    """The offline rules are this program's; the CRD may be of another version."""
    (checked,) = manifests_of(manifest())
    spec = object_at(checked.body, "spec")
    newer = replace(checked, body={**checked.body, "spec": {**spec, "fromTheFuture": 1}})

    async def create() -> None:
        async with await AsyncClient.connect(kubeconfig=str(world.plane.kubeconfig)) as aio:
            await aio.create(newer, namespace=world.namespace)

    with pytest.raises(ApiError, match=r'unknown field "spec\.fromTheFuture"'):
        asyncio.run(create())


async def test_a_job_that_is_deleted_while_it_is_waited_for_ends_the_wait(world: JobWorld, aio: AsyncClient) -> None:
    await aio.submit(manifest())
    mark = world.plane.audit.mark()
    waiting = asyncio.create_task(aio.wait("digits", "complete"))
    await asyncio.to_thread(world.await_watch, since=mark)
    following = aio.follow("digits")
    assert (await anext(following)).name == "digits"
    await aio.delete("digits")
    with pytest.raises(JobGone):
        await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert [job async for job in following] == []


async def test_the_client_for_notebooks_works_where_a_loop_runs_already(world: JobWorld) -> None:
    with Client(namespace=world.namespace, kubeconfig=str(world.plane.kubeconfig)) as client:
        client.submit(manifest())
        changes = client.follow("digits")
        assert next(changes).generation == 1
        client.suspend("digits")
        assert next(job for job in changes if job.generation == 2)
        changes.close()  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.list()
    client.close()


async def test_a_wait_outlives_an_outage_of_the_api_server(own_control_plane: ControlPlane) -> None:
    world = JobWorld(own_control_plane, own_control_plane.new_namespace())
    async with await AsyncClient.connect(
        namespace=world.namespace, kubeconfig=str(own_control_plane.kubeconfig)
    ) as client:
        await client.submit(manifest())
        seen: list[int] = []
        first = asyncio.Event()

        async def follow() -> None:
            async for job in client.follow("digits"):
                seen.append(job.generation)
                first.set()
                if job.generation == 2:
                    return

        following = asyncio.create_task(follow())
        await first.wait()
        await asyncio.to_thread(own_control_plane.restart_apiserver)
        await client.suspend("digits")
        await asyncio.wait_for(following, PATIENCE_SECONDS)
        assert seen[-1] == 2


def _yaml(name: str) -> str:
    return str(yaml.safe_dump(manifest(name)))
