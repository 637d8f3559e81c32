"""Certificates of a store: the variables that name them, right and wrong."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import UsageError
from dtj_trainer.object_store.bucket import Bucket, StoreFailed
from support.faulty_store import FaultyProxy
from trainer.stores import Store

BUNDLES = {"s3": "AWS_CA_BUNDLE", "gs": "REQUESTS_CA_BUNDLE"}
VARIABLES = (*BUNDLES.values(), "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")


@pytest.fixture(autouse=True)
def _without_bundles(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, for 127.0.0.1, and its key in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "store")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificates") / "store.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + private)
    return path


@pytest.mark.parametrize("given", [True, False])
def test_a_store_with_a_certificate_of_an_authority_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, served: Store, authority: Path, given: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority)
    for name, value in served.environ.items():
        monkeypatch.setenv(name, value)
    if given:
        monkeypatch.setenv(BUNDLES[served.scheme], str(authority))
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
