"""Nodes that lost the pods of a job again and again: ``status.nodeLosses``, and new pods that avoid such nodes.

A loss counts where it is a fault of the node (:func:`dtj.core.pod_failure.of_node`, or weights that only one worker
has). An error of the training does not, whatever its exit code: nobody can tell it from a defect of the node. A pod
that is gone without a trace does not, since its node is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from pydantic import JsonValue

from dtj.api.job import parse_time
from dtj.api.json import JsonObject, extend, fields_of, object_at
from dtj.api.names import DNS_SUBDOMAIN, Reason, matches
from dtj.api.node_losses import MAX_NODES, NodeLosses
from dtj.api.status import JobStatus
from dtj.core.actions import Emit
from dtj.core.pod_failure import PodEnd, of_node
from dtj.core.status import format_time

ENOUGH: Final = 2
"""Losses of a node after which new pods avoid it."""

AVOIDED_FOR: Final = timedelta(hours=1)
"""For how long after the latest loss. Losses before that are forgotten."""

ONE_LOSS: Final = timedelta(minutes=1)
"""Pods of a node that are lost within this time are lost by the same fault."""


def of_ends(status: JobStatus, ends: Iterable[PodEnd], now: datetime) -> JobStatus:
    """``status`` with the losses that these ends are; it is written with the restart that follows from them."""
    return recorded(status, {ended.pod.node for ended in ends if of_node(ended.pod)}, now)


def recorded(status: JobStatus, nodes: Iterable[str], now: datetime) -> JobStatus:
    """``status`` with a loss more of each of these nodes, if it is the name of one."""
    kept = {each.node: each for each in status.node_losses if _until(each, now) is not None}
    for node in sorted(node for node in nodes if matches(DNS_SUBDOMAIN, node)):
        before = kept.pop(node, NodeLosses(node=node))
        latest = parse_time(before.last_time)
        if latest is None or now - latest >= ONE_LOSS:
            before = before.model_copy(update={"count": before.count + 1, "last_time": format_time(now)})
        kept[node] = before  # the latest loss comes last
    losses = tuple(kept.values())[-MAX_NODES:]
    return status if losses == status.node_losses else status.model_copy(update={"node_losses": losses})


def avoided(status: JobStatus, now: datetime) -> dict[str, tuple[NodeLosses, datetime]]:
    """The nodes that new pods avoid, each with its losses and until when."""
    known = ((each, _until(each, now)) for each in status.node_losses if each.count >= ENOUGH)
    return {each.node: (each, until) for each, until in known if until is not None}


def _until(losses: NodeLosses, now: datetime) -> datetime | None:
    """Until when these losses count; None if they do not, or if their time is none, or lies ahead."""
    latest = parse_time(losses.last_time)
    if latest is None or not losses.node or not -ONE_LOSS < now - latest < AVOIDED_FOR:
        return None
    return latest + AVOIDED_FOR


def words(losses: NodeLosses, until: datetime) -> str:
    """``node gpu-7 lost this job 2 times: its pods avoid it until 14:05 UTC``."""
    return f"node {losses.node} lost this job {losses.count} times: its pods avoid it until {until:%H:%M} UTC"


def events(before: JobStatus, after: JobStatus, now: datetime) -> Iterator[Emit]:
    """An event for each node that is avoided from now on."""
    known = avoided(before, now)
    for node, (losses, until) in avoided(after, now).items():
        if node not in known:
            yield Emit("Warning", Reason.NODE_AVOIDED, words(losses, until))


def avoid(pod: JsonObject, nodes: Iterable[str]) -> None:
    """Have the scheduler prefer all other nodes for a pod.

    The operator has no right to look at nodes, so it does not know whether another one would do: it requires none.
    """
    # A field takes one value, and all fields of a term must match (kubernetes, ValidateNodeFieldSelectorRequirement).
    fields: list[JsonValue] = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    if not fields:
        return
    pod_spec = object_at(pod, "spec")
    affinity = fields_of(pod_spec.get("affinity"))
    of_nodes = {**fields_of(affinity.get("nodeAffinity"))}  # a copy: pods share the template's
    preferred: JsonObject = {"weight": 100, "preference": {"matchFields": fields}}
    extend(of_nodes, "preferredDuringSchedulingIgnoredDuringExecution", (preferred,))
    pod_spec["affinity"] = {**affinity, "nodeAffinity": of_nodes}
