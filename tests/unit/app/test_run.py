"""How the operator's parts are put together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from dtj.api.form import DTJ, Form
from dtj.api.json import dig
from dtj.api.tfjob.form import TFJOB
from dtj.app import run
from dtj.app.settings import OperatorSettings
from dtj.app.startup import CredentialsRefused
from dtj.core.platform import Platform, ReplicaServiceNetwork
from dtj.engine.metrics import Metrics
from dtj.kube.errors import ApiError
from dtj.kube.gateway import JOBS, TFJOBS
from dtj.kube.lease import LEASES, THROTTLED, Lease, LeaseLost
from support.fake_gateway import NO_ANSWER, FakeGateway
from support.virtual_time import virtual_time


class Connections:
    """Stands for the gateway's class; each connection is an API server of its own."""

    def __init__(self) -> None:
        self.made: list[FakeGateway] = []
        self.closed = 0

    async def connect(self, source: object, **_: object) -> FakeGateway:
        gateway = FakeGateway()
        gateway.installed = {JOBS}
        gateway.close = self._close  # type: ignore[attr-defined]
        gateway.throttle = SimpleNamespace(limited=False)  # type: ignore[attr-defined]
        self.made.append(gateway)
        return gateway

    async def _close(self) -> None:
        self.closed += 1


async def test_the_lease_is_renewed_over_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections()
    monkeypatch.setattr(run, "KubeGateway", connections)

    async def acquire(lease: Lease, *_: object) -> None:
        await lease.acquire()

    monkeypatch.setattr(run, "_lead", acquire)
    settings = OperatorSettings(leader_elect=True, lease_namespace="here", health_port=0, metrics_port=0)
    await run._serve(settings, {DTJ: Platform()}, asyncio.Event())
    for_jobs, for_leases = connections.made
    assert [call.verb for call in for_jobs.calls] == ["discover"]
    assert [str(call) for call in for_leases.calls] == ["get leases dtj-operator", "create leases dtj-operator"]
    assert connections.closed == 2


async def test_the_lease_shows_that_the_api_server_limits_the_operator_and_no_longer_when_it_is_over() -> None:
    gateway = FakeGateway()
    throttled = [False]
    lease = Lease(gateway, namespace="here", name="dtj", identity="a", throttled=lambda: throttled[0])

    async def shown() -> object:
        await lease.acquire()
        return dig(gateway.body(LEASES, "dtj", namespace="here"), "metadata", "annotations", THROTTLED)

    assert await shown() is None
    throttled[0] = True
    assert await shown() == "true"
    throttled[0] = False
    assert await shown() is None
    assert [call.verb for call in gateway.calls] == ["get", "create", "get", "patch", "get", "patch"]


@virtual_time
async def test_an_operator_that_cannot_renew_its_lease_stops_what_it_does_and_ends() -> None:
    gateway = FakeGateway()
    running = asyncio.Event()

    async def operate() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            running.clear()

    lease = Lease(gateway, namespace="here", name="dtj-operator", identity="a")
    leading = asyncio.create_task(run._lead(lease, operate, asyncio.Event()))
    await asyncio.wait_for(running.wait(), 5.0)
    gateway.fail("get", LEASES, NO_ANSWER, times=10_000)
    with pytest.raises(LeaseLost, match="lease here/dtj-operator was not renewed for 10 s"):
        await leading
    assert not running.is_set()


async def test_the_operator_reports_that_it_runs_when_it_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before its handlers are in place, SIGTERM ends the process with another exit code than 0."""

    class Installed(Exception):
        """Stands for the moment in which the handlers are put in place."""

    def install(stop: object) -> None:
        assert "runs jobs" not in caplog.text
        raise Installed

    caplog.set_level("INFO")
    monkeypatch.setattr(run, "_stop_on_signals", install)
    with pytest.raises(Installed):
        await run.run(OperatorSettings())


class Played:
    """Stands for an engine: it works until it is stopped, or as ``works`` says."""

    made: list[Played]

    def __init__(self, *_: object, form: Form, **more: object) -> None:
        self.feed = SimpleNamespace(resource=JOBS if form is DTJ else TFJOBS)
        self.stopping = asyncio.Event()
        self.seen: list[str] = []
        self.synced, self.failing = True, ""
        Played.made.append(self)

    async def run(self, *, watch: Callable[[], Awaitable[object]]) -> None:
        self.seen.append("begun")
        try:
            await self.works()
        except asyncio.CancelledError:
            self.seen.append("cut off")
            raise

    async def works(self) -> None:
        await self.stopping.wait()
        await asyncio.sleep(3.0)
        self.seen.append("finished")

    def stop(self) -> None:
        self.stopping.set()


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    """An API server that serves jobs of both forms; engines are played."""
    Played.made = []
    monkeypatch.setattr(run, "Engine", Played)
    monkeypatch.setattr(run, "JobWatch", lambda *_, **more: SimpleNamespace(run=None))
    gateway = FakeGateway()
    gateway.installed = {JOBS, TFJOBS}
    gateway.clock = SimpleNamespace(now=None)  # type: ignore[attr-defined]
    gateway.server = "here"  # type: ignore[attr-defined]
    return gateway


def engines(gateway: FakeGateway) -> run._Engines:
    platforms = {DTJ: Platform(), TFJOB: Platform()}
    return run._Engines(gateway, OperatorSettings(), platforms, Metrics(), lease=None)  # type: ignore[arg-type]


def test_the_addresses_of_tfjobs_end_with_the_domain_that_is_set() -> None:
    network = run._platforms(OperatorSettings(tfjobs=True, tfjob_cluster_domain="cluster.local"))[TFJOB].network
    assert network == ReplicaServiceNetwork("cluster.local")


@virtual_time
async def test_an_operator_that_is_stopped_lets_each_engine_finish(gateway: FakeGateway) -> None:
    stop, known = asyncio.Event(), engines(gateway)
    assert not known.ready()
    operating = asyncio.create_task(known.run(stop))
    await asyncio.sleep(1.0)
    assert known.ready()
    stop.set()
    await operating
    assert [each.seen for each in Played.made] == [["begun", "finished"]] * 2


@virtual_time
async def test_an_engine_that_ends_by_itself_ends_the_operator(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def works(engine: Played) -> None:
        await asyncio.sleep(5.0 if engine.feed.resource == TFJOBS else 1000.0)

    monkeypatch.setattr(Played, "works", works)
    with pytest.raises(RuntimeError, match="the engine of tfjobs ended unexpectedly"):
        await engines(gateway).run(asyncio.Event())
    assert [each.seen for each in Played.made] == [["begun", "cut off"], ["begun"]]


@virtual_time
async def test_credentials_that_are_refused_later_end_the_operator_in_the_same_words_as_at_its_start(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: object) -> None:
        raise ApiError("Unauthorized", status=401)

    monkeypatch.setattr(gateway, "discover", refuse)
    with pytest.raises(CredentialsRefused, match="here does not accept our credentials: Unauthorized"):
        await engines(gateway).run(asyncio.Event())


@virtual_time
async def test_an_operator_that_must_end_no_longer_waits_for_a_crd(gateway: FakeGateway) -> None:
    gateway.installed = {JOBS}
    operating = asyncio.create_task(engines(gateway).run(asyncio.Event()))
    await asyncio.sleep(60.0)
    operating.cancel()
    await asyncio.wait([operating])
    asked = len(gateway.calls)
    await asyncio.sleep(60.0)
    assert len(gateway.calls) == asked
    assert [each.seen for each in Played.made] == [["begun", "cut off"], []]
