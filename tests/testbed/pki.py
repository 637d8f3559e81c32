"""A certificate authority for one run: who issues is trusted by all of its processes and by nobody else."""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from testbed.cache import locked

VALID_FOR = datetime.timedelta(days=365)


@dataclass(frozen=True)
class KeyPair:
    """PEM files of a certificate and its private key."""

    certificate: Path
    key: Path

    def write(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        """Write both, the key readable by its owner alone."""
        write_key(self.key, key)
        self.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key as PEM, readable by its owner alone."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new P-256 key: made in under a millisecond, where RSA takes a hundred."""
    return ec.generate_private_key(ec.SECP256R1())


class Authority:
    """The run's certificate authority, in a directory. Made on first use, read from there later."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.root = KeyPair(directory / "ca.crt", directory / "ca.key")
        if not self.root.certificate.exists():
            directory.mkdir(mode=0o700, exist_ok=True)
            self._create()

    @property
    def bundle(self) -> str:
        """Its certificate, as the API server takes it from who registers a webhook."""
        return base64.b64encode(self.root.certificate.read_bytes()).decode()

    def issue(self, user: str, *, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> KeyPair:
        """A certificate for `user`, in `groups` (Kubernetes reads CN and O), valid as a server on `hosts` too.

        Hosts are DNS names and IP addresses. The same user gets the same files again.
        """
        name = "".join(c if c.isalnum() else "-" for c in user)
        pair = KeyPair(self._directory / f"{name}.crt", self._directory / f"{name}.key")
        # One process at a time: two that issue the same pair mix the key of one with the certificate of the other.
        with locked(self._directory / ".lock"):
            if not pair.certificate.exists():
                self._issue(pair, user, groups=groups, hosts=hosts)
        return pair

    def _issue(self, pair: KeyPair, user: str, *, groups: Sequence[str], hosts: Sequence[str]) -> None:
        key = new_key()
        subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        builder = _builder([*subject, x509.NameAttribute(NameOID.COMMON_NAME, user)], key)
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        issuer = x509.load_pem_x509_certificate(self.root.certificate.read_bytes())
        signer = serialization.load_pem_private_key(self.root.key.read_bytes(), password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        pair.write(builder.issuer_name(issuer.subject).sign(signer, hashes.SHA256()), key)

    def _create(self) -> None:
        key = new_key()
        name = [x509.NameAttribute(NameOID.COMMON_NAME, "dtj-testbed")]
        builder = _builder(name, key).issuer_name(x509.Name(name))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.root.write(builder.sign(key, hashes.SHA256()), key)


def _builder(subject: list[x509.NameAttribute[str]], key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + VALID_FOR)
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
