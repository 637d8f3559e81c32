"""Certificates of a store: the variables that name them, right and wrong."""

import ssl
from pathlib import Path

import pytest

from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store.bucket import Bucket, StoreFailed
from support.faulty_store import FaultyProxy
from testbed.pki import Authority
from trainer.stores import Store

BUNDLES = {"s3": "AWS_CA_BUNDLE", "gs": "REQUESTS_CA_BUNDLE"}
VARIABLES = (*BUNDLES.values(), "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _without_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("given", [True, False])
def test_a_store_with_a_certificate_of_an_authority_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, served: Store, tmp_path: Path, given: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority = Authority(tmp_path / "authority")
    issued = authority.issue("store", hosts=["127.0.0.1"])
    context.load_cert_chain(issued.certificate, issued.key)
    for name, value in served.environ.items():
        monkeypatch.setenv(name, value)
    if given:
        # As in the bundles of some systems.
        bundle = tmp_path / "bundle.crt"
        bundle.write_text(f"# Főtanúsítvány\n{authority.root.certificate.read_text()}", encoding="utf-8")
        monkeypatch.setenv(BUNDLES[served.scheme], str(bundle))
    with FaultyProxy(*served.contents.address).serving(context) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", proxy.url)
        place = Location(served.scheme, "bucket", "run")
        if given:
            Bucket.prove(place, option="--log-dir", writes=True, retry_seconds=5)
            return
        with pytest.raises((StoreFailed, UsageError)) as ended:
            Bucket.prove(place, option="--log-dir", writes=True, retry_seconds=1)
    assert "\n" not in str(ended.value)


@pytest.mark.parametrize(
    ("scheme", "name"), [("s3", "AWS_CA_BUNDLE"), ("gs", "REQUESTS_CA_BUNDLE"), ("gs", "CURL_CA_BUNDLE")]
)
@pytest.mark.parametrize(("content", "problem"), [(None, "no such file"), ("text", "no CA certificates in it")])
def test_a_wrong_bundle_of_certificates_is_one_line_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str, name: str, content: str | None, problem: str
) -> None:
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    monkeypatch.setenv(name, str(path))
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "https://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    with pytest.raises(UsageError) as ended:
        Bucket.prove(Location(scheme, "bucket", "run"), option="--log-dir", writes=True, retry_seconds=60)
    assert str(ended.value) == (
        f"--log-dir={scheme}://bucket/run: the object store cannot be used as configured ({name}={path}: {problem}); "
        "see docs/object-stores.md"
    )
