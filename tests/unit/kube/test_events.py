"""The event recorder: counts instead of repeating, and never gets in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dtj.api.json import JsonObject, dig
from dtj.kube.errors import Forbidden, TooManyRequests
from dtj.kube.events import MAX_ATTEMPTS, MAX_NOTE_BYTES, MAX_SERIES, EventRecorder, Subject, TokenBucket
from dtj.kube.gateway import EVENTS
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import loop_time, settled, virtual_time

EPOCH = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
JOB = Subject(namespace="default", name="digits", uid="uid-1")


@asynccontextmanager
async def recording(gateway: FakeGateway, *, bucket: TokenBucket | None = None) -> AsyncIterator[EventRecorder]:
    """A recorder at work whose wall clock follows the loop's."""
    recorder = EventRecorder(
        gateway, instance="operator-0", now=lambda: EPOCH + timedelta(seconds=loop_time()), bucket=bucket
    )
    task = asyncio.create_task(recorder.run())
    try:
        yield recorder
        await asyncio.sleep(0)
        assert not task.done(), "nothing may end the recorder"
    finally:
        task.cancel()


def stored(gateway: FakeGateway) -> list[JsonObject]:
    return [gateway.body(EVENTS, name) for name in gateway.names(EVENTS)]


async def recorded(*events: tuple[Subject, str], gateway: FakeGateway | None = None) -> list[JsonObject]:
    """What is stored when these notes on these jobs were recorded, at once."""
    gateway = gateway or FakeGateway()
    async with recording(gateway) as recorder:
        for subject, note in events:
            recorder.record(subject, "Normal", "PodsCreated", note)
        await recorder.flush()
    return stored(gateway)


@virtual_time
async def test_words_of_others_are_printable_in_a_note() -> None:
    (event,) = await recorded((JOB, "a webhook says \x1b]0;title\x07\x9b2Jno\ud800"))
    assert event["note"] == "a webhook says no\ufffd"


@virtual_time
async def test_an_event_says_who_what_why_and_when() -> None:
    (event,) = await recorded((JOB, "created 4 pods"))
    metadata = event.pop("metadata")
    assert str(dig(metadata, "name")).startswith("digits.")
    assert dig(metadata, "namespace") == "default"
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2026-01-02T03:04:05.678901Z",
        "reportingController": "dtj-operator",
        "reportingInstance": "operator-0",
        "action": "Reconcile",
        "type": "Normal",
        "reason": "PodsCreated",
        "note": "created 4 pods",
        "regarding": {
            "apiVersion": "training.dtj.dev/v1alpha1",
            "kind": "DistributedTrainingJob",
            "namespace": "default",
            "name": "digits",
            "uid": "uid-1",
        },
    }


@virtual_time
async def test_the_same_words_again_become_one_event_with_a_count(gateway: FakeGateway) -> None:
    async with recording(gateway) as recorder:
        for _ in range(3):
            recorder.record(JOB, "Warning", "PodCreationFailed", "exceeded quota")
            await recorder.flush()
            await asyncio.sleep(10.0)
    (event,) = stored(gateway)
    assert event["series"] == {"count": 3, "lastObservedTime": "2026-01-02T03:04:25.678901Z"}
    assert len(gateway.writes()) == 3


@virtual_time
async def test_repetitions_that_come_faster_than_they_can_be_written_cost_one_write(gateway: FakeGateway) -> None:
    (event,) = await recorded(*[(JOB, "exceeded quota")] * 100, gateway=gateway)
    assert dig(event, "series", "count") == 100
    assert len(gateway.writes()) == 1


@virtual_time
async def test_other_words_another_job_or_a_new_job_of_that_name_get_events_of_their_own() -> None:
    other, new = Subject("default", "other", "uid-2"), Subject("default", "digits", "uid-3")
    events = (JOB, "created 4 pods"), (JOB, "created 5 pods"), (other, "created 4 pods"), (new, "created 4 pods")
    assert len(await recorded(*events)) == 4


@virtual_time
async def test_the_rate_of_events_is_bounded(gateway: FakeGateway) -> None:
    async with recording(gateway, bucket=TokenBucket(burst=10, per_second=2.0)) as recorder:
        for number in range(30):
            recorder.record(JOB, "Normal", "Noise", f"number {number}")
        await settled()
        assert len(gateway.writes()) == 10
        await recorder.flush()
        assert loop_time() == 10.0, "20 more at 2 a second"


OF_ITS_NAMESPACE = Subject("default", "other", "uid-2")
OF_ANOTHER = Subject("team-b", "digits", "uid-3")


async def everywhere(gateway: FakeGateway) -> list[JsonObject]:
    """The events of all namespaces."""
    return [msgspec.json.decode(item) for item in (await gateway.list(EVENTS, namespace=None)).items]


@virtual_time
@pytest.mark.parametrize("quiet", [OF_ITS_NAMESPACE, OF_ANOTHER], ids=["of its namespace", "of another"])
async def test_a_job_with_much_to_say_delays_no_event_of_another_job(quiet: Subject, gateway: FakeGateway) -> None:
    async with recording(gateway, bucket=TokenBucket(burst=10, per_second=2.0)) as recorder:
        for number in range(500):
            recorder.record(JOB, "Warning", "ReplicaLost", f"worker-{number}")
        await asyncio.sleep(10.0)
        recorder.record(quiet, "Normal", "PodsCreated", "created 4 pods")
        await asyncio.sleep(1.5)
        assert "created 4 pods" in {event["note"] for event in await everywhere(gateway)}


@virtual_time
async def test_a_namespace_with_many_jobs_takes_turns_with_one_that_has_few(gateway: FakeGateway) -> None:
    async with recording(gateway, bucket=TokenBucket(burst=1, per_second=2.0)) as recorder:
        for number in range(100):
            recorder.record(Subject("team-a", f"job-{number}", f"a-{number}"), "Normal", "PodsCreated", "a")
        for number in range(5):
            recorder.record(Subject("team-b", "digits", "b"), "Normal", "PodsCreated", f"b-{number}")
        await asyncio.sleep(6.0)
        notes = [str(event["note"]) for event in await everywhere(gateway)]
        assert sorted(note for note in notes if note != "a") == [f"b-{number}" for number in range(5)]


@virtual_time
async def test_a_job_with_much_to_say_makes_no_event_of_another_job_forgotten(gateway: FakeGateway) -> None:
    many = [(JOB, f"worker-{number}") for number in range(2 * MAX_SERIES)]
    quiet = [(subject, "created 4 pods") for subject in (OF_ITS_NAMESPACE, OF_ANOTHER)]
    async with recording(gateway, bucket=TokenBucket(burst=1, per_second=1e6)) as recorder:
        for subject, note in (*quiet, *many, *quiet):
            recorder.record(subject, "Normal", "Noise", note)
        await recorder.flush()
    counted = [event for event in await everywhere(gateway) if event["note"] == "created 4 pods"]
    assert [dig(event, "series", "count") for event in counted] == [2, 2]
    assert len(await everywhere(gateway)) == MAX_SERIES


@virtual_time
async def test_memory_is_bounded_and_the_oldest_words_are_forgotten_first(gateway: FakeGateway) -> None:
    async with recording(gateway, bucket=TokenBucket(burst=1, per_second=1e6)) as recorder:
        for number in range(MAX_SERIES + 5):
            recorder.record(JOB, "Normal", "Noise", f"number {number}")
        await recorder.flush()
    notes = {event["note"] for event in stored(gateway)}
    assert len(notes) == MAX_SERIES
    assert "number 0" not in notes
    assert f"number {MAX_SERIES + 4}" in notes


@virtual_time
async def test_an_event_is_offered_again_to_a_server_that_does_not_answer(gateway: FakeGateway) -> None:
    gateway.fail("create", EVENTS, NO_ANSWER, times=2)
    gateway.fail("create", EVENTS, TooManyRequests("slow down", status=429, retry_after=20.0))
    assert len(await recorded((JOB, "created 4 pods"), gateway=gateway)) == 1
    assert loop_time() > 20.0


@virtual_time
async def test_an_event_that_cannot_be_written_is_given_up_and_the_next_one_is_written(gateway: FakeGateway) -> None:
    gateway.fail("create", EVENTS, NO_ANSWER, times=MAX_ATTEMPTS)
    gateway.fail("create", EVENTS, Forbidden("namespace is being terminated", status=403))
    async with recording(gateway) as recorder:
        recorder.record(JOB, "Normal", "Lost", "no answer")
        await recorder.flush()
        recorder.record(JOB, "Normal", "Lost", "forbidden")
        await recorder.flush()
        recorder.record(JOB, "Normal", "PodsCreated", "created 4 pods")
        await recorder.flush()
    assert [event["reason"] for event in stored(gateway)] == ["PodsCreated"]


@virtual_time
async def test_a_repetition_of_an_event_that_the_server_has_forgotten_is_a_new_event(gateway: FakeGateway) -> None:
    async with recording(gateway) as recorder:
        recorder.record(JOB, "Normal", "PodsCreated", "created 4 pods")
        await recorder.flush()
        gateway.remove(EVENTS, gateway.names(EVENTS)[0])
        recorder.record(JOB, "Normal", "PodsCreated", "created 4 pods")
        await recorder.flush()
    assert len(stored(gateway)) == 1


@virtual_time
async def test_a_note_is_cut_to_what_the_server_takes_between_characters() -> None:
    (event,) = await recorded((JOB, "ä" * 2000))
    note = event["note"]
    assert isinstance(note, str)
    assert note.endswith("ä…")
    assert len(note.encode()) <= MAX_NOTE_BYTES


@virtual_time
async def test_counts_of_a_job_that_is_gone_are_dropped(gateway: FakeGateway) -> None:
    async with recording(gateway) as recorder:
        recorder.record(JOB, "Normal", "PodsCreated", "created 4 pods")
        await recorder.flush()
        recorder.forget(JOB.uid)
        recorder.record(JOB, "Normal", "PodsCreated", "created 4 pods")
        await recorder.flush()
    assert len(stored(gateway)) == 2
