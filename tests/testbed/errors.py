"""What can go wrong with the testbed, by what the caller should do about it."""


class Unavailable(RuntimeError):
    """The testbed cannot be had on this machine; the message says what is missing. Tests skip."""


class StartError(RuntimeError):
    """A process of the testbed ended or stayed silent; the message holds the end of its log. Tests fail."""


class ApiError(RuntimeError):
    """A server answered with an error. `code` is the HTTP status, `reason` the Kubernetes reason or ""."""

    def __init__(self, *, code: int, reason: str, message: str) -> None:
        super().__init__(f"{code} {reason}: {message}")
        self.code = code
        self.reason = reason


class KubectlError(RuntimeError):
    """kubectl exited with an error; the message is the command and what it wrote."""
