"""What `s3.py` and `gs.py` have in common, of which `Bucket` opens one by the scheme of a URL.

Each has the objects of one bucket, by the library for its kind of store, and the methods that `Bucket` calls. A request
that fails for a while (503, a cut connection, no answer) is repeated; then they raise RequestFailed. FileNotFoundError
says that there is no such object.
"""

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

PAUSES = (0.2, 5.0)
"""Seconds between two requests: at first, and at most."""
CONNECT_SECONDS = 5
_ANSWER_SECONDS = 5.0, 30.0
"""For how long a request may take until its whole answer is there: at least, and at most."""
PIECE = 8 * 2**20
"""Bytes of one request, so that a slow network moves them in that time: a multiple of 256 KiB."""


def answer_seconds(retry_seconds: float) -> float:
    """For how long one request may take, if requests are repeated for this time.

    At most half of it, so that one that stalls is repeated.
    """
    least, most = _ANSWER_SECONDS
    return min(most, max(least, retry_seconds / 2))


def bundle_of_certificates(environ: Mapping[str, str], *names: str) -> Path | None:
    """The file or directory of CA certificates that the first of these variables names; None if none is set.

    Raises:
        RequestFailed: it is not there, or holds no certificates.
    """
    name = next((name for name in names if environ.get(name)), None)
    if name is None:
        return None
    path = Path(environ[name])
    problem = ""
    try:
        if path.is_dir():
            return path
        # Not its content: that would have to be ASCII, and comments in it, which name the authorities, need not be.
        ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        problem = "no CA certificates in it"
    except FileNotFoundError:
        problem = "no such file"
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise RequestFailed(Cause.CONFIGURATION, f"{name}={path}: {problem}")
    return path


class Cause(Enum):
    """Why a request failed, by what has to be done about it."""

    NO_BUCKET = auto()
    NO_CREDENTIALS = auto()
    EXPIRED = auto()
    """The store does not take the credentials any more."""
    DENIED = auto()
    ELSEWHERE = auto()
    """The bucket is in another region, or at another endpoint."""
    NO_CERTIFICATES = auto()
    CONFIGURATION = auto()
    NAME = auto()
    """An object has a name that the library does not take."""
    NOT_FOUND = auto()
    LOST_UPLOAD = auto()
    """The store has forgotten an upload that was under way; it can be made from the beginning."""
    NO_ANSWER = auto()
    """No answer, or an error of the store, for longer than a request is repeated."""


class RequestFailed(Exception):
    """A request that cannot be repeated, or was repeated for long enough."""

    def __init__(self, cause: Cause, reason: str = "") -> None:
        """Args:
        reason: what the library reports, in several lines.
        """
        super().__init__(reason)
        self.cause = cause
        lines = reason.strip().splitlines()
        self.reason = lines[0].strip()[:200] if lines else ""
        """Its first line."""


@dataclass(frozen=True)
class Entry:
    """An object in a listing."""

    key: str
    size: int
    version: str
    """Another one each time that the object is written."""


@dataclass(frozen=True)
class Part:
    """Bytes of an object."""

    content: bytes
    version: str
    """Another one each time that the object is written."""


NOTHING = Part(b"", "")
"""What there is behind the end of an object."""


def files_among(entries: Sequence[Entry]) -> list[Entry]:
    """The objects that are files; what a console makes for an empty folder, an object of its name, is none."""
    folders = folders_of(entries)
    return [one for one in entries if not one.key.endswith("/") and (one.size or one.key not in folders)]


def folders_of(entries: Sequence[Entry]) -> set[str]:
    """The keys that other keys are below."""
    parts = (entry.key.rstrip("/").split("/") for entry in entries)
    return {"/".join(one[:depth]) for one in parts for depth in range(1, len(one))}
