"""What a policy returns: the actions that it wants, and the status that they write, if they write one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dtj.api.status import JobStatus
from dtj.core.actions import Action, PatchStatus, Plan


@dataclass(frozen=True, slots=True)
class Decision:
    """Actions in their order. ``status`` is the status that they write; None if they write none, now at least.

    Without actions it is a decision as well: there is nothing to do but to wait.
    """

    actions: Plan = ()
    status: JobStatus | None = None
    alone: bool = False
    """Whether nothing is done next to it: the job goes, and with it all that it owns."""

    @classmethod
    def of(cls, *actions: Action) -> Decision:
        """These actions, none of which writes the status."""
        return cls(actions)

    @classmethod
    def write(cls, status: JobStatus) -> Decision:
        """Write this status."""
        return cls((PatchStatus(status),), status)

    def then(self, *actions: Action) -> Decision:
        """The same, followed by these actions."""
        return replace(self, actions=(*self.actions, *actions))

    def after(self, *actions: Action) -> Decision:
        """The same, preceded by these actions."""
        return replace(self, actions=(*actions, *self.actions))

    def if_written(self, *actions: Action) -> Decision:
        """The same; followed by these actions if the status is written, as an event that reports a change is."""
        return self.then(*actions) if self.status is not None else self
