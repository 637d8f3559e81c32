"""The clients of S3 and of Google Cloud Storage: both by obstore, which is imported when a bucket is opened.

See docs/adr/0025. `bucket` says what its errors mean.
"""

import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any, TypeVar

from dtj_trainer.config.store_url import Location

T = TypeVar("T")
PAUSES = (0.2, 5.0)
"""Seconds between two requests: at first, and at most."""
_CONNECT_SECONDS = 5
_ANSWER_SECONDS = 5.0, 30.0
"""For how long a request may take until its whole answer is there: at least, and at most."""
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class NotConfigured(Exception):
    """The environment configures a client in a way that cannot be."""


class NoCredentials(Exception):
    """The environment has no credentials."""


def open_client(location: Location, environ: Mapping[str, str], retry_seconds: float) -> Any:
    """An obstore client of a bucket.

    Args:
        retry_seconds: for how long it repeats a request that fails.

    Raises:
        ImportError: a library is missing.
        NotConfigured, NoCredentials: see there.
        obstore.exceptions.BaseError: the environment has what the library does not take.
    """
    return (_google if location.scheme == "gs" else _s3)(location.bucket, environ, retry_seconds)


def repeated(request: Callable[[], T], *, after: type[Exception], seconds: float) -> T:
    """What a request answers; it is repeated after an error of this kind for this time."""
    until, pause = time.monotonic() + seconds, PAUSES[0]
    while True:
        try:
            return request()
        except after:
            if time.monotonic() + pause > until:
                raise
        time.sleep(pause)
        pause = min(2 * pause, PAUSES[1])


def _s3(bucket: str, environ: Mapping[str, str], retry_seconds: float) -> Any:
    from obstore.store import S3Store

    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    config: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        config["region"] = "us-east-1"
    return S3Store(bucket, config=config, **_limits(endpoint, environ, retry_seconds, "AWS_CA_BUNDLE"))


def _google(bucket: str, environ: Mapping[str, str], retry_seconds: float) -> Any:
    from obstore.store import GCSStore

    endpoint = environ.get("STORAGE_EMULATOR_HOST") or ""
    options = _limits(endpoint, environ, retry_seconds, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    # As it is stored: of an object that is compressed, the listing has the compressed size.
    options["client_options"]["default_headers"] = {"accept-encoding": "gzip"}
    if endpoint:
        return GCSStore(bucket, config={"base_url": endpoint}, credential_provider=_no_token, **options)
    return GCSStore(bucket, credential_provider=_google_token(retry_seconds), **options)


def _limits(endpoint: str, environ: Mapping[str, str], retry_seconds: float, *bundles: str) -> dict[str, Any]:
    """What both clients take: times, certificates, and whether TLS may be missing.

    Args:
        endpoint: in place of the provider's own; empty without one.
        bundles: variables of which the first that is set names certificates.
    """
    least, most = _ANSWER_SECONDS
    client: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
        # At most half of the time, so that a request that stalls is repeated.
        "timeout": timedelta(seconds=min(most, max(least, retry_seconds / 2))),
    }
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise NotConfigured(f"{endpoint}: the address of a store begins with http:// or https://")
    if endpoint.startswith("http://"):
        # Such an endpoint, for example of the cluster, is meant as it is written.
        client["allow_http"] = True
    elif name := next((name for name in bundles if environ.get(name)), None):
        client["root_certificate"] = _certificates(name, Path(environ[name]))
    backoff = {
        "init_backoff": timedelta(seconds=PAUSES[0]), "max_backoff": timedelta(seconds=PAUSES[1]), "base": 2,
    }  # fmt: skip
    # The time decides alone.
    retry = {"max_retries": 10_000, "retry_timeout": timedelta(seconds=retry_seconds), "backoff": backoff}
    return {"client_options": client, "retry_config": retry}


def _certificates(name: str, path: Path) -> str:
    """The CA certificates in the file or the directory that a variable names."""
    try:
        paths = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
        text = "\n".join(file.read_text(encoding="ascii") for file in paths)
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        raise NotConfigured(f"{name}={path}: no CA certificates in it") from None
    except FileNotFoundError:
        raise NotConfigured(f"{name}={path}: no such file") from None
    except OSError as error:
        raise NotConfigured(f"{name}={path}: {error.strerror or error}") from None
    return text


def _no_token() -> dict[str, Any]:
    """For an emulator, which asks for none."""
    return {"token": "none", "expires_at": None}


def _google_token(retry_seconds: float) -> Callable[[], dict[str, Any]]:
    """What fetches a token by google-auth, which knows more kinds of credentials than obstore."""
    import google.auth
    from google.auth import exceptions
    from google.auth.transport.requests import Request

    try:
        credentials, _ = google.auth.default(scopes=[_SCOPE])
    except exceptions.GoogleAuthError as error:
        raise NoCredentials(str(error)) from None

    def fetch() -> dict[str, Any]:
        repeated(lambda: credentials.refresh(Request()), after=exceptions.TransportError, seconds=retry_seconds)
        return {"token": credentials.token, "expires_at": credentials.expiry and credentials.expiry.replace(tzinfo=UTC)}

    return fetch
