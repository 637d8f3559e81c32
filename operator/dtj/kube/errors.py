"""What can go wrong with a call to the API server, as types that callers can tell apart."""

from __future__ import annotations

import socket


class ApiError(Exception):
    """The API server refused or failed a call.

    ``status`` is the HTTP status (0 if no answer came), ``reason`` the server's word for it
    (metav1.Status.reason), ``message`` its sentence, ``causes`` its field errors as ``field: message``.
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
        self.retry_after = retry_after


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
