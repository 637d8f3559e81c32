"""What the tests of the engine share: an API server in memory."""

from __future__ import annotations

import pytest

from support.fake_gateway import FakeGateway


@pytest.fixture
def gateway() -> FakeGateway:
    return FakeGateway()
