"""How the operator's parts are put together."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from dtj.app import run
from dtj.app.settings import OperatorSettings
from dtj.engine.metrics import Metrics
from support.fake_gateway import FakeGateway

pytestmark = pytest.mark.unit


class Connections:
    """Stands for the gateway's class; each connection is an API server of its own."""

    def __init__(self) -> None:
        self.made: list[FakeGateway] = []
        self.closed = 0

    async def connect(self, source: object, **_: object) -> FakeGateway:
        gateway = FakeGateway()
        gateway.close = self._close  # type: ignore[attr-defined]
        self.made.append(gateway)
        return gateway

    async def _close(self) -> None:
        self.closed += 1


async def test_the_lease_is_renewed_over_connections_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    connections = Connections()
    monkeypatch.setattr(run, "KubeGateway", connections)
    settings = OperatorSettings(leader_elect=True, lease_namespace="here")
    async with AsyncExitStack() as stack:
        lease = await run._lease(stack, Metrics(), settings)
        assert lease is not None
        await lease.acquire()
        (gateway,) = connections.made
        assert [str(call) for call in gateway.calls] == ["get leases dtj-operator", "create leases dtj-operator"]
    assert connections.closed == 1
