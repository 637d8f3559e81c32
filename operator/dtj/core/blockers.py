"""What keeps a pod from starting, and which pod is named when a job waits for its pods: the first that says so.

The kubelet has many words for few troubles, and takes turns with some of them (ErrImagePull and ImagePullBackOff, at
every attempt). Here they become one reason with one text, so that a status that repeats them does not flap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from dtj.api.names import Reason
from dtj.core.observed import Blocker, Phase, Pod

_WAITING_REASONS: Final = {
    "ErrImagePull": Reason.IMAGE_PULL_FAILED,
    "ImagePullBackOff": Reason.IMAGE_PULL_FAILED,
    "InvalidImageName": Reason.IMAGE_PULL_FAILED,
    "ErrImageNeverPull": Reason.IMAGE_PULL_FAILED,
    "ImageInspectError": Reason.IMAGE_PULL_FAILED,
    "RegistryUnavailable": Reason.IMAGE_PULL_FAILED,
    "SignatureValidationFailed": Reason.IMAGE_PULL_FAILED,
    "CreateContainerConfigError": Reason.CONTAINER_CONFIG_ERROR,
    "CreateContainerError": Reason.CONTAINER_CONFIG_ERROR,
    "RunContainerError": Reason.CONTAINER_CONFIG_ERROR,
}
"""The kubelet's reasons why a container waits that do not pass by themselves (kubernetes, pkg/kubelet/images and
pkg/kubelet/kuberuntime)."""

_BACK_OFF: Final = re.compile(r'Back-off pulling image "[^"]*": (?:[A-Za-z]+: )?(?=.)')
"""What the kubelet puts before the error of the latest pull while it waits for the next (since Kubernetes 1.32)."""

_LONGEST_TEXT: Final = 1024

PATIENCE: Final = timedelta(seconds=10)
"""How old a pod gets before the job reports what keeps it from starting.

Much of that passes within moments (a volume is bound, a node is freed), and a start that goes well would cost two
writes more.
"""

REASONS: Final = frozenset(
    {
        Reason.UNSCHEDULABLE,
        Reason.IMAGE_PULL_FAILED,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.POD_START_FAILED,
        Reason.CONTAINER_FAILED,
    }
)
"""What a job may say it waits for. An event reports each when it first shows."""

RECOVERED: Final = timedelta(minutes=10)
"""A container that has run so long is well again: the kubelet counts its next failure as the first (kubernetes,
pkg/kubelet/kubelet.go, MaxContainerBackOff)."""


def ailing(pods: Iterable[Pod], now: datetime) -> Iterator[Pod]:
    """Those of ``pods`` with a blocker that still counts, in the same order. One that is ready trains all the same: it
    is another container that fails."""
    for pod in pods:
        found = pod.blocker
        if found is None or pod.main_container_ended or pod.terminating:
            continue
        if found.at is None or now < found.at + RECOVERED:
            yield pod


def blocked(pods: Iterable[Pod], now: datetime) -> tuple[Pod, ...]:
    """Those of ``pods`` that something keeps from starting, in the same order."""
    return tuple(pod for pod in ailing(pods, now) if not pod.ready)


def failing_beside(pods: Iterable[Pod], now: datetime) -> Pod | None:
    """The first of ``pods`` that is ready, and has another container that fails."""
    well = (pod for pod in ailing(pods, now) if pod.ready and not _may_pass(pod.blocker))
    return next((pod for pod in well if pod.blocker is not None and pod.blocker.container), None)


def named(blocked: Iterable[Pod], now: datetime) -> Pod | None:
    """The first of them that is old enough to be named; one that waits for a container that may become ready, last."""
    old = [pod for pod in blocked if _due(pod, now) <= now]
    return min(old, key=lambda pod: _may_pass(pod.blocker), default=None)


def _may_pass(blocker: Blocker | None) -> bool:
    return blocker is None or blocker.reason is Reason.WAITING_FOR_PODS


def seconds_until_named(blocked: Iterable[Pod], now: datetime) -> float | None:
    """Seconds until one of them is old enough; None where one is, or where there is none."""
    due = min((_due(pod, now) for pod in blocked), default=now)
    return (due - now).total_seconds() if due > now else None


def _due(pod: Pod, now: datetime) -> datetime:
    return pod.created_at + PATIENCE if pod.created_at is not None else now


@dataclass(frozen=True, slots=True)
class WaitingContainer:
    """A container that waits, and the kubelet's words why."""

    name: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class OtherContainer:
    """A container besides the main one.

    ``initial`` is whether it is an init container, ``lasting`` whether it is one that runs as long as the pod;
    ``exit_code``, ``reason`` and ``ended_at`` are those of its latest end, which is its present state if it has
    ``ended``.
    """

    name: str
    lasting: bool
    initial: bool
    running: bool
    ready: bool
    ended: bool
    restarts: int
    exit_code: int | None
    reason: str
    ended_at: datetime | None


def blocker_of(
    *,
    unschedulable: str | None,
    waiting: Iterable[WaitingContainer],
    main_container: str,
    others: Iterable[OtherContainer] = (),
) -> Blocker | None:
    """What keeps a pod from starting, or ails its other containers; None if nothing does, or nothing is reported yet.

    ``unschedulable`` are the scheduler's words, None if it found a node.
    """
    if unschedulable is not None:
        return Blocker(Reason.UNSCHEDULABLE, _text(unschedulable))
    for container in waiting:
        reason = _WAITING_REASONS.get(container.reason)
        if reason is not None:
            other = container.name if container.name != main_container else ""
            where = f"container {other}: " if other else ""
            words = _BACK_OFF.sub("", container.message) or container.reason
            return Blocker(reason, _text(f"{where}{words}"), other)
    troubles = [trouble for container in others if (trouble := _trouble_of(container)) is not None]
    return min(troubles, key=_may_pass, default=None)


def _trouble_of(container: OtherContainer) -> Blocker | None:
    """What is wrong with a container besides the main one. By the number of its restarts, not by its state, which
    changes from run to run."""
    code, name = container.exit_code, f"container {container.name}"
    if container.ended and code == 0 and not container.lasting:
        return None
    how = f"exit {code}" + (f", {container.reason}" if container.reason not in ("", "Error", "Completed") else "")
    if code is not None and container.restarts > (0 if code and not container.running else 1):
        times = "1 restart" if container.restarts == 1 else f"{container.restarts} restarts"
        again = _text(f"{name} ends again and again ({how}, {times})")
        since = container.ended_at if container.ready else None
        return Blocker(Reason.CONTAINER_FAILED, again, container.name, since)
    if container.ended and code:
        return Blocker(Reason.CONTAINER_FAILED, _text(f"{name} failed ({how})"), container.name)
    must_be_ready = container.lasting or not container.initial
    if container.running and must_be_ready and not container.ready:
        return Blocker(Reason.WAITING_FOR_PODS, _text(f"{name} is not ready"), container.name)
    return None


START_TROUBLES: Final = frozenset(
    {
        "FailedAttachVolume",
        "FailedMount",
        "FailedMapVolume",
        "FailedCreatePodSandBox",
        "FailedPrepareDynamicResources",
        "NetworkNotReady",
    }
)
"""Reasons of events about what keeps a pod from starting of which its status is silent (kubernetes,
pkg/kubelet/events and pkg/controller/volume/events)."""


def waits_without_a_word(pod: Pod, now: datetime) -> bool:
    """Whether a pod has a node and does not start, for as long as is worth a word, and its status does not say why."""
    goes_on = pod.ready or pod.main_container_ended or pod.terminating or pod.phase is not Phase.PENDING
    return bool(pod.node) and not goes_on and pod.blocker is None and _due(pod, now) <= now


def start_trouble(reason: str, note: str) -> Blocker:
    """What an event says keeps a pod from starting."""
    return Blocker(Reason.POD_START_FAILED, f"{_text(note) or 'it does not start'} ({reason})")


def _text(words: str) -> str:
    """One line, of a length that a person reads."""
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
