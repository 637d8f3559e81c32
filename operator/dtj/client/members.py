"""Which replicas of an elastic job do not train with the others, and why: an overview goes in, lines come out. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from dtj.api.names import Condition
from dtj.client.overview import Overview
from dtj.core.context import JobContext
from dtj.core.policies import members
from dtj.core.replicas import Replica
from dtj.core.status import is_ready


def waiting(overview: Overview) -> Iterator[str]:
    """A line for each replica that waits to join the others, or that the others wait for."""
    context, status = overview.context(), overview.job.status
    if context is None or context.world is None or overview.pods.unread or status.terminal or not status.start_time:
        return
    in_place = members.in_place(context)
    for replica in sorted(context.outsiders):
        why = _why(context, replica) if in_place else "for the first answer of the launcher; after 60 s all start again"
        yield f"{replica.hostname} waits {why}"
    for replica, due in (members.lost(context) if in_place else {}).items():
        if due is None:
            yield f"{replica.hostname} is not ready; the others wait for it, since fewer than minReplicas would be left"
        else:
            yield f"{replica.hostname} is not ready; the others go on without it at {due:%H:%M:%S} UTC"


def _why(context: JobContext, replica: Replica) -> str:
    """What keeps a replica from joining."""
    name = context.name_of(replica)
    pod = next((pod for pod in context.current if pod.name == name), None)
    if pod is None:
        ready = context.job.status.condition(Condition.PODS_READY)
        _, _, refusal = ready.message.partition(f"{name}: ") if ready is not None else ("", "", "")
        return "for its pod" + (f": {refusal}" if refusal else "")
    if pod.terminating or pod.main_container_ended:
        return "for its next pod"
    if is_ready(pod):
        return "until it has imported its program, and then joins within 10 s"
    return f"for its pod: {pod.blocker.message}" if pod.blocker is not None else "until its pod is ready"
