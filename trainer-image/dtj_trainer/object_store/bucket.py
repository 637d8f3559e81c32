"""Objects of a bucket. An error of its library ends in one line.

The error is `UsageError` if the remedy is with the user, `StoreFailed` if the store does not answer.
"""

import os
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.object_store.client import NoCredentials, NotConfigured, open_client, repeated

_PIECE = 8 * 2**20
"""Bytes of one request that reads, so that a slow network moves them in its time."""
_PARTS_AT_ONCE = 6
"""Parts of a file, of 5 MiB, that are uploaded at the same time."""
_UPLOADS = 3
"""How often a file is uploaded that the store forgets in the middle."""
_START_RETRY_SECONDS = 15
_GUIDE = "see docs/object-stores.md"
_NO_BUCKET = re.compile("NoSuchBucket|InvalidBucketName|bucket does not exist", re.IGNORECASE)
_NO_CREDENTIALS = re.compile(
    r"Missing AccessKeyId|Missing SecretAccessKey|MissingCredentials|169\.254\.169\.254|169\.254\.170\.2"
    "|/latest/api/token|credential provider: RefreshError"
)
_LIMITS = re.compile(r", max_retries: \d+, retry_timeout: \S+")
"""What the library adds of its configuration."""


class StoreFailed(TrainerError):
    """The object store does not answer, or answers with errors, for longer than a request is repeated."""


@dataclass(frozen=True)
class Entry:
    """An object in a listing."""

    key: str
    size: int
    version: str
    """Another one each time that the object is written."""


class Bucket:
    """The bucket of one location, as one option names it."""

    def __init__(self, location: Location, *, option: str, retry_seconds: float) -> None:
        """Args:
        option: that gave the location, for errors.
        retry_seconds: for how long a request that fails is repeated.

        Raises:
            UsageError: a library is missing, or the environment has no credentials or other values that cannot be.
        """
        self.location = location
        self.retry_seconds = retry_seconds
        self._named = f"{option}={location}"
        try:
            import obstore.exceptions

            self._library = obstore
            with self._reported():
                self._client = open_client(location, os.environ, retry_seconds)
        except ImportError:
            raise UsageError(
                f"{self._named}: the libraries of object stores are not installed; "
                "run pip install 'dtj-trainer[stores]'"
            ) from None

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
        wanted = (f"{self.location.key}/" if self.location.key else "") + prefix
        # The library lists whole folders only.
        folder = wanted.rpartition("/")[0] or None
        with self._reported():
            for part in self._library.list(self._client, prefix=folder):
                for one in part:
                    if one["path"].startswith(wanted):
                        yield Entry(one["path"], one["size"], str(one["e_tag"] or one["last_modified"]))

    def read(self, key: str) -> bytes | None:
        """A small object; None if there is none."""
        try:
            with self._reported():
                return self._again(lambda: bytes(self._library.get(self._client, key).bytes()))
        except FileNotFoundError:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Writes a small object in one request."""
        with self._reported(missing="NoSuchBucket"):
            self._library.put(self._client, key, content, use_multipart=False)

    def create(self, key: str, content: bytes) -> bool:
        """Writes a small object unless there is one of this name; returns whether it did.

        A store that does not know conditional requests writes it in any case.
        """
        with self._reported(missing="NoSuchBucket"):
            try:
                self._library.put(self._client, key, content, use_multipart=False, mode="create")
            except self._library.exceptions.AlreadyExistsError:
                return False
        return True

    def delete(self, *keys: str) -> None:
        """Removes objects; one that is not there is no error."""
        for key in keys:
            try:
                with self._reported():
                    self._library.delete(self._client, key)
            except FileNotFoundError:
                continue

    def upload(self, path: Path, key: str) -> None:
        """Writes a file; the object is there when all of it is."""
        with self._reported():
            for left in reversed(range(_UPLOADS)):
                try:
                    self._library.put(self._client, key, path, max_concurrency=_PARTS_AT_ONCE)
                    return
                except FileNotFoundError as error:
                    if not left or "NoSuchUpload" not in str(error):
                        raise

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
        piece = self._again(lambda: bytes(self._library.get_range(self._client, key, start=start, end=end)))
        if len(piece) != end - start:
            raise StoreFailed(f"{self._named}: {key} changed while it was read; start the job again")
        return piece

    def _again(self, read: Callable[[], bytes]) -> bytes:
        """What a request answers: the library does not repeat one whose answer stops in the middle."""
        return repeated(read, after=self._library.exceptions.GenericError, seconds=self.retry_seconds)

    @contextmanager
    def _reported(self, *, missing: str = "") -> Iterator[None]:
        """Around requests: an error of the library becomes the end that it means.

        Args:
            missing: what is not there if something is not. Without it, an object that is missing is for the caller to
                judge, by a FileNotFoundError.
        """
        try:
            yield
        except FileNotFoundError as error:
            text = missing or str(error)
            if not ("NoSuchUpload" in text or _NO_BUCKET.search(text)):
                raise
            raise error_of(self._named, self.location, text, "NotFoundError") from None
        except (NotConfigured, NoCredentials, self._library.exceptions.BaseError) as error:
            raise error_of(self._named, self.location, str(error), type(error).__name__) from None


def error_of(named: str, location: Location, text: str, kind: str) -> TrainerError:
    """The end that an error of a library means.

    Args:
        named: the option and its value.
        text: of the error, in several lines.
        kind: the name of its class.
    """
    lines = _LIMITS.sub("", text).strip().splitlines()
    reason = lines[0].strip()[:200] if lines else "no reason given"
    if _NO_BUCKET.search(text):
        return UsageError(f"{named}: there is no bucket {location.bucket}; create it, or give another URL")
    if kind == "NoCredentials" or _NO_CREDENTIALS.search(text):
        return UsageError(
            f"{named}: there are no credentials for {location.scheme}:// ({reason}); give them by the environment "
            f"of the pod template or by its service account ({_GUIDE})"
        )
    # Without an answer of the server of tokens, nobody has refused anything.
    refused = kind in ("PermissionDeniedError", "UnauthenticatedError") and "TransportError" not in text
    if refused or "403 Forbidden" in text:
        return UsageError(
            f"{named}: access denied; the credentials of this task need the right to list, read, write and delete "
            f"objects there ({_GUIDE})"
        )
    if "No CA certificates" in text:
        return UsageError(
            f"{named}: this machine has no CA certificates, which https:// needs; install the package "
            "ca-certificates, or set SSL_CERT_FILE"
        )
    if kind in ("NotConfigured", "UnknownConfigurationKeyError", "InvalidPathError", "NotSupportedError"):
        return UsageError(f"{named}: the object store cannot be used as configured ({reason}); {_GUIDE}")
    if kind == "NotFoundError" and "NoSuchUpload" not in text:
        return UsageError(f"{named}: not found ({reason}); check the bucket and the endpoint")
    return StoreFailed(
        f"{named}: the object store does not answer as it should ({reason}); check its endpoint and the network"
    )
