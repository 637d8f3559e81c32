"""How a job can end, what was lost, and what is known of the cause."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from signal import Signals
from typing import Final

from dtj.api.names import Reason
from dtj.api.node_losses import Corrupt
from dtj.api.status import RootCause
from dtj.core.hints import hint
from dtj.core.messages import MAX_LOG_TAIL, cut
from dtj.core.observed import Pod
from dtj.core.pod_failure import PodEnd, PodFailureClass, by_its_own_fault

CLOCKS_DIFFER: Final = timedelta(seconds=5)
"""By how much the clocks of two nodes differ that are in order, and more."""


@dataclass(frozen=True, slots=True)
class Success:
    """The replicas that decide have completed."""

    message: str
    reason: Reason = Reason.TRAINING_SUCCEEDED


@dataclass(frozen=True, slots=True)
class Failure:
    """The job cannot succeed any more: why, and which pod's end it was, if it was one's."""

    reason: Reason
    message: str
    cause: RootCause | None = None


@dataclass(frozen=True, slots=True)
class PodLosses:
    """Replicas have ended, or are being taken away, before their work was done; the first of them is the cause."""

    ends: tuple[PodEnd, ...]

    @property
    def first(self) -> PodEnd:
        """The cause."""
        return self.ends[0]

    @property
    def message(self) -> str:
        """Who, and what became of it."""
        pod, note = self.first.pod, f"; {self.first.note}" if self.first.note else ""
        if not self.first.by_infrastructure:
            return how_it_failed(root_cause(self.first)) + note
        how = {
            PodFailureClass.PREEMPTION: "stopped on request and saved its work",
            PodFailureClass.PEER_LOST: "ended because replicas differ" if _differ(pod) else "lost a peer",
        }.get(self.first.failure_class, "was taken away")
        words = ", ".join(filter(None, (pod.reason, f"on node {pod.node}" if pod.node else "")))
        return f"{pod.role}-{pod.index} (pod {pod.name}) {how}" + (f" ({words})" if words else "") + note


def _differ(pod: Pod) -> bool:
    return pod.termination is not None and Corrupt.from_message(pod.termination.message) is not None


def root_cause(ended: PodEnd) -> RootCause:
    """What is known of the end of a pod."""
    pod = ended.pod
    end = pod.termination
    words = pod.message if by_its_own_fault(pod) or end is None else end.message
    words, reason = (words or pod.message).strip(), _reason(pod)
    if end is not None and end.init_container:
        words = f"init container {end.init_container}: {words or 'failed'}"
    words = words[-MAX_LOG_TAIL:]
    exit_code = end.exit_code if end is not None else None
    cause = RootCause(
        role=pod.role,
        index=pod.index,
        pod=pod.name,
        node=pod.node,
        exit_code=exit_code,
        signal=_signal(pod),
        reason=reason,
        message=cut(error_line(words)),
        log_tail=words,
        hint=hint(message=words, reason=reason, exit_code=exit_code),
    )
    return cause.model_copy(update={"kind": str(ended.failure_class)})


def _reason(pod: Pod) -> str:
    """The word for the end: the runtime's, or the kubelet's if it ended the pod for the pod's own fault."""
    end = pod.termination
    if end is None or by_its_own_fault(pod):
        return pod.reason
    return end.reason or pod.reason


def _signal(pod: Pod) -> int | None:
    """The signal that ended the container: as the runtime says, or as 128 + signal in the exit code."""
    end = pod.termination
    if end is None:
        return None
    if end.signal:
        return end.signal
    return end.exit_code - 128 if 128 < end.exit_code < 160 else None


def how_it_failed(cause: RootCause) -> str:
    """A failure in one line: the replica, how it ended, and its last words."""
    last_words = f": {cause.message}" if cause.message else ""
    return f"{cause.role}-{cause.index} (pod {cause.pod}) {how_replica_ended(cause)}{last_words}"


def how_replica_ended(cause: RootCause) -> str:
    """The end of a replica without its name: ``exited with code 137 (SIGKILL, OOMKilled)``."""
    return _ending(cause.exit_code, cause.signal, cause.reason)


def how_pod_ended(pod: Pod) -> str:
    """The end of a pod in the same words; ``succeeded`` if it did."""
    if pod.succeeded:
        return "succeeded"
    end = pod.termination
    return _ending(end.exit_code if end is not None else None, _signal(pod), _reason(pod))


def _ending(exit_code: int | None, signal: int | None, reason: str) -> str:
    """The reason Error is left out: the runtime gives it to every container that does not exit with 0."""
    how = f"exited with code {exit_code}" if exit_code is not None else "failed"
    words = ", ".join(filter(None, (_signal_name(signal), reason if reason != "Error" else "")))
    return f"{how} ({words})" if words else how


def _signal_name(signal: int | None) -> str:
    if signal is None:
        return ""
    return Signals(signal).name if signal in set(Signals) else f"signal {signal}"


_LOCATED: Final = re.compile(r"^\S+\.py:\d+: [A-Za-z_][\w.]*(: |$)")
"""What ``dtj_trainer.process.ending`` writes: ``train.py:12: ValueError: ...``."""

_FRAME: Final = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+)')
_ERROR: Final = re.compile(r"^[A-Za-z_][\w.]*(: |$)")
_LIBRARY: Final = re.compile(r"^<|/(site|dist)-packages/|/lib/python\d|/__autograph_generated_file")
"""Frames that are not the user's."""


def error_line(words: str) -> str:
    """``train.py:12: ValueError: shapes do not match``; the last line if no Python error is in the words.

    The words are what the trainer left, which begins with that line, or the end of a log with a traceback in it. The
    place is the innermost frame outside libraries. It is left out if the words have none.
    """
    lines = words.splitlines()
    if not lines or _LOCATED.match(lines[0]):
        return lines[0] if lines else ""
    last = max((number for number, line in enumerate(lines) if _FRAME.match(line)), default=None)
    if last is None:
        return lines[-1]
    after = (line for line in lines[last + 1 :] if line and not line.startswith(" "))
    error = next(after, "")
    if not _ERROR.match(error):
        return lines[-1]
    return f"{_place(lines[: last + 1])}{error}"


def _place(lines: list[str]) -> str:
    frames = [found for found in map(_FRAME.match, lines) if found and not _LIBRARY.search(found["file"])]
    return f"{frames[-1]['file'].rpartition('/')[2]}:{frames[-1]['line']}: " if frames else ""
