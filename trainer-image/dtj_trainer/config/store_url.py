"""Names of places in object stores, such as `s3://bucket/folder`. Standard library only."""

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dtj_trainer.errors import UsageError, may_pass
from dtj_trainer.local_files import make_own

SCHEMES = ("s3", "gs")
_SEPARATOR = "://"
_CREDENTIALS = re.compile(r"(?<=://)([^/@]*:.*|[^/]*)@")


@dataclass(frozen=True)
class Location:
    """A folder or an object of a bucket."""

    scheme: str
    bucket: str
    key: str
    """Without slashes at its ends; empty for the whole bucket."""

    @classmethod
    def of(cls, text: str) -> Self:
        """Of `s3://bucket/folder`.

        Raises:
            ValueError: the scheme is not known, or there is no bucket.
        """
        scheme, _, rest = text.partition(_SEPARATOR)
        if scheme not in SCHEMES:
            raise ValueError(f"give a path, or a URL with {' or '.join(f'{one}{_SEPARATOR}' for one in SCHEMES)}")
        bucket, _, key = rest.partition("/")
        if not bucket:
            raise ValueError(f"give the name of a bucket, as {scheme}{_SEPARATOR}bucket/folder")
        if "@" in bucket or ":" in bucket:
            raise ValueError("no bucket has such a name; give credentials by the environment, and the bucket alone")
        return cls(scheme, bucket, "/".join(part for part in key.split("/") if part))

    def __str__(self) -> str:
        return f"{self.scheme}{_SEPARATOR}{self.bucket}" + (f"/{self.key}" if self.key else "")

    def below(self, name: str) -> str:
        """The key of an object of this folder."""
        return f"{self.key}/{name}" if self.key else name


def without_credentials(text: str) -> str:
    """What was given, as a message may show it: a message gets into the log and the job's status."""
    return _CREDENTIALS.sub("...@", text)


def is_url(text: str) -> bool:
    """Whether it names a place in an object store, or would, if its scheme were known."""
    return _SEPARATOR in text


def place(text: str) -> Path | Location:
    """What an option that takes a directory or a URL means.

    Raises:
        ValueError: it is a URL that cannot be used.
    """
    return Location.of(text) if is_url(text) else Path(text)


DEFAULT_RETRY_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class StorePolicy:
    """How this task uses object stores."""

    cache: Path
    """The directory for local copies: a disk of this machine."""
    retry_seconds: float
    """For how long a request that fails is repeated."""

    def prepare_cache(self) -> None:
        """Makes the directory for local copies if no option names one; call it before anything is copied.

        It is in a place that all users of a machine share, under a name that they know: who makes it first could
        exchange checkpoints and data.

        Raises:
            UsageError: it is not this user's alone.
        """
        if self.cache != default_cache():
            return
        try:
            make_own(self.cache)
        except OSError as error:
            raise UsageError(
                f"{self.cache}: cannot be used for local copies of object stores ({error.strerror}); give a directory "
                "of your own with --store-cache, or set TMPDIR",
                restart_may_help=may_pass(error),
            ) from None

    def local_copy(self, location: Location, *parts: str) -> Path:
        """The directory for the local copy of a location.

        Args:
            parts: what distinguishes this copy from others of the same location, such as the name of a task.
        """
        digest = hashlib.sha256("\n".join((str(location), *parts)).encode()).hexdigest()[:16]
        return self.cache / digest


def default_cache() -> Path:
    """Where local copies are if no option names a directory.

    Raises:
        UsageError: nothing can be written where temporary files are.
    """
    try:
        return Path(tempfile.gettempdir()) / f"dtj-store-{os.getuid()}"
    except FileNotFoundError as error:
        # TensorFlow needs it as well: AutoGraph writes there what it makes of functions.
        raise UsageError(
            f"temporary files: {error.strerror}; mount a volume at /tmp, such as an emptyDir, or set TMPDIR to a "
            "directory that can be written and has room",
            restart_may_help=True,
        ) from None
