"""Buckets of Google Cloud Storage, by google-cloud-storage, which is imported when the first one is opened.

It speaks the JSON API, at `STORAGE_EMULATOR_HOST` if that is set. See docs/adr/0025.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtj_trainer.compat import session_of
from dtj_trainer.config.store_url import Location
from dtj_trainer.object_store.backend import (
    CONNECT_SECONDS,
    NOTHING,
    PAUSES,
    PIECE,
    Cause,
    Entry,
    Part,
    RequestFailed,
    answer_seconds,
    bundle_of_certificates,
)

PACKAGE = "google-cloud-storage"
_LOST = (404, 410)
"""What the store answers if it does not know an upload."""
_NO_BACKGROUND = "DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"


class GoogleStorage:
    """The objects of one bucket: see `backend`."""

    def __init__(self, location: Location, *, retry_seconds: float) -> None:
        """Args:
        retry_seconds: for how long a request that fails is repeated.

        Raises:
            ImportError: the library is missing.
            RequestFailed: there are no credentials, or the bucket cannot have this name.
        """
        # Otherwise, a thread asks for a description of the bucket, to which these credentials need no right.
        os.environ.setdefault(_NO_BACKGROUND, "true")
        import requests
        from google.api_core import exceptions
        from google.auth import exceptions as auth_errors
        from google.cloud import storage
        from google.cloud.storage.retry import DEFAULT_RETRY

        from dtj_trainer.object_store.limited_http import LimitedAdapter

        self._errors, self._auth_errors, self._http_errors = exceptions, auth_errors, requests.exceptions
        retry = DEFAULT_RETRY.with_delay(initial=PAUSES[0], maximum=PAUSES[1], multiplier=2)
        self._limits: dict[str, Any] = {
            "retry": retry.with_timeout(retry_seconds),
            "timeout": (CONNECT_SECONDS, answer_seconds(retry_seconds)),
        }
        if not os.environ.get("STORAGE_EMULATOR_HOST", "").startswith("http://"):
            bundle_of_certificates(os.environ, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
        with self._reported():
            try:
                # Objects belong to a bucket: no request names a project.
                self._client = storage.Client(project=None)
                self._bucket = self._client.bucket(location.bucket)
                session = session_of(self._client)
                if not session.is_mtls:
                    for scheme in ("http://", "https://"):
                        session.mount(scheme, LimitedAdapter(answer_seconds(retry_seconds)))
            except ValueError as error:
                raise RequestFailed(Cause.CONFIGURATION, str(error)) from None

    def list(self, prefix: str) -> Iterator[Entry]:
        fields = "items(name,size,generation),nextPageToken"
        with self._reported(), self._of_the_bucket():
            for blob in self._client.list_blobs(self._bucket, prefix=prefix, fields=fields, **self._limits):
                yield Entry(blob.name, blob.size, str(blob.generation))

    def find(self, key: str) -> Entry | None:
        """See `Bucket.find`."""
        with self._reported():
            blob = self._bucket.get_blob(key, **self._limits)
        return blob and Entry(blob.name, blob.size, str(blob.generation))

    def children(self, prefix: str) -> Iterator[str]:
        """See `Bucket.children`: keys here."""
        yield from (entry.key for entry in self.list(prefix))

    def read(self, key: str) -> bytes:
        return self._read(key).content

    def read_part(self, key: str, start: int, end: int) -> Part:
        return self._read(key, start=start, end=end - 1)

    def write(self, key: str, content: bytes) -> None:
        with self._reported(), self._of_the_bucket():
            self._write(key, content)

    def create(self, key: str, content: bytes) -> bool:
        with self._reported(), self._of_the_bucket():
            try:
                self._write(key, content, if_generation_match=0)
            except self._errors.PreconditionFailed:
                return False
        return True

    def delete(self, key: str) -> None:
        with self._reported():
            self._bucket.blob(key).delete(**self._limits)

    def upload(self, path: Path, key: str) -> None:
        blob = self._bucket.blob(key, chunk_size=PIECE)
        with self._reported(), self._of_the_bucket():
            try:
                blob.upload_from_filename(str(path), **self._limits)
            except self._errors.ClientError as error:
                # A request without this name begins the upload.
                if error.code not in _LOST or "upload_id=" not in str(error.response.request.url):
                    raise
                raise RequestFailed(Cause.LOST_UPLOAD, _reason(error)) from None

    def _read(self, key: str, **part: int) -> Part:
        blob = self._bucket.blob(key)
        # As it is stored: of an object that is compressed, the listing has the compressed size.
        with self._reported():
            try:
                content = blob.download_as_bytes(raw_download=True, **part, **self._limits)
            except self._errors.RequestRangeNotSatisfiable:
                return NOTHING
        return Part(content, str(blob.generation))

    def _write(self, key: str, content: bytes, **conditions: int) -> None:
        self._bucket.blob(key).upload_from_string(
            content, content_type="application/octet-stream", **conditions, **self._limits
        )

    @contextmanager
    def _of_the_bucket(self) -> Iterator[None]:
        """Around requests for which nothing but the bucket can be missing."""
        try:
            yield
        except self._errors.NotFound:
            raise RequestFailed(Cause.NO_BUCKET) from None

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (
            self._errors.GoogleAPIError,
            self._auth_errors.GoogleAuthError,
            self._http_errors.RequestException,
        ) as error:
            raise self._failure_of(error) from None

    def _failure_of(self, error: Exception) -> Exception:
        """What an error of the library means."""
        if isinstance(error, self._errors.RetryError) and error.cause:
            error = error.cause
        reason = _reason(error)
        if isinstance(error, self._errors.NotFound):
            missing_bucket = "bucket does not exist" in reason
            return RequestFailed(Cause.NO_BUCKET) if missing_bucket else FileNotFoundError(reason)
        return RequestFailed(self._cause(error), reason)

    def _cause(self, error: Exception) -> Cause:
        if isinstance(error, (self._errors.Forbidden, self._errors.Unauthorized)):
            return Cause.DENIED
        if isinstance(error, (self._http_errors.MissingSchema, self._http_errors.InvalidSchema)):
            return Cause.CONFIGURATION
        if isinstance(error, self._auth_errors.GoogleAuthError):
            passes = isinstance(error, self._auth_errors.TransportError) or error.retryable
            return Cause.NO_ANSWER if passes else Cause.NO_CREDENTIALS
        return Cause.NO_ANSWER


def _reason(error: Exception) -> str:
    """What the store answered, in words: the library's own text has the whole request."""
    response = getattr(error, "response", None)
    if response is None:
        return str(error)
    try:
        message = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        message = ""
    return f"{response.status_code} {message or response.reason}"
