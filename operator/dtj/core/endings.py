"""Why a pod ended: by its own work, or by the infrastructure's will.

One table, first match wins. An infrastructure that takes a pod away is no failure of the job, whatever the exit code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from dtj.core.observed import Phase, Pod

LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""When something ended of which no time is known."""

PREEMPTED: Final = frozenset({42, 143})
"""Exit codes of a trainer that was told to go: everything saved, or nothing to save (SIGTERM)."""

PEER_LOST: Final = 75
"""Exit code of a trainer whose peer went away (EX_TEMPFAIL): a follow-up, not a cause."""

LEAST_RUN: Final = timedelta(seconds=30)
"""A pod that nobody was seen telling to go must have run so long for its 42 or 143 to be believed."""

_DISRUPTIONS: Final = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "Terminated", "Preempting", "UnexpectedAdmissionError"}
)
_OUT_OF_RESOURCE: Final = re.compile(r"OutOf[a-zA-Z0-9./-]+")
_NODE_PRESSURE: Final = "The node was low on resource"
_OWN_LIMIT: Final = re.compile(r"exceed(s|ed) (the|its)\b")


class Ending(StrEnum):
    """The classes of pod ends."""

    COMPLETED = "Completed"
    PREEMPTION = "Preemption"
    DISRUPTION = "Disruption"
    OUT_OF_MEMORY = "OutOfMemory"
    PEER_LOST = "PeerLost"
    USER_ERROR = "UserError"


@dataclass(frozen=True, slots=True)
class Ended:
    """A pod that has ended or is being taken away, why, and since when."""

    pod: Pod
    ending: Ending
    at: datetime

    @property
    def by_infrastructure(self) -> bool:
        """Whether this is no failure of the job's own."""
        return self.ending in (Ending.PREEMPTION, Ending.DISRUPTION, Ending.PEER_LOST)


def endings(pods: Iterable[Pod]) -> tuple[Ended, ...]:
    """The pods of one attempt that have ended or are being taken away by others, the earliest first.

    Where one pod was told to go, its peers may save and leave with it: their 42 or 143 is believed at once.
    """
    pods = tuple(pods)
    together = any(_taken_away(pod) for pod in pods)
    found = (Ended(pod, ending, _at(pod)) for pod in pods if (ending := _ending(pod, together=together)) is not None)
    return tuple(sorted(found, key=lambda ended: ended.at))


def ended_at(pod: Pod) -> datetime:
    """When the main container ended."""
    end = pod.termination.finished_at if pod.termination is not None else None
    return end or LATEST


def _ending(pod: Pod, *, together: bool) -> Ending | None:
    told = _told_before_end(pod)
    code = pod.termination.exit_code if pod.termination is not None else None
    if pod.phase is Phase.SUCCEEDED:
        return Ending.DISRUPTION if told else Ending.COMPLETED
    if pod.phase is not Phase.FAILED:
        return Ending.DISRUPTION if pod.terminating else None
    if code in PREEMPTED and (told or pod.disrupted or together or _ran_long(pod)):
        return Ending.PREEMPTION
    if told or _taken_away(pod):
        return Ending.DISRUPTION
    if pod.termination is not None and pod.termination.reason == "OOMKilled":
        return Ending.OUT_OF_MEMORY
    return Ending.PEER_LOST if code == PEER_LOST else Ending.USER_ERROR


def _taken_away(pod: Pod) -> bool:
    """Whether the infrastructure took the pod away, or does so now."""
    if pod.phase is not Phase.FAILED:
        return pod.terminating and (not pod.ended or _told_before_end(pod))
    if pod.reason == "Evicted" and not pod.message.startswith(_NODE_PRESSURE) and _OWN_LIMIT.search(pod.message):
        return False  # for its own use of storage
    by_reason = pod.reason in _DISRUPTIONS or _OUT_OF_RESOURCE.fullmatch(pod.reason) is not None
    return pod.disrupted or by_reason or _told_before_end(pod)


def _told_before_end(pod: Pod) -> bool:
    return pod.deletion_requested_at is not None and pod.deletion_requested_at <= ended_at(pod)


def _ran_long(pod: Pod) -> bool:
    end = pod.termination
    if end is None or end.started_at is None or end.finished_at is None:
        return False
    return end.finished_at - end.started_at >= LEAST_RUN


def _at(pod: Pod) -> datetime:
    known = (pod.deletion_requested_at if _told_before_end(pod) else None, ended_at(pod))
    return min(moment for moment in known if moment is not None)
