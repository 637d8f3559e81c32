"""What can go wrong next to the API server's own refusals, which are :class:`~dtj.kube.errors.ApiError`."""

from __future__ import annotations

from dtj.api.job import Job


class ClientError(Exception):
    """Base of all in this module; the message is whole: what, where, and what to do."""


class InvalidManifest(ClientError, ValueError):
    """A manifest that cannot be submitted. ``problems`` has a line for each thing wrong, naming its field."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class InvalidRequest(ClientError, ValueError):
    """What was asked cannot be done with this job, such as to scale one that is not elastic. Nothing was changed."""


class CodeError(ClientError, ValueError):
    """Code that cannot be brought into pods. The message names the file or the name, and the remedy, in one line."""


class WaitTimeout(ClientError, TimeoutError):
    """The time is over. ``job`` is as it was seen last; None if the cluster has not answered at all."""

    def __init__(self, message: str, *, job: Job | None) -> None:
        super().__init__(message)
        self.job = job


class WaitFailed(ClientError):
    """What is waited for will not come. ``job`` is as it was seen last."""

    def __init__(self, message: str, *, job: Job) -> None:
        super().__init__(message)
        self.job = job


class ConditionUnreachable(WaitFailed):
    """The job has ended otherwise."""


class JobGone(WaitFailed):
    """The job was deleted during the wait."""
