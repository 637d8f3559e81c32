"""From the API server's words to typed errors and waiting times."""

from __future__ import annotations

import json
from itertools import islice

import pytest

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
    error_from_reply,
    error_from_status,
)
from dtj.kube.waiting import Backoff


def status(code: int, reason: str = "", message: str = "no", **details: object) -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    ).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Invalid),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (415, "UnsupportedMediaType", ApiError),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", Unavailable),
        (504, "Timeout", Unavailable),
    ],
)
def test_each_refusal_has_a_type_of_its_own(code: int, reason: str, kind: type[ApiError]) -> None:
    error = error_from_reply(code, status(code, reason), headers={})
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, reason, "no")


def test_field_errors_are_kept_with_their_fields() -> None:
    causes = [{"field": "spec.port", "message": "must be positive"}, {"message": "and so on"}]
    error = error_from_reply(422, status(422, "Invalid", causes=causes), headers={})
    assert error.causes == ("spec.port: must be positive", "and so on")


def test_the_header_says_when_to_come_back_and_else_the_body_does() -> None:
    body = status(429, "TooManyRequests", retryAfterSeconds=7)
    assert error_from_reply(429, body, headers={"Retry-After": "3"}).retry_after == 3.0
    assert error_from_reply(429, body, headers={}).retry_after == 7.0
    assert error_from_reply(429, body, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}).retry_after == 7.0


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("3600", 60.0), ("inf", 60.0), ("1e400", 60.0), ("nan", None), ("-5", None), ("-inf", None), ("0", 0.0)],
)
def test_whatever_time_a_server_or_a_proxy_names_it_is_asked_again_within_a_minute(
    given: str, seconds: float | None
) -> None:
    assert error_from_reply(503, b"maintenance", headers={"Retry-After": given}).retry_after == seconds
    if given.lstrip("-").isdecimal():
        in_body = status(429, "TooManyRequests", retryAfterSeconds=int(given))
        assert error_from_reply(429, in_body, headers={}).retry_after == seconds


@pytest.mark.parametrize("body", [b"", b"404 page not found\n", b"<html>proxy</html>", b'{"message": 7}', b"\xff\xfe"])
def test_an_answer_that_is_no_status_still_becomes_an_error(body: bytes) -> None:
    error = error_from_reply(502, body, headers={})
    assert type(error) is Unavailable
    assert error.message


def test_an_error_in_a_watch_has_its_code_in_its_body() -> None:
    assert type(error_from_status(status(410, "Expired"))) is Gone
    assert type(error_from_status(b"nonsense")) is Unavailable


def test_back_off_doubles_up_to_its_cap_with_jitter_and_never_ends() -> None:
    backoff = Backoff(base=1.0, cap=30.0)
    delays = list(islice(backoff, 2000))
    assert all(0.5 * 2**n <= delay <= 2**n for n, delay in enumerate(delays[:5]))
    assert all(15.0 <= delay <= 30.0 for delay in delays[5:])
    assert not hasattr(backoff, "__len__"), "kopf gives up at the end of what has a length"
