"""Whether the infrastructure caused an end that looks so. Without evidence a restart is free a few times in a row only.

A trainer that lost a peer, or that saved and left, says so by its exit code alone, and a program can leave with these
codes each time. Evidence is a pod that was taken away, or a step that was never reached before. What repeats without it
counts against ``backoffLimit``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from dtj.api.spec import COLLECTIVE
from dtj.api.status import JobStatus
from dtj.core.context import JobContext
from dtj.core.pod_failure import PodEnd, PodFailureClass
from dtj.core.pod_state import replica_of
from dtj.core.progress import progress

FREE_IN_A_ROW: Final = 3
"""Restarts in a row that nobody pays for although nothing shows that the infrastructure caused them."""

_BY_EXIT_CODE: Final = (PodFailureClass.PREEMPTION, PodFailureClass.PEER_LOST)


@dataclass(frozen=True)
class FreeRestarts:
    """Which ends of one pass a restart may follow for free. What that takes is found out once."""

    context: JobContext

    def judged(self, ended: PodEnd) -> PodEnd:
        """The same end; as an error of the training where it says that the infrastructure caused it and nothing shows
        so.

        A peer that has completed is not lost: who still waits for it made a call that not all workers make.
        """
        context = self.context
        if ended.failure_class not in _BY_EXIT_CODE or context.any_pod_taken_away:
            return ended
        collective = context.spec.strategy in COLLECTIVE
        peer = context.completed_peer if collective and ended.failure_class is PodFailureClass.PEER_LOST else None
        if peer is not None:
            waits = replica_of(ended.pod)
            who = waits.hostname if waits is not None else ended.pod.name
            note = f"{peer.hostname} has completed while {who} waits for it: all workers must make the same calls"
            return replace(ended, failure_class=PodFailureClass.USER_ERROR, note=note)
        if self._has_advanced:
            return ended
        if self._is_error_of_a_program(ended):
            return replace(ended, failure_class=PodFailureClass.USER_ERROR)
        before = context.job.status.restarts_without_evidence
        if before == 0:
            return ended
        note = f"it is restart {before + 1} in a row without a lost pod or a new step"
        if before < FREE_IN_A_ROW:
            return replace(ended, note=note)
        return replace(ended, failure_class=PodFailureClass.USER_ERROR, note=f"{note}, so it counts as an error")

    def recorded(self, status: JobStatus, failure_class: PodFailureClass) -> JobStatus:
        """``status`` with what later judgements need: restarts in a row without evidence, and the furthest step so
        far."""
        shown = failure_class is PodFailureClass.DISRUPTION or self.context.any_pod_taken_away or self._has_advanced
        more = int(failure_class in _BY_EXIT_CODE)
        without = 0 if shown else status.restarts_without_evidence + more
        update: dict[str, object] = {"restarts_without_evidence": without}
        if self._step is not None:
            update["furthest_step"] = max(self._step, status.furthest_step or 0)
        return status.model_copy(update=update)

    def _is_error_of_a_program(self, ended: PodEnd) -> bool:
        """Whether the code means an error in jobs of this form, as 75 does in a TFJob: only our trainer's is another.
        It follows from the end of another pod where one has failed."""
        end = ended.pod.termination
        by_code = end is not None and end.exit_code in self.context.job.form.exit_codes_of_errors
        return by_code and all(other.by_infrastructure for other in self.context.pod_ends)

    @cached_property
    def _step(self) -> int | None:
        reports = (progress(self.context), self.context.job.status.progress)
        return max((each.step for each in reports if each is not None and each.step is not None), default=None)

    @property
    def _has_advanced(self) -> bool:
        """Whether the training has been further than at any restart before."""
        furthest = self.context.job.status.furthest_step
        return self._step is not None and self._step > (furthest if furthest is not None else 0)
