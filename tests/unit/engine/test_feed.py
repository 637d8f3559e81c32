"""News of jobs reaches the engine late, twice, and in the wrong order: what it does meanwhile, and what it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from builders import NOW, manifest
from dtj.api.json import JsonObject, dig, object_at
from dtj.api.status import JobStatus
from dtj.core.actions import CreatePod, DeleteJob, DeletePod, Kind, PatchStatus, Plan, Update
from dtj.core.observed import Observed
from dtj.core.planner import plan
from dtj.core.platform import Platform
from dtj.engine import feed, progress
from dtj.engine.engine import Engine, EngineSettings
from dtj.kube.gateway import JOBS, PODS, SERVICES, Resource
from dtj.kube.job_body import JobObject, job_from_object, read_job
from support.engine_harness import Harness, harnessed, once, pod_manifest, service_manifest, wants_pods
from support.fake_gateway import DeniesOneNamespace
from support.virtual_time import loop_time, virtual_time

KEY = ("default", "digits")


def known(harness: Harness) -> str | None:
    record = harness.engine.state.jobs.get(KEY)
    return record.uid if record is not None else None


@pytest.mark.parametrize("denied", [PODS, SERVICES], ids=str)
@virtual_time
async def test_a_namespace_whose_objects_are_not_listed_holds_the_jobs_of_no_other(denied: Resource) -> None:
    gateway = DeniesOneNamespace(denied)
    engine = Engine(
        gateway,
        plan=plan,
        platform=Platform(),
        instance="test",
        namespaces=("first", "second"),
        settings=EngineSettings(relist_every=None),
        now=lambda: NOW,
    )
    for namespace in ("first", "second"):
        body: JsonObject = {**manifest(), "metadata": {"name": "digits", "namespace": namespace, "generation": 1}}
        engine.feed.put(job_from_object(gateway.put(JOBS, body)))
    running = asyncio.create_task(engine.run())

    async def await_pods() -> set[object]:
        await asyncio.sleep(60.0)
        return {dig(line.body, "metadata", "namespace") for line in gateway.history(PODS)}

    assert await await_pods() == {"second"}
    assert not engine.synced
    gateway.denied = None
    assert await await_pods() == {"first", "second"}
    engine.stop()
    await running


@virtual_time
async def test_a_namespace_whose_jobs_are_not_listed_keeps_no_other_from_it() -> None:
    gateway = DeniesOneNamespace(JOBS)
    engine = Engine(gateway, plan=plan, platform=Platform(), instance="test", now=lambda: NOW)
    gateway.put(JOBS, {**manifest(), "metadata": {"name": "digits", "namespace": "second"}})
    listing = asyncio.create_task(engine.feed.keep_listing(gateway, ("first", "second"), every=5.0))
    await asyncio.sleep(30.0)
    assert [record.namespace for record in engine.state.jobs] == ["second"]
    listing.cancel()


# -- lists that are late ----------------------------------------------------------------------------------------


@virtual_time
async def test_jobs_that_did_not_change_are_not_read_again_and_a_list_gives_way_to_everything_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with harnessed(once()) as harness:
        for number in range(500):
            harness.submit(f"job-{number}")
        reads: list[object] = []

        def counted(raw: bytes) -> JobObject:
            reads.append(raw)
            return read_job(raw)

        monkeypatch.setattr(feed, "read_job", counted)
        harness.gateway.put(JOBS, {**manifest("job-7"), "metadata": {"name": "job-7", "generation": 2}})
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        await asyncio.sleep(0)
        before = turns
        await harness.engine.feed.relist(harness.gateway, None)
        counting.cancel()
        assert len(reads) == 1
        assert turns - before >= 5, "500 jobs in one go"


# -- answers that are late --------------------------------------------------------------------------------------


def writes_its_status_and_wants_a_pod(observed: Observed) -> Plan:
    if observed.pods:
        return ()
    return PatchStatus(JobStatus(state="Starting")), CreatePod.of(pod_manifest(observed.job))


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and created again"])
@virtual_time
async def test_the_answer_to_a_write_does_not_bring_a_deleted_job_back(again: bool) -> None:
    async with harnessed(writes_its_status_and_wants_a_pod) as harness:
        harness.gateway.answer_late("patch", JOBS, 1.0)
        harness.submit(uid="first")
        await asyncio.sleep(0.5)
        harness.retract()
        if again:
            harness.submit(uid="second")
        await asyncio.sleep(5.0)
        assert known(harness) == ("second" if again else None)
        owners = [
            dig(harness.gateway.body(PODS, n), "metadata", "ownerReferences", 0, "uid")
            for n in harness.gateway.names(PODS)
        ]
        assert owners == (["second"] if again else [])


@virtual_time
async def test_a_pod_that_answers_after_its_job_is_gone_leaves_no_memory_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_their_way = 0

    async def fetch(*_: object, **__: object) -> bytes:
        nonlocal on_their_way
        on_their_way += 1
        await asyncio.sleep(5.0)
        on_their_way -= 1
        return b'{"step": 1}'

    monkeypatch.setattr(progress, "fetch", fetch)
    running: JsonObject = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    async with harnessed() as harness:
        harness.submit(uid="first")
        await asyncio.sleep(2.0)
        for name in harness.gateway.names(PODS):
            harness.gateway.put(PODS, {**harness.gateway.body(PODS, name), "status": running})
        await asyncio.sleep(progress.INTERVAL + 0.5)
        caches = harness.engine.state.caches
        assert (len(caches), on_their_way) == (1, 1)
        harness.retract()
        await asyncio.sleep(30.0)
        assert len(caches) == 0


# -- doubt ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_job_of_which_the_api_server_says_that_it_is_not_there_is_looked_for_at_once() -> None:
    async with harnessed(once(), settings=EngineSettings(relist_every=300.0)) as harness:
        harness.submit()
        await asyncio.sleep(6.0)
        harness.gateway.remove(JOBS, "digits")  # and no watch says so
        harness.planner = once((PatchStatus(JobStatus(state="Running")),))
        harness.engine.queue.add(KEY)
        await asyncio.sleep(20.0)
        assert known(harness) is None
        assert sum(call.verb == "list" and call.plural == JOBS.plural for call in harness.gateway.calls) == 1


@virtual_time
async def test_a_job_whose_version_is_refused_again_and_again_is_read_afresh() -> None:
    """Its watch is silent: a finished job whose user gave it more time is not deleted, and not asked for in vain."""

    def planner(observed: Observed) -> Plan:
        return () if observed.job.generation == 2 else (DeleteJob(),)

    async with harnessed(planner, settings=EngineSettings(relist_every=3600.0)) as harness:
        job = harness.submit(uid="u")
        harness.gateway.put(JOBS, {**manifest(), "metadata": {"name": "digits", "uid": job.uid, "generation": 2}})
        await asyncio.sleep(60.0)
        assert harness.seen[-1].job.generation == 2
        assert harness.gateway.names(JOBS) == ["digits"]
        assert sum(call.verb == "delete" for call in harness.gateway.calls) <= 5


@virtual_time
async def test_lists_that_are_wanted_soon_do_not_follow_each_other_without_a_pause() -> None:
    async with harnessed(once(), settings=EngineSettings(relist_every=300.0)) as harness:
        for _ in range(60):
            harness.engine.feed.relist_soon()
            await asyncio.sleep(1.0)
        assert 3 <= sum(call.verb == "list" for call in harness.gateway.calls) <= 20


@virtual_time
async def test_a_list_of_a_restored_etcd_is_believed_and_the_watch_is_started_again() -> None:
    async with harnessed(once()) as harness:
        turned: list[float] = []
        harness.engine.feed.on_turned_back = lambda: turned.append(loop_time())

        def body(version: int, *, suspend: bool) -> JsonObject:
            metadata: JsonObject = {
                "name": "digits",
                "namespace": "default",
                "uid": "u",
                "resourceVersion": str(version),
            }
            return {**manifest(runPolicy={"suspend": suspend}), "metadata": metadata}

        harness.tell(body(900, suspend=False))
        harness.gateway.restore(JOBS, [body(60, suspend=True)], version=70)
        await harness.engine.feed.relist(harness.gateway, None)
        record = harness.engine.state.jobs.get(KEY)
        assert record is not None
        assert dig(record.job().raw_spec, "runPolicy", "suspend") is True
        assert len(turned) == 1
        await harness.engine.feed.relist(harness.gateway, None)
        assert len(turned) == 1, "once is enough"


# -- writes that were made for an older version ----------------------------------------------------------------


def selecting(uid: str) -> Update:
    """Have our Service select the pods of the second attempt."""
    return Update(Kind.SERVICE, "digits", {"metadata": {"uid": uid}, "spec": {"selector": {"attempt": "2"}}})


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "one that somebody else put in its place"])
@virtual_time
async def test_a_service_is_changed_if_it_is_ours_by_its_uid(*, ours: bool) -> None:
    async with harnessed(once()) as harness:
        service = harness.gateway.put(SERVICES, service_manifest(harness.submit()))
        uid = str(dig(service, "metadata", "uid"))
        harness.planner = once((selecting(uid if ours else "ours"),))
        harness.engine.queue.add(KEY)
        await asyncio.sleep(60.0)
        changed = harness.gateway.body(SERVICES, "digits")
        assert dig(changed, "spec", "selector", "attempt") == ("2" if ours else None)


# -- expectations that were met before they were opened ---------------------------------------------------------


async def vanishes(harness: Harness) -> None:
    harness.gateway.remove(PODS, "digits-worker-0")


async def is_asked_to_go(harness: Harness) -> None:
    body = harness.gateway.body(PODS, "digits-worker-0")
    metadata = object_at(body, "metadata")
    harness.gateway.terminates_slowly = True
    harness.gateway.put(PODS, {**body, "metadata": {**metadata, "deletionTimestamp": "2026-01-02T03:04:35Z"}})


async def is_created(harness: Harness) -> None:
    job = harness.engine.state.jobs.get(KEY)
    assert job is not None
    harness.gateway.put(PODS, pod_manifest(job.job(), 1))


@pytest.mark.parametrize("happens", [vanishes, is_asked_to_go, is_created])
@virtual_time
async def test_what_the_informer_has_shown_before_the_call_holds_no_job_up(
    happens: Callable[[Harness], Awaitable[None]],
) -> None:
    """It happens while an earlier call of the same plan is on its way."""
    async with harnessed(wants_pods(1)) as harness:
        job = harness.submit()
        await asyncio.sleep(1.0)
        uid = str(dig(harness.gateway.body(PODS, "digits-worker-0"), "metadata", "uid"))
        harness.gateway.answer_late("patch", JOBS, 1.0)
        deed = CreatePod.of(pod_manifest(job, 1)) if happens is is_created else DeletePod("digits-worker-0", uid)
        harness.planner = once((PatchStatus(JobStatus(state="Running")), deed))
        harness.engine.queue.add(KEY)
        await asyncio.sleep(0.5)
        await happens(harness)
        await asyncio.sleep(1.0)
        seen = len(harness.seen)
        harness.engine.queue.add(KEY)
        await asyncio.sleep(1.0)
        assert len(harness.seen) > seen, "the job waits for an event that came before"
