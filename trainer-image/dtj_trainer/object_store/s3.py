"""Buckets of S3, by obstore, which is imported when the first one is opened: see docs/adr/0025."""

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from dtj_trainer.config.store_url import Location
from dtj_trainer.object_store.backend import (
    CONNECT_SECONDS,
    NOTHING,
    PAUSES,
    Cause,
    Entry,
    Part,
    RequestFailed,
    answer_seconds,
    bundle_of_certificates,
)

T = TypeVar("T")
PACKAGE = "obstore"
_PART = 5 * 2**20
"""Bytes of a part of a file that is uploaded: the fewest that S3 takes."""
_PARTS = 9_000
"""The most parts of a file: S3 takes 10,000."""
_AT_ONCE = 6
"""Parts of a file that are uploaded at the same time."""
_LIMITS = re.compile(r", max_retries: \d+, retry_timeout: \S+")
"""What the library adds of its configuration."""
_CODE = re.compile(r"(?:status code: (\d{3})[^<]*(?:<\?xml[^>]*>\s*)?)?<Error>.*?<Code>([^<]+)</Code>", re.DOTALL)
"""In an answer of the store: the status, if the library says it, and the code."""
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"})
_ELSEWHERE = frozenset(
    {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "PermanentRedirect", "TemporaryRedirect"}
)
_REDIRECT = "redirect without LOCATION"
"""What the library makes of a status of 301 or 307, without the code."""
_IS_SHORTER = "416 Range Not Satisfiable"
_NO_CREDENTIALS = (
    "Missing AccessKeyId",
    "Missing SecretAccessKey",
    "MissingCredentials",
    "169.254.169.254",
    "169.254.170.2",
    "/latest/api/token",
)


class S3:
    """The objects of one bucket: see `backend`."""

    def __init__(self, location: Location, *, retry_seconds: float) -> None:
        """Args:
        retry_seconds: for how long a request that fails is repeated.

        Raises:
            ImportError: the library is missing.
            RequestFailed: the environment configures it in a way that cannot be.
        """
        import obstore
        from obstore import exceptions

        self._library, self._errors = obstore, exceptions
        self._retry_seconds = retry_seconds
        with self._reported():
            self._store = _open(location, os.environ, retry_seconds)

    def list(self, prefix: str) -> Iterator[Entry]:
        # The library lists whole folders only.
        folder = prefix.rpartition("/")[0]
        with self._reported():
            found = self._again(lambda: [*chain.from_iterable(self._library.list(self._store, prefix=folder or None))])
        for one in found:
            if one["path"].startswith(prefix):
                yield Entry(one["path"], one["size"], _version(one))

    def find(self, key: str) -> Entry | None:
        """See `Bucket.find`."""
        with self._reported():
            try:
                one = self._again(lambda: self._library.head(self._store, key))
            except FileNotFoundError:
                return None
        return Entry(one["path"], one["size"], _version(one))

    def children(self, prefix: str) -> Iterator[str]:
        """See `Bucket.children`: keys here. One name that the library does not take spoils a listing as a whole."""
        folder = prefix.rpartition("/")[0]
        with self._reported():
            try:
                found = self._again(lambda: self._library.list_with_delimiter(self._store, prefix=folder or None))
                keys = [*(f"{one}/" for one in found["common_prefixes"]), *(one["path"] for one in found["objects"])]
            except self._errors.BaseError as error:
                if _cause(str(error), type(error).__name__) is not Cause.NAME:
                    raise
                # An empty part, as of `run//x`, and `.` come before the letters and digits that are asked for.
                start = prefix if prefix.rpartition("/")[2] else f"{prefix}0"
                listed = self._again(
                    lambda: [*chain.from_iterable(self._library.list(self._store, prefix=folder or None, offset=start))]
                )
                keys = [one["path"] for one in listed]
        yield from (key for key in keys if key.startswith(prefix))

    def read(self, key: str) -> bytes:
        with self._reported():
            return self._again(lambda: bytes(self._library.get(self._store, key).bytes()))

    def read_part(self, key: str, start: int, end: int) -> Part:
        def read() -> Part:
            try:
                found = self._library.get(self._store, key, options={"range": (start, end)})
            except self._errors.GenericError as error:
                if _IS_SHORTER not in str(error):
                    raise
                return NOTHING
            return Part(bytes(found.bytes()), _version(found.meta))

        with self._reported():
            return self._again(read)

    def write(self, key: str, content: bytes) -> None:
        with self._reported():
            try:
                self._library.put(self._store, key, content, use_multipart=False)
            except FileNotFoundError:
                # Nothing else can be missing.
                raise RequestFailed(Cause.NO_BUCKET) from None

    def create(self, key: str, content: bytes) -> bool:
        """See `Bucket.create`."""

        def create() -> bool:
            try:
                self._library.put(self._store, key, content, use_multipart=False, mode="create")
            except self._errors.AlreadyExistsError:
                return False
            except (self._errors.BaseError, NotImplementedError) as error:
                # The library's own NotImplementedError: AWS_CONDITIONAL_PUT=disabled.
                if not (isinstance(error, NotImplementedError) or _knows_no_conditions(str(error))):
                    raise
                return self._create_without_condition(key, content)
            return True

        with self._reported():
            return self._again(create)

    def _create_without_condition(self, key: str, content: bytes) -> bool:
        """For stores that refuse the header If-None-Match, as some that are like S3 do: two tasks that create an object
        at once both do."""
        try:
            self.read(key)
        except FileNotFoundError:
            self.write(key, content)
            return True
        return False

    def delete(self, key: str) -> None:
        with self._reported():
            self._again(lambda: self._library.delete(self._store, key))

    def upload(self, path: Path, key: str) -> None:
        size = max(_PART, math.ceil(path.stat().st_size / _PARTS))
        with self._reported():
            try:
                self._library.put(self._store, key, path, chunk_size=size, max_concurrency=_AT_ONCE)
            except FileNotFoundError as error:
                if "NoSuchUpload" not in str(error):
                    raise
                raise RequestFailed(Cause.LOST_UPLOAD, _without_limits(str(error))) from None

    def _again(self, request: Callable[[], T]) -> T:
        """What a request answers.

        The library repeats neither one whose answer stops in the middle, nor a DELETE or a conditional PUT that stalls.
        """
        until, pause = time.monotonic() + self._retry_seconds, PAUSES[0]
        while True:
            try:
                return request()
            except self._errors.GenericError as error:
                lasts = _cause(str(error), type(error).__name__) is not Cause.NO_ANSWER
                if lasts or time.monotonic() + pause > until:
                    raise
            time.sleep(pause)
            pause = min(2 * pause, PAUSES[1])

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            # An object that is not there is for the caller to judge.
            if "NoSuchBucket" not in str(error):
                raise
            raise RequestFailed(Cause.NO_BUCKET) from None
        except self._errors.BaseError as error:
            raise failure_of(str(error), type(error).__name__) from None


def _version(meta: Any) -> str:
    """Of an object, as the library describes it."""
    return str(meta["e_tag"] or meta["last_modified"])


def failure_of(text: str, kind: str) -> RequestFailed:
    """What an error of the library means.

    Args:
        text: of the error, in several lines.
        kind: the name of its class.
    """
    return RequestFailed(_cause(text, kind), _told_by_the_store(text) or _without_limits(text))


def _told_by_the_store(text: str) -> str:
    """Status, code and message that the store answered, in one line; empty if it did not answer with a code."""
    code = _CODE.search(text)
    if code is None:
        return "a redirect" if _REDIRECT in text else ""
    message = _MESSAGE.search(text, code.end())
    words = f"{code[1] or ''} {code[2]}{f': {message[1]}' if message else ''}"
    return " ".join(words.split())


def _knows_no_conditions(text: str) -> bool:
    """Whether the store refused a request for its header If-None-Match."""
    code = _CODE.search(text)
    return "501 Not Implemented" in text or (code is not None and code[2] == "NotImplemented")


def _without_limits(text: str) -> str:
    return _LIMITS.sub("", text)


def _cause(text: str, kind: str) -> Cause:
    if "NoSuchBucket" in text or "bucket does not exist" in text.lower() or "InvalidBucketName" in text:
        return Cause.NO_BUCKET
    if any(word in text for word in _NO_CREDENTIALS):
        return Cause.NO_CREDENTIALS
    code = found[2] if (found := _CODE.search(text)) else ""
    if code in _EXPIRED:
        return Cause.EXPIRED
    if code in _ELSEWHERE or _REDIRECT in text:
        return Cause.ELSEWHERE
    if kind in ("PermissionDeniedError", "UnauthenticatedError") or "403 Forbidden" in text:
        return Cause.DENIED
    if "No CA certificates" in text:
        return Cause.NO_CERTIFICATES
    if "object with invalid path" in text:
        return Cause.NAME
    if "BadScheme" in text or kind in ("UnknownConfigurationKeyError", "InvalidPathError", "NotSupportedError"):
        return Cause.CONFIGURATION
    return Cause.NOT_FOUND if kind == "NotFoundError" else Cause.NO_ANSWER


def _pem_of(bundle: Path) -> str:
    paths = sorted(path for path in bundle.iterdir() if path.is_file()) if bundle.is_dir() else [bundle]
    return "\n".join(path.read_text(encoding="ascii", errors="replace") for path in paths)


def _open(location: Location, environ: Mapping[str, str], retry_seconds: float) -> Any:
    from obstore.store import S3Store

    options: dict[str, Any] = {
        "connect_timeout": f"{CONNECT_SECONDS}s",
        "timeout": timedelta(seconds=answer_seconds(retry_seconds)),
    }
    retries: Any = {
        # The time decides alone.
        "max_retries": 10_000,
        "retry_timeout": timedelta(seconds=retry_seconds),
        "backoff": {
            "init_backoff": timedelta(seconds=PAUSES[0]),
            "max_backoff": timedelta(seconds=PAUSES[1]),
            "base": 2,
        },
    }
    # An endpoint without TLS, such as one of the cluster, is meant as it is written.
    endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    # Some stores have no request that removes several objects, and its answer hides a refusal of one of them.
    given: dict[str, Any] = {"disable_bulk_delete": True}
    if endpoint:
        given["endpoint"] = endpoint
    if endpoint.startswith("http://"):
        options["allow_http"] = True
    elif bundle := bundle_of_certificates(environ, "AWS_CA_BUNDLE"):
        options["root_certificate"] = _pem_of(bundle)
    if not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        given["region"] = "us-east-1"
    return S3Store(location.bucket, config=given, client_options=options, retry_config=retries)
