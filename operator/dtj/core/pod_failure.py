"""Why a pod ended: by its own work, or by the infrastructure's will.

One table, first match wins. An infrastructure that takes a pod away is no failure of the job, whatever the exit code.
The end of a pod is the end of its main container: what other containers do decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from dtj.core.end_reasons import Field, class_of_container_reason, class_of_pod_reason, is_of_node
from dtj.core.end_reasons import PodFailureClass as PodFailureClass
from dtj.core.observed import Phase, Pod

EARLIEST: Final = datetime.min.replace(tzinfo=UTC)
"""When something ended that is the cause of what ended at a known time, most likely."""

LATEST: Final = datetime.max.replace(tzinfo=UTC)
"""When something ended of which no time is known."""

GRACEFUL_EXIT_CODES: Final = frozenset({42, 143})
"""Exit codes of a trainer that was asked to stop: everything saved, or nothing to save (SIGTERM)."""

SIGTERM_EXIT_CODE: Final = 143

PEER_LOST_EXIT_CODE: Final = 75
"""Exit code of a trainer whose peer went away (EX_TEMPFAIL): a follow-up, not a cause."""

USAGE_EXIT_CODE: Final = 2
"""Exit code of the trainer and the launcher for what they cannot use as given."""

NO_RESTART_HELPS: Final = "dtj: no restart can help"
"""The first line of the termination message with which they say that another start would end in the same way.

Other programs end with 2 too: argparse does. None of them writes this line by chance.
"""

MIN_RUN: Final = timedelta(seconds=30)
"""A pod that nobody was seen telling to go must have run so long for its 42 or 143 to be believed."""

_NODE_PRESSURE: Final = "The node was low on resource"
_OWN_LIMIT: Final = re.compile(r"exceed(s|ed) (the|its)\b")


@dataclass(frozen=True, slots=True)
class PodEnd:
    """The end of a pod, or its removal that goes on: why, and since when."""

    pod: Pod
    failure_class: PodFailureClass
    at: datetime
    note: str = ""
    """What the ends of others and earlier ones add to it, for people."""

    @property
    def by_infrastructure(self) -> bool:
        """Whether this is no failure of the job's own."""
        classes = (PodFailureClass.PREEMPTION, PodFailureClass.DISRUPTION, PodFailureClass.PEER_LOST)
        return self.failure_class in classes


def last_words(message: str, exit_code: int) -> tuple[str, bool]:
    """A termination message without the line of ours before it, and whether it says that no restart can help."""
    first, _, words = message.partition("\n")
    final = exit_code == USAGE_EXIT_CODE and first.rstrip() == NO_RESTART_HELPS
    return (words, True) if final else (message, False)


def ends_of(pods: Iterable[Pod]) -> tuple[PodEnd, ...]:
    """The pods of one attempt that have ended or are being taken away by others, the earliest first.

    Where one pod was asked to stop, its peers may save and leave with it: their 42 or 143 is believed at once.
    """
    pods = tuple(pods)
    together = any(was_taken_away(pod) for pod in pods)
    found = (
        PodEnd(pod, failure_class, _at(pod, failure_class))
        for pod in pods
        if (failure_class := _class_of(pod, together=together)) is not None
    )
    return tuple(sorted(found, key=lambda ended: ended.at))


def with_restart_by_kubelet(pod: Pod, ready_since: datetime | None) -> Pod:
    """A pod whose main container its kubelet has started again since all pods were ready: the run before is its end.
    Its peers may wait for a process that is gone. Of an earlier restart nobody knows whether it matters."""
    end = pod.last_end
    if end is None or end.finished_at is None or ready_since is None or end.finished_at <= ready_since:
        return pod
    return replace(pod, termination=end)


def ended_at(pod: Pod) -> datetime:
    """When the main container ended."""
    end = pod.termination.finished_at if pod.termination is not None else None
    return end or LATEST


def by_its_own_fault(pod: Pod) -> bool:
    """Whether the kubelet ended the pod, or did not admit it, for what the pod itself is or did."""
    if pod.reason == "Evicted":  # for its own use of storage
        return not pod.message.startswith(_NODE_PRESSURE) and _OWN_LIMIT.search(pod.message) is not None
    return class_of_pod_reason(pod.reason) is PodFailureClass.USER_ERROR


def _class_of(pod: Pod, *, together: bool) -> PodFailureClass | None:
    if not pod.main_container_ended:
        return PodFailureClass.DISRUPTION if pod.terminating else None
    requested = _requested_before_end(pod)
    if by_its_own_fault(pod) and not requested:
        return PodFailureClass.USER_ERROR
    if pod.succeeded:
        return PodFailureClass.DISRUPTION if requested or _left_with_0_on_request(pod) else PodFailureClass.COMPLETED
    end = pod.termination
    code = end.exit_code if end is not None and not end.init_container else None
    if code in GRACEFUL_EXIT_CODES and (requested or pod.disrupted or together or _left_unasked(pod)):
        return PodFailureClass.PREEMPTION
    if was_taken_away(pod):
        return PodFailureClass.DISRUPTION
    if end is None:
        return (
            PodFailureClass.DISRUPTION if pod.reason else PodFailureClass.USER_ERROR
        )  # not admitted, by a word that is not known
    known = class_of_container_reason(end.reason, end.exit_code)
    if known is PodFailureClass.OUT_OF_MEMORY and end.init_container:
        return PodFailureClass.USER_ERROR  # more memory for the main container would not help
    return known or (PodFailureClass.PEER_LOST if code == PEER_LOST_EXIT_CODE else PodFailureClass.USER_ERROR)


def was_taken_away(pod: Pod) -> bool:
    """Whether the infrastructure took the pod away, or does so now."""
    if not pod.main_container_ended:
        return pod.terminating
    if _requested_before_end(pod):
        return True
    if by_its_own_fault(pod):
        return False
    return pod.disrupted or class_of_pod_reason(pod.reason) is PodFailureClass.DISRUPTION


def of_node(pod: Pod) -> bool:
    """Whether a pod is lost by a fault of its node that the next one may meet there again.

    Nobody asked it to go, or the node does not answer. A drain, an eviction, a preemption or a shutdown is no fault.
    """
    if pod.terminating or pod.disrupted:
        return pod.silent
    end = pod.termination
    if end is None or end.init_container:
        return is_of_node(Field.POD, pod.reason)
    known = class_of_container_reason(end.reason, end.exit_code) is not None
    return is_of_node(Field.POD, pod.reason) or (known and is_of_node(Field.CONTAINER, end.reason))


def _left_with_0_on_request(pod: Pod) -> bool:
    """Whether a script may have left with 0 because it was asked to stop: it has not completed then.

    The clocks of its node and of the API server differ, so that the times of its end and of its deletion are not
    compared where a drain has left its mark. Training that was done in fact resumes at its end, and leaves at once.
    """
    return (pod.disrupted and pod.terminating) or (pod.phase is Phase.FAILED and was_taken_away(pod))


def _requested_before_end(pod: Pod) -> bool:
    return pod.deletion_requested_at is not None and pod.deletion_requested_at <= ended_at(pod)


def _left_unasked(pod: Pod) -> bool:
    """Whether a 42 or 143 is believed of a pod that nobody was seen telling to go.

    The kubelet leaves no mark on a pod whose liveness or startup probe failed: its SIGTERM is an error of the training.
    A trainer that has saved before it left (42) goes on from there, whoever asked it to stop.
    """
    end = pod.termination
    if end is None or end.started_at is None or end.finished_at is None:
        return False
    return end.finished_at - end.started_at >= MIN_RUN and not (pod.probed and end.exit_code == SIGTERM_EXIT_CODE)


def _at(pod: Pod, failure_class: PodFailureClass) -> datetime:
    """When a pod ended. Where the node is at fault and its time is not known, or is that of the node's return, it
    ended before its peers, which lost it: they are not the cause."""
    requested, end = _requested_before_end(pod), pod.termination
    lost = end is None or class_of_container_reason(end.reason, end.exit_code) is PodFailureClass.DISRUPTION
    if failure_class is PodFailureClass.DISRUPTION and pod.main_container_ended and lost and not requested:
        return pod.created_at or EARLIEST
    known = (pod.deletion_requested_at if requested else None, ended_at(pod))
    return min(moment for moment in known if moment is not None)
