"""What the tests of kube share: an API server in memory, as a gateway to it or behind one."""

from __future__ import annotations

import pytest

from support.fake_gateway import FakeGateway


@pytest.fixture
def server() -> FakeGateway:
    return FakeGateway()


@pytest.fixture
def gateway(server: FakeGateway) -> FakeGateway:
    return server
