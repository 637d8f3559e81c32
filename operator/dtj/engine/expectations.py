"""Expectations: what we did that our own stores do not show yet.

After a create or a delete the informer lags by a moment. A plan made in that moment would see the pod missing
still, and ask for it again. So a job with open expectations is not planned until they are settled, or until a
time limit has passed: a lost event must not stop a job forever.

They belong to the job's namespace and UID, not to its name: a job that is deleted and created again under the same
name is not held up by what its predecessor did (training-operator#1306). The namespace is part of it because a pod of
another namespace may name any UID as its owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from dtj.kube.errors import ApiError
from dtj.kube.waiting import loop_time

TIME_LIMIT: Final = 30.0
"""Seconds after which an expectation counts as settled, whatever the informer says."""

Owner: TypeAlias = tuple[str, str]
"""(namespace, UID) of a job: see :attr:`dtj.api.job.Job.identity`."""


class Operation(StrEnum):
    """What was done."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Expectation:
    """One thing that an informer should show soon.

    ``name`` is the object's name where it was created, its UID where it was deleted, and both UID and content where it
    was changed: what is known of it before the call, since the event may overtake the call's own answer.
    """

    operation: Operation
    plural: str
    name: str


def told(uid: str, world: str) -> Expectation:
    """That a pod shows which replicas train together."""
    return Expectation(Operation.CHANGED, "pods", f"{uid} {world}")


class Expectations:
    """Open expectations by the owning job. Time is the event loop's."""

    def __init__(self) -> None:
        self._open: dict[Owner, dict[Expectation, float]] = {}

    def expect(self, owner: Owner, expectation: Expectation) -> None:
        """Must be called before the call that it is about."""
        self._open.setdefault(owner, {})[expectation] = loop_time() + TIME_LIMIT

    @contextmanager
    def expecting(self, owner: Owner, expectation: Expectation) -> Iterator[None]:
        """Expect what the call in the block does, unless it fails: then the next attempt finds out what took effect."""
        self.expect(owner, expectation)
        try:
            yield
        except ApiError:
            self.settle(owner, expectation)
            raise

    def settle(self, owner: Owner, expectation: Expectation) -> None:
        """The informer shows it, or the call failed. One that is not open is no error."""
        pending = self._open.get(owner)
        if pending is not None and pending.pop(expectation, None) is not None and not pending:
            del self._open[owner]

    def remaining(self, owner: Owner) -> float:
        """Seconds until this job may be planned at the latest; 0 if nothing is open."""
        now = loop_time()
        limits = self._open.get(owner, {})
        longest = max(limits.values(), default=now) - now
        if longest <= 0.0:
            self._open.pop(owner, None)
            return 0.0
        return longest

    def forget(self, owner: Owner) -> None:
        """The job is gone."""
        self._open.pop(owner, None)
