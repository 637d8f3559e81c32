"""The certificates of the testbed, which several processes of one run ask for."""

from __future__ import annotations

import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from testbed import pki
from testbed.pki import Authority, KeyPair

pytestmark = pytest.mark.unit

USERS = 20
AT_ONCE = 4
new_key = pki.new_key


def slow_key() -> ec.EllipticCurvePrivateKey:
    """A key that takes long enough for others to ask for the same one."""
    time.sleep(0.01)
    return new_key()


def test_who_asks_for_a_certificate_at_the_same_time_gets_the_same_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Authority(tmp_path / "pki")
    monkeypatch.setattr(pki, "new_key", slow_key)
    together = Barrier(AT_ONCE)

    def issue(_: int) -> list[KeyPair]:
        authority = Authority(tmp_path / "pki")
        pairs = []
        for user in range(USERS):
            together.wait()
            pairs.append(authority.issue(f"user-{user}"))
        return pairs

    with ThreadPoolExecutor(AT_ONCE) as pool:
        first, *others = pool.map(issue, range(AT_ONCE))
    assert all(pairs == first for pairs in others)
    for pair in first:
        # Raises SSLError if the key is not that of the certificate.
        ssl.create_default_context().load_cert_chain(pair.certificate, pair.key)
