"""The words of the scheduler, the kubelet and events for what keeps a pod from starting, or ails its other containers.

The kubelet has many words for few troubles, and takes turns with some of them (ErrImagePull and ImagePullBackOff, at
every attempt). Here they become one reason with one text, so that a status that repeats them does not flap.
:mod:`dtj.core.blockers` says which of them count.
"""

from __future__ import annotations

import re
from typing import Final

from dtj.api.job import parse_time
from dtj.api.names import Reason
from dtj.core.blockers import may_pass
from dtj.core.observed import Blocker
from dtj.kube.records import ContainerStatus, PodRecord

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

_START_TROUBLES: Final = frozenset(
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

_LONGEST_TEXT: Final = 1024


def blocker_of(pod: PodRecord) -> Blocker | None:
    """What the status of a pod says; None if nothing is wrong, or nothing is reported yet."""
    if pod.unschedulable is not None:
        return Blocker(Reason.UNSCHEDULABLE, _text(pod.unschedulable))
    main = pod.main_container
    for name, waiting in pod.waiting:
        reason = _WAITING_REASONS.get(waiting.reason)
        if reason is not None:
            other = _text(name) if name != main else ""
            where = f"container {other}: " if other else ""
            words = _BACK_OFF.sub("", waiting.message) or waiting.reason
            return Blocker(reason, _text(f"{where}{words}"), other)
    policies = {container.name: container.restart_policy for container in pod.spec.init_containers or ()}
    others = (status for status in pod.container_statuses if status.name != main)
    found = (_trouble_of(status, policies.get(status.name)) for status in others)
    return min((trouble for trouble in found if trouble is not None), key=may_pass, default=None)


def _trouble_of(container: ContainerStatus, restart_policy: str | None) -> Blocker | None:
    """What is wrong with a container besides the main one; ``restart_policy`` is None where it is no init container. By
    the number of its restarts, not by its state, which changes from run to run."""
    name, state, lasting = _text(container.name), container.state, restart_policy == "Always"
    end, restarts = state.terminated or container.last_state.terminated, container.restart_count or 0
    if state.terminated is not None and state.terminated.exit_code == 0 and not lasting:
        return None
    if end is not None:
        how = f"exit {end.exit_code}" + (f", {end.reason}" if end.reason not in ("", "Error", "Completed") else "")
        if restarts > (0 if end.exit_code and state.running is None else 1):
            times = "1 restart" if restarts == 1 else f"{restarts} restarts"
            again = _text(f"container {name} ends again and again ({how}, {times})")
            since = parse_time(end.finished_at) if container.ready else None
            return Blocker(Reason.CONTAINER_FAILED, again, name, since)
        if state.terminated is not None and end.exit_code:
            return Blocker(Reason.CONTAINER_FAILED, _text(f"container {name} failed ({how})"), name)
    must_be_ready = lasting or restart_policy is None
    if state.running is not None and must_be_ready and not container.ready:
        return Blocker(Reason.WAITING_FOR_PODS, _text(f"container {name} is not ready"), name)
    return None


def start_trouble(reason: str, note: str) -> Blocker | None:
    """What an event says keeps a pod from starting; None if it is about something else."""
    if reason not in _START_TROUBLES:
        return None
    return Blocker(Reason.POD_START_FAILED, f"{_text(note) or 'it does not start'} ({reason})")


def _text(words: str) -> str:
    """One line, of a length that a person reads."""
    line = " ".join(words.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"
