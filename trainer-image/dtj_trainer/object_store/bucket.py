"""Objects of a bucket, by obstore, which is imported when the first bucket is opened: see docs/adr/0025.

The library repeats a request that fails for a while (503, a cut connection, no answer), within limits. An error that
is left ends in one line: `UsageError` if the remedy is with the user, `StoreFailed` if the store does not answer.
"""

import os
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from dtj_trainer.object_store.url import Location
from dtj_trainer.process.errors import TrainerError, UsageError

_PIECE = 16 * 2**20
"""Bytes of one request of a download."""
_PAUSES = (0.2, 5.0)
"""Seconds between two requests: at first, and at most."""
_START_RETRY_SECONDS = 15
_LIMITS = re.compile(r", max_retries: \d+, retry_timeout: \S+")
"""What the library adds of its configuration."""
_GUIDE = "see docs/object-stores.md"
_NO_CREDENTIALS = ("Missing AccessKeyId", "Missing SecretAccessKey", "MissingCredentials")


class StoreFailed(TrainerError):
    """The object store does not answer, or answers with errors, for longer than a request is repeated."""


@dataclass(frozen=True)
class Entry:
    """An object in a listing."""

    key: str
    size: int
    version: str
    """Its ETag, or when it was changed last where it has none."""


class Bucket:
    """The bucket of one location, as one option names it."""

    def __init__(self, location: Location, *, option: str, retry_seconds: float) -> None:
        """Args:
        option: that gave the location, for errors.
        retry_seconds: for how long a request that fails is repeated.

        Raises:
            UsageError: the scheme is not s3, the library is missing, or the environment configures it in a way that
                cannot be.
        """
        self.location = location
        self._named = f"{option}={location}"
        self._retry_seconds = retry_seconds
        if location.scheme != "s3":
            raise UsageError(
                f"{self._named}: {location.scheme}:// is for data only; use a directory of a mounted volume, or an "
                f"s3:// URL ({_GUIDE})"
            )
        try:
            import obstore
            from obstore import exceptions
        except ImportError:
            raise UsageError(
                f"{self._named}: the package obstore is not installed; run pip install 'dtj-trainer[stores]'"
            ) from None
        self._library, self._errors = obstore, exceptions
        with self._reported():
            self._store = _open(location, os.environ, retry_seconds)

    @classmethod
    def prove(cls, location: Location, *, option: str, writes: bool, retry_seconds: float) -> None:
        """Writes and removes a small object, or reads a listing, in a short time.

        Raises:
            UsageError: there is no such bucket, there are no credentials, or they do not allow it.
            StoreFailed: no answer in time.
        """
        first = cls(location, option=option, retry_seconds=min(retry_seconds, _START_RETRY_SECONDS))
        if writes:
            probe = location.below(f".dtj-probe-{uuid.uuid4().hex}")
            first.write(probe, b"dtj")
            first.delete(probe)
        else:
            next(iter(first.list("")), None)

    def list(self, prefix: str) -> Iterator[Entry]:
        """The objects of the location's folder whose names, within it, begin with the prefix."""
        folder = f"{self.location.key}/" if self.location.key else ""
        # The library lists whole folders only.
        parent = (folder + prefix).rpartition("/")[0]
        with self._reported():
            for part in self._library.list(self._store, prefix=parent or None):
                for one in part:
                    if one["path"].startswith(folder + prefix):
                        yield Entry(one["path"], one["size"], str(one["e_tag"] or one["last_modified"]))

    def read(self, key: str) -> bytes | None:
        """A small object; None if there is none."""
        with self._reported():
            try:
                return self._again(lambda: bytes(self._library.get(self._store, key).bytes()))
            except FileNotFoundError:
                return None

    def write(self, key: str, content: bytes) -> None:
        """Writes a small object in one request."""
        with self._reported():
            try:
                self._library.put(self._store, key, content, use_multipart=False)
            except FileNotFoundError:
                # Nothing else can be missing.
                raise explained(self._named, self.location, "NoSuchBucket", "NotFoundError") from None

    def create(self, key: str, content: bytes) -> bool:
        """Writes a small object unless there is one of this name; returns whether it did.

        A store that does not know conditional requests writes it in any case.
        """
        with self._reported():
            try:
                self._library.put(self._store, key, content, use_multipart=False, mode="create")
            except self._errors.AlreadyExistsError:
                return False
        return True

    def delete(self, *keys: str) -> None:
        """Removes objects; one that is not there is no error."""
        with self._reported():
            for key in keys:
                try:
                    self._library.delete(self._store, key)
                except FileNotFoundError:
                    continue

    def upload(self, path: Path, key: str) -> None:
        """Writes a file; the object is there when all of it is."""
        with self._reported():
            self._library.put(self._store, key, path)

    def download(self, key: str, size: int, path: Path, *, start: int = 0) -> None:
        """Reads an object into a file, piece by piece.

        Args:
            start: bytes that the file has already; the rest is added to it.

        Raises:
            FileNotFoundError: there is no such object any more.
            OSError: the file cannot be written.
        """
        with self._reported(), path.open("ab" if start else "wb") as file:
            for at in range(start, size, _PIECE):
                file.write(self._piece(key, at, min(size, at + _PIECE)))

    def _piece(self, key: str, start: int, end: int) -> bytes:
        piece = self._again(lambda: bytes(self._library.get_range(self._store, key, start=start, end=end)))
        if len(piece) != end - start:
            raise StoreFailed(f"{self._named}: {key} changed while it was read; start the job again")
        return piece

    def _again(self, read: Callable[[], bytes]) -> bytes:
        """What a request answers: the library does not repeat one whose answer stops in the middle."""
        until, pause = time.monotonic() + self._retry_seconds, _PAUSES[0]
        while True:
            try:
                return read()
            except self._errors.GenericError:
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, _PAUSES[1])

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Turns errors of the library into ours."""
        try:
            yield
        except FileNotFoundError as error:
            # An object that is not there is for the caller to judge.
            if "NoSuchBucket" not in str(error):
                raise
            raise explained(self._named, self.location, str(error), "NotFoundError") from None
        except self._errors.BaseError as error:
            raise explained(self._named, self.location, str(error), type(error).__name__) from None


def explained(named: str, location: Location, text: str, kind: str) -> TrainerError:
    """The end that an error of the library means.

    Args:
        named: the option and its value.
        text: of the error, in several lines.
        kind: the name of its class.
    """
    if "NoSuchBucket" in text or "bucket does not exist" in text.lower() or "InvalidBucketName" in text:
        return UsageError(f"{named}: there is no bucket {location.bucket}; create it, or give another URL")
    if _lacks_credentials(text):
        return UsageError(
            f"{named}: there are no credentials for {location.scheme}://; give them by the environment of the pod "
            f"template or by its service account ({_GUIDE})"
        )
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or "403 Forbidden" in text:
        return UsageError(
            f"{named}: access denied; the credentials of this task need the right to list, read, write and delete "
            f"objects there ({_GUIDE})"
        )
    if "BadScheme" in text or kind in ("UnknownConfigurationKeyError", "InvalidPathError", "NotSupportedError"):
        return UsageError(f"{named}: the object store cannot be used as configured ({_first(text)}); {_GUIDE}")
    if kind == "NotFoundError":
        return UsageError(f"{named}: not found ({_first(text)}); check the bucket and the endpoint")
    return StoreFailed(
        f"{named}: the object store does not answer as it should ({_first(text)}); check its endpoint and the network"
    )


def _lacks_credentials(text: str) -> bool:
    places = ("169.254.169.254", "169.254.170.2", "/latest/api/token")
    return any(place in text for place in places) or any(word in text for word in _NO_CREDENTIALS)


def _first(text: str) -> str:
    lines = text.strip().splitlines()
    return _LIMITS.sub("", lines[0]).strip()[:200] if lines else "no reason given"


def _open(location: Location, environ: Mapping[str, str], retry_seconds: float) -> Any:
    from obstore.store import S3Store

    options: dict[str, Any] = {"connect_timeout": "5s", "timeout": "60s"}
    retries: Any = {
        # The time decides alone.
        "max_retries": 10_000,
        "retry_timeout": timedelta(seconds=retry_seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=_PAUSES[0]),
            "max_backoff": timedelta(seconds=_PAUSES[1]),
            "base": 2,
        },
    }
    # An endpoint without TLS, such as one of the cluster, is meant as it is written.
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    given: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    if not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        given["region"] = "us-east-1"
    return S3Store(location.bucket, config=given, client_options=options, retry_config=retries)
