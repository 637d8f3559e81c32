"""What can go wrong with a call to the API server, as types that callers can tell apart, and how they are made."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin

import msgspec

from dtj.kube.decoding import Unreadable, reader

LONGEST_RETRY_AFTER: Final = 60.0
"""Seconds that a server, or whatever stands before it, has us wait at most: "inf" must not end the work forever, and
with a page of maintenance that names an hour it may be back within moments."""


class ApiError(Exception):
    """The API server refused or failed a call.

    ``status`` is the HTTP status (0 if no answer came), ``reason`` the server's word for it
    (metav1.Status.reason), ``message`` its sentence, ``causes`` its field errors as ``field: message``.
    ``retry_after`` are the seconds after which it asks us to come back, ``LONGEST_RETRY_AFTER`` at most; None if it
    names no such time.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        causes: tuple[str, ...] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.causes = causes
        is_a_time = retry_after is not None and retry_after >= 0.0  # "nan" is none
        self.retry_after = min(retry_after or 0.0, LONGEST_RETRY_AFTER) if is_a_time else None


class NotFound(ApiError):
    """404: the object is not there."""


class AlreadyExists(ApiError):
    """409 AlreadyExists: an object of this name is there."""


class Conflict(ApiError):
    """409 Conflict: the object is no longer the version, or the UID, that the call named."""


class Gone(ApiError):
    """410: the resource version is too old to watch from; list again."""


class Invalid(ApiError):
    """400 or 422: the object breaks a rule of the server or of an admission webhook."""


class Forbidden(ApiError):
    """403: a right is missing, a quota is used up, or an admission plugin refused."""

    @property
    def wants_restricted(self) -> bool:
        """Whether the namespace enforces the Pod Security Standard "restricted", and the pod does not fit it."""
        return 'violates PodSecurity "restricted:' in self.message

    @property
    def lacks_priority_class(self) -> bool:
        """Whether the pod names a PriorityClass that does not exist."""
        return "no PriorityClass with name" in self.message


class TooManyRequests(ApiError):
    """429: ask again after ``retry_after`` seconds."""


class Unavailable(ApiError):
    """No answer, a time-out or a 5xx: whether the call took effect is not known."""


def transport_words(error: Exception) -> str:
    """What kept an answer from coming, in the words of the system and not of the HTTP library."""
    cause = getattr(error, "os_error", error)
    if isinstance(cause, ConnectionRefusedError):
        return "connection refused; is the server running, and the address right?"
    if isinstance(cause, socket.gaierror):
        return "the name of the server does not resolve"
    if isinstance(cause, TimeoutError) and not str(error):
        return "no answer in time; is the server overloaded, or a firewall between?"
    return str(error) or type(error).__name__


_LONGEST_TEXT = 512
"""How much of an answer that is no Status is worth repeating."""

_BY_STATUS: dict[int, type[ApiError]] = {
    HTTPStatus.BAD_REQUEST: Invalid,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.REQUEST_TIMEOUT: Unavailable,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Gone,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequests,
}


class _Cause(msgspec.Struct):
    field: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None
    retry_after: float | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_decode = reader(_Status)


def error_from_reply(status: int, body: bytes, *, headers: Mapping[str, str]) -> ApiError:
    """The error of an answer with HTTP status ``status`` (400 or more), whoever on the way sent it."""
    return _error(_read(body), status=status, retry_after=_seconds(headers.get("Retry-After")))


def error_of_redirect(status: int, asked: str, location: str) -> ApiError:
    """The error of a redirect, which no API server sends. The query of where it leads may hold a secret of a login."""
    target = urljoin(asked, location).partition("?")[0]
    return Unavailable(
        f"{asked.partition('?')[0]}: redirected to {target} (HTTP status {status}): log in to the proxy that is in "
        "between, or name the address of the API server itself"
    )


def error_from_status(body: bytes) -> ApiError:
    """The error that a watch delivers as an event of type ERROR."""
    answer = _read(body)
    return _error(answer, status=answer.code or HTTPStatus.INTERNAL_SERVER_ERROR, retry_after=None)


def _read(body: bytes) -> _Status:
    try:
        return _decode(body)
    except Unreadable:
        # A proxy's page, or the server's plain "404 page not found".
        return _Status(message=body[:_LONGEST_TEXT].decode(errors="replace").strip())


def _error(answer: _Status, *, status: int, retry_after: float | None) -> ApiError:
    kind = _BY_STATUS.get(status, Unavailable if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiError)
    if kind is Conflict and answer.reason == "AlreadyExists":
        kind = AlreadyExists
    details = answer.details or _Details()
    return kind(
        answer.message or f"HTTP status {status}",
        status=status,
        reason=answer.reason,
        causes=tuple(
            f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in details.causes or ()
        ),
        retry_after=retry_after if retry_after is not None else details.retry_after,
    )


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; its other form, a date, is not used by API servers."""
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
