"""Slow replicas are reported in an event when they first show; nothing else is done about them."""

from __future__ import annotations

from dtj.api.names import Reason
from dtj.core.actions import Emit
from dtj.core.context import JobContext
from dtj.core.progress import progress
from dtj.core.stragglers import Straggler


def report_new(context: JobContext) -> tuple[Emit, ...]:
    """An event for each slow replica that the status does not list yet, and is about to."""
    before, now = context.job.status.progress, progress(context)
    known = before.stragglers if before is not None else ()
    listed = now.stragglers if now is not None else ()
    new = (s for s in context.observed.stragglers if s.hostname in listed and s.hostname not in known)
    return tuple(_event(context, straggler) for straggler in new)


def _event(context: JobContext, straggler: Straggler) -> Emit:
    node = next((pod.node for pod in context.current if f"{pod.role}-{pod.index}" == straggler.hostname), "")
    words = (
        f"{straggler.hostname} is slower than the others: its steps take {straggler.times:.1f} times as long as "
        f"the median" + (f"; look at node {node}" if node else "")
    )
    return Emit("Warning", Reason.STRAGGLING, words)
