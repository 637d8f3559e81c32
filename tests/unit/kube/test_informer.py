"""The informer: its store is what the API server has, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dtj.api.json import JsonObject
from dtj.api.names import Label
from dtj.kube.errors import ApiError, Gone, TooManyRequests, Unavailable
from dtj.kube.gateway import PODS, SERVICES
from dtj.kube.informer import Change, Informer
from dtj.kube.records import PodRecord, decode_pod
from dtj.kube.waiting import Backoff
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import loop_time, settled, virtual_time


def pod(name: str, *, phase: str = "Pending", namespace: str = "default", uid: str = "") -> JsonObject:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": {Label.JOB_NAME: "digits"}},
        "status": {"phase": phase},
    }


class Watched:
    """An informer at work, and what it reported: ``+name phase``, ``~name phase``, ``-name``."""

    def __init__(self, gateway: FakeGateway, **options: Any) -> None:
        self.reports: list[str] = []
        self.store: dict[str, str] = {}
        """The phases by name, as they follow from what was reported."""

        self.informer: Informer[PodRecord, tuple[str, str]] = Informer(
            gateway,
            PODS,
            decode=decode_pod,
            convert=lambda record: (record.metadata.name, record.status.phase),
            on_change=self._report,
            selector=Label.JOB_NAME,
            backoff=Backoff(base=1.0, cap=8.0),
            **{"namespace": "default", **options},
        )

    def _report(self, change: Change[tuple[str, str]]) -> None:
        if change.after is None:
            assert change.before is not None
            self.reports.append(f"-{change.before[0]}")
            del self.store[change.before[0]]
        else:
            self.store.update([change.after])
            self.reports.append(f"{'+' if change.before is None else '~'}{' '.join(change.after)}")


@asynccontextmanager
async def watching(gateway: FakeGateway, **options: Any) -> AsyncIterator[Watched]:
    watched = Watched(gateway, **options)
    task = asyncio.create_task(watched.informer.run())
    await settled()
    try:
        yield watched
        assert not task.done(), "nothing may end an informer"
    finally:
        task.cancel()


@virtual_time
async def test_what_is_there_at_the_start_is_listed_and_what_its_selector_leaves_out_is_never_seen() -> None:
    gateway = FakeGateway()

    def appear(when: str) -> None:
        gateway.put(PODS, pod(f"ours-{when}"))
        gateway.put(PODS, pod(f"elsewhere-{when}", namespace="other"))
        gateway.put(PODS, {"metadata": {"name": f"stranger-{when}"}})

    appear("before")
    async with watching(gateway) as watched:
        assert watched.informer.synced.is_set()
        appear("after")
        await settled()
        assert watched.reports == ["+ours-before Pending", "+ours-after Pending"]


@virtual_time
async def test_creations_changes_and_deletions_are_reported_in_order(gateway: FakeGateway) -> None:
    async with watching(gateway) as watched:
        gateway.put(PODS, pod("a"))
        gateway.put(PODS, pod("a", phase="Running"))
        gateway.remove(PODS, "a")
        await settled()
        assert watched.reports == ["+a Pending", "~a Running", "-a"]
        assert watched.store == {}


@virtual_time
async def test_a_change_that_changes_nothing_we_look_at_is_not_reported(gateway: FakeGateway) -> None:
    async with watching(gateway) as watched:
        gateway.put(PODS, pod("a"))
        gateway.put(PODS, {**pod("a"), "spec": {"priority": 7}})
        await settled()
        assert watched.reports == ["+a Pending"]


@virtual_time
async def test_what_vanished_while_nobody_watched_is_reported_as_deleted(gateway: FakeGateway) -> None:
    gateway.put(PODS, pod("ghost"))
    gateway.put(PODS, pod("stays"))
    async with watching(gateway) as watched:
        gateway.remove(PODS, "ghost", silently=True)
        gateway.expire_watches()
        await asyncio.sleep(2.0)
        assert watched.store == {"stays": "Pending"}
        assert watched.reports[2:] == ["-ghost"], "what stayed as it was is not reported again"


@virtual_time
async def test_another_object_under_the_same_name_is_an_end_and_a_beginning(gateway: FakeGateway) -> None:
    gateway.put(PODS, pod("a", uid="1"))
    async with watching(gateway) as watched:
        gateway.remove(PODS, "a", silently=True)
        gateway.put(PODS, pod("a", uid="2"))
        await settled()
        assert watched.reports == ["+a Pending", "-a", "+a Pending"]


@virtual_time
async def test_a_watch_that_breaks_is_resumed_where_it_was_without_listing_again_and_that_is_logged_once(
    gateway: FakeGateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with watching(gateway) as watched:
        gateway.put(PODS, pod("a"))
        await settled()
        gateway.break_watches(NO_ANSWER)
        await settled()
        gateway.put(PODS, pod("b"))
        await asyncio.sleep(2.0)
        assert watched.store == {"a": "Pending", "b": "Pending"}
        assert [call.verb for call in gateway.calls] == ["list", "watch", "watch"]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@virtual_time
async def test_a_bookmark_moves_the_place_from_which_a_watch_is_resumed(gateway: FakeGateway) -> None:
    async with watching(gateway):
        gateway.put(SERVICES, {"metadata": {"name": "of no interest"}})
        gateway.bookmark(PODS)
        await settled()
        gateway.compact()
        gateway.break_watches(NO_ANSWER)
        await asyncio.sleep(2.0)
        assert [call.verb for call in gateway.calls] == ["list", "watch", "watch"], "no 410, no second list"


@virtual_time
async def test_an_outage_is_waited_out_with_growing_delays_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gateway = FakeGateway()
    gateway.fail("list", PODS, NO_ANSWER, times=40)
    async with watching(gateway) as watched:
        await asyncio.sleep(60.0)
        attempts = len(gateway.calls)
        assert 8 <= attempts <= 20, "delays between 0.5 and 8 seconds"
        gateway.heal()
        gateway.put(PODS, pod("a"))
        await asyncio.sleep(8.0)
        assert watched.store == {"a": "Pending"}
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "connection refused" in caplog.messages[0]


@virtual_time
async def test_the_server_says_when_to_come_back(gateway: FakeGateway) -> None:
    gateway.fail("list", PODS, TooManyRequests("slow down", status=429, retry_after=42.0))
    async with watching(gateway) as watched:
        await watched.informer.synced.wait()
        assert loop_time() == 42.0


@virtual_time
async def test_a_server_that_forgets_our_place_at_once_is_asked_ever_more_rarely(gateway: FakeGateway) -> None:
    gateway.fail("watch", PODS, Gone("too old resource version", status=410), times=1000)
    async with watching(gateway) as watched:
        await asyncio.sleep(60.0)
        assert len(gateway.calls) <= 2 * 20, "delays between 0.5 and 8 seconds, each before a list and a watch"
        gateway.heal()
        await asyncio.sleep(8.0)
        gateway.put(PODS, pod("a"))
        gateway.expire_watches()
        gateway.put(PODS, pod("b"))
        await asyncio.sleep(1.0)
        assert set(watched.store) == {"a", "b"}, "a server that forgets now and then is no such server"


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("Timeout: Too large resource version: 900000, current: 4711", status=504, reason="Timeout"),
        Unavailable("etcdserver: leader changed", status=500, reason="InternalError"),
        TooManyRequests("slow down", status=429),
        Gone("the watch was silent for 90 s"),
    ],
    ids=["504", "500", "429", "silent"],
)
@virtual_time
async def test_a_watch_that_the_server_ends_with_an_error_is_followed_by_a_list(error: ApiError) -> None:
    """A watch from a version of the future shows nothing, forever: etcd was restored from a backup."""
    gateway = FakeGateway()
    gateway.put(PODS, pod("ghost"))
    async with watching(gateway) as watched:
        gateway.remove(PODS, "ghost", silently=True)
        gateway.break_watches(error)
        await asyncio.sleep(2.0)
        assert watched.store == {}
        assert [call.verb for call in gateway.calls] == ["list", "watch", "list", "watch"]


@virtual_time
async def test_a_list_with_a_lower_version_than_the_one_before_is_believed_and_reported(gateway: FakeGateway) -> None:
    for _ in range(9):
        gateway.put(PODS, pod("a", phase="Running"))
    turned: list[float] = []
    async with watching(gateway, on_turned_back=lambda: turned.append(loop_time())) as watched:
        gateway.restore(PODS, [{**pod("b"), "metadata": {**pod("b")["metadata"], "resourceVersion": "3"}}], version=5)  # type: ignore[dict-item]
        gateway.break_watches(Gone("too old resource version"))
        await asyncio.sleep(2.0)
        assert watched.store == {"b": "Pending"}
        assert len(turned) == 1
        gateway.put(PODS, pod("c"))
        await settled()
        assert set(watched.store) == {"b", "c"}, "the watch goes on from the list's version"


@virtual_time
async def test_an_object_that_cannot_be_read_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    gateway = FakeGateway()
    gateway.put(PODS, {**pod("broken"), "status": {"phase": 7}})
    async with watching(gateway) as watched:
        gateway.put(PODS, pod("a"))
        await settled()
        assert watched.store == {"a": "Pending"}
    assert "Pod default/broken cannot be read" in caplog.text
