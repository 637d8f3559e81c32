"""From an API server's refusal (metav1.Status) to the typed error that callers can tell apart."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from dtj.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    TooManyRequests,
    Unavailable,
)

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


_decode = msgspec.json.Decoder(_Status).decode


def error_from_reply(status: int, body: bytes, *, headers: Mapping[str, str]) -> ApiError:
    """The error of an answer with HTTP status ``status`` (400 or more), whoever on the way sent it."""
    try:
        answer = _decode(body)
    except msgspec.DecodeError:
        # A proxy's page, or the server's plain "404 page not found".
        answer = _Status(message=body[:_LONGEST_TEXT].decode(errors="replace").strip())
    return _error(answer, status=status, retry_after=_seconds(headers.get("Retry-After")))


def error_from_status(body: bytes) -> ApiError:
    """The error that a watch delivers as an event of type ERROR."""
    try:
        answer = _decode(body)
    except msgspec.DecodeError:
        answer = _Status(message=body[:_LONGEST_TEXT].decode(errors="replace"))
    return _error(answer, status=answer.code or HTTPStatus.INTERNAL_SERVER_ERROR, retry_after=None)


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
