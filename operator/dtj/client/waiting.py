"""What can be waited for, and whether a job is there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dtj.api.job import Job
from dtj.api.names import Condition
from dtj.client.errors import ConditionUnreachable, InvalidRequest

_KNOWN: Final = {kind.lower(): kind for kind in Condition}
_ENDS: Final = (Condition.COMPLETE, Condition.FAILED)


@dataclass(frozen=True, slots=True)
class WaitCondition:
    """A condition to become True, or where it is None, the end of the job, whichever it is."""

    condition: Condition | None

    @classmethod
    def parse(cls, word: str | None) -> WaitCondition:
        """``complete``, ``failed``, ``ready`` or any condition of a job, in any case of letters; None is either end.

        Raises InvalidRequest.
        """
        if word is None:
            return cls(None)
        found = _KNOWN.get(word.lower())
        if found is None:
            known = ", ".join(sorted(_KNOWN))
            raise InvalidRequest(f'"{word}" is not a condition of a job: wait for one of {known}')
        return cls(found)

    def met(self, job: Job) -> bool:
        """Whether it is so. Raises ConditionUnreachable where it cannot be any more.

        A condition that was computed before the job was changed, such as PodsReady right after a resume, says nothing
        about the job as it is wanted now; ends are for good.
        """
        if self.condition is None:
            return job.status.terminal
        condition = job.status.condition(self.condition)
        if condition is not None and condition.status == "True":
            current = not condition.observed_generation or condition.observed_generation >= job.generation
            if current or self.condition in _ENDS:
                return True
        if job.status.terminal:
            raise ConditionUnreachable(f"{job.name}: has ended ({job.status.state}), and will never be {self}", job=job)
        return False

    def __str__(self) -> str:
        return str(self.condition) if self.condition is not None else "at its end"


def where_it_is(job: Job) -> str:
    """The job's state in a few words: ``Starting (1/2 ready): Unschedulable``."""
    status = job.status
    if not status.state:
        return "new: no operator has seen it yet (is one running?)"
    ready = f" ({status.ready} ready)" if status.ready else ""
    return f"{status.state}{ready}" + (f": {status.reason}" if status.reason else "")
