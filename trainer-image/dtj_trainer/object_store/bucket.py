"""Objects of a bucket. An error of its library ends in one line.

The error is `UsageError` if the remedy is with the user, `StoreFailed` if the store does not answer.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dtj_trainer.config.store_url import Location
from dtj_trainer.errors import TrainerError, UsageError
from dtj_trainer.object_store import gs, s3
from dtj_trainer.object_store.backend import PIECE, Cause, Entry, RequestFailed

_UPLOADS = 3
"""How often a file is uploaded that the store forgets in the middle."""
_START_RETRY_SECONDS = 15
_GUIDE = "see docs/object-stores.md"


class StoreFailed(TrainerError):
    """The object store does not answer, or answers with errors, for longer than a request is repeated."""


class Bucket:
    """The bucket of one location, as one option names it."""

    def __init__(self, location: Location, *, option: str, retry_seconds: float) -> None:
        """Args:
        option: that gave the location, for errors.
        retry_seconds: for how long a request that fails is repeated.

        Raises:
            UsageError: the library is missing, or the environment configures it in a way that cannot be.
        """
        self.location = location
        self.retry_seconds = retry_seconds
        self._named = f"{option}={location}"
        with self._reported():
            self._backend = self._open(retry_seconds)

    def _open(self, retry_seconds: float) -> gs.GoogleStorage | s3.S3:
        module, kind = (gs, gs.GoogleStorage) if self.location.scheme == "gs" else (s3, s3.S3)
        try:
            return kind(self.location, retry_seconds=retry_seconds)
        except ImportError:
            raise UsageError(
                f"{self._named}: the package {module.PACKAGE} is not installed; run pip install 'dtj-trainer[stores]', "
                "or in a checkout pip install './trainer-image[stores]'"
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
            next(iter(first.children()), None)

    def list(self, prefix: str) -> Iterator[Entry]:
        """The objects of the location's folder whose names, within it, begin with the prefix."""
        folder = f"{self.location.key}/" if self.location.key else ""
        with self._reported():
            yield from self._backend.list(folder + prefix)

    def find(self, key: str) -> Entry | None:
        """An object as a listing has it, without the listing of its folder; None if there is none."""
        with self._reported():
            return self._backend.find(key)

    def children(self, start: str = "") -> Iterator[str]:
        """The names of what is directly in the location's folder, those of folders with a / at their end.

        Those that begin so, and with a letter or a digit.

        What is below these folders may have any name: others may have put it there.
        """
        folder = f"{self.location.key}/" if self.location.key else ""
        with self._reported():
            keys = self._backend.children(folder + start)
            yield from dict.fromkeys("".join(key.removeprefix(folder).partition("/")[:2]) for key in keys)

    def read(self, key: str) -> bytes | None:
        """A small object; None if there is none."""
        with self._reported():
            try:
                return self._backend.read(key)
            except FileNotFoundError:
                return None

    def write(self, key: str, content: bytes) -> None:
        """Writes a small object in one request."""
        with self._reported():
            self._backend.write(key, content)

    def create(self, key: str, content: bytes) -> bool:
        """Writes a small object unless there is one of this name; returns whether it did.

        A store that does not know conditional requests may write it twice, for two tasks that ask at once. A request
        that is repeated may find the object that it has written itself, and say that it did not.
        """
        with self._reported():
            return self._backend.create(key, content)

    def delete(self, *keys: str) -> None:
        """Removes objects; one that is not there is no error."""
        with self._reported():
            for key in keys:
                try:
                    self._backend.delete(key)
                except FileNotFoundError:
                    continue

    def upload(self, path: Path, key: str) -> None:
        """Writes a file; the object is there when all of it is."""
        with self._reported():
            for left in reversed(range(_UPLOADS)):
                try:
                    self._backend.upload(path, key)
                    return
                except RequestFailed as failure:
                    if not left or failure.cause is not Cause.LOST_UPLOAD:
                        raise

    def download(
        self,
        key: str,
        size: int,
        path: Path,
        *,
        start: int = 0,
        may_change: bool = False,
        moved: Callable[[], object] = lambda: None,
    ) -> None:
        """Reads an object into a file, piece by piece.

        Args:
            start: bytes that the file has already; the rest is added to it.
            may_change: whether an object that is written anew meanwhile is taken as its pieces are: it only grows, or
                the caller has its digest.
            moved: called after each piece.

        Raises:
            StoreFailed: it changed while it was read.
            FileNotFoundError: there is no such object any more.
            OSError: the file cannot be written.
        """
        version = None
        with self._reported(), path.open("ab" if start else "wb") as file:
            for at in range(start, size, PIECE):
                end = min(size, at + PIECE)
                piece = self._backend.read_part(key, at, end)
                version = version or piece.version
                if len(piece.content) != end - at or (piece.version != version and not may_change):
                    raise StoreFailed(f"{self._named}: {key} changed while it was read; start the job again")
                file.write(piece.content)
                moved()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except RequestFailed as failure:
            raise error_of(self._named, self.location, failure) from None


def error_of(named: str, location: Location, failure: RequestFailed) -> TrainerError:
    """The end that a failed request means.

    Args:
        named: the option and its value.
    """
    reason = failure.reason or "no reason given"
    match failure.cause:
        case Cause.NO_BUCKET:
            return UsageError(
                f"{named}: there is no bucket {location.bucket}; create it, or give another URL", restart_may_help=True
            )
        case Cause.NO_CREDENTIALS:
            return UsageError(
                f"{named}: there are no credentials for {location.scheme}:// ({reason}); give them by the environment "
                f"of the pod template or by its service account ({_GUIDE})",
                restart_may_help=True,
            )
        case Cause.EXPIRED:
            return UsageError(
                f"{named}: the object store does not take these credentials any more ({reason}); give new ones by the "
                f"environment of the pod template or by its service account ({_GUIDE})",
                restart_may_help=True,
            )
        case Cause.ELSEWHERE:
            return UsageError(
                f"{named}: the bucket {location.bucket} is in another region or at another endpoint ({reason}); set "
                f"AWS_REGION to that of the bucket, or AWS_ENDPOINT_URL ({_GUIDE})"
            )
        case Cause.DENIED:
            return UsageError(
                f"{named}: access denied ({reason}); the credentials of this task need the right to list, read, write "
                f"and delete objects there ({_GUIDE})"
            )
        case Cause.NO_CERTIFICATES:
            return UsageError(
                f"{named}: this machine has no CA certificates, which https:// needs; install the package "
                "ca-certificates, or set SSL_CERT_FILE"
            )
        case Cause.CONFIGURATION:
            return UsageError(f"{named}: the object store cannot be used as configured ({reason}); {_GUIDE}")
        case Cause.NAME:
            return UsageError(f"{named}: an object has a name that cannot be used ({reason}); rename it")
        case Cause.NOT_FOUND:
            return UsageError(
                f"{named}: not found ({reason}); check the bucket and the endpoint", restart_may_help=True
            )
        case Cause.NO_ANSWER | Cause.LOST_UPLOAD:
            return StoreFailed(
                f"{named}: the object store does not answer as it should ({reason}); check its endpoint and the network"
            )
